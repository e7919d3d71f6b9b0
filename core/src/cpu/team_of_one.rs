//! What stands for [`Team`] where there are no threads: WebAssembly.

/// The thread that calls.
#[derive(Debug)]
pub(super) struct Team;

impl Team {
    /// A team of one, however many are asked for.
    pub(super) fn new(_threads: usize) -> std::io::Result<Self> {
        Ok(Self)
    }

    /// The same.
    pub(super) fn at_most(threads: usize) -> std::io::Result<Self> {
        Self::new(threads)
    }

    pub(super) fn threads(&self) -> usize {
        1
    }

    /// Runs `f`.
    pub(super) fn install<R>(&mut self, f: impl FnOnce() -> R) -> R {
        f()
    }
}

/// Threads that a loop runs on.
pub(super) fn threads() -> Option<usize> {
    Some(1)
}

/// Calls `f(i)` for every i below `n`, and says so.
pub(super) fn for_each<F: Fn(usize) + Sync>(n: usize, f: &F) -> bool {
    (0..n).for_each(f);
    true
}
