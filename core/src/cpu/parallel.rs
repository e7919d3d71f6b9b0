//! Loops over independent tasks: on the engine's own [`team`](super::team), for calls without an engine on rayon's
//! current pool, or one after the other where there are no threads.
//!
//! A task's result never depends on how tasks are spread, so neither does any result of this engine.

use std::marker::PhantomData;
use std::ops::Range;

/// Calls `f(i)` for every i below `n`, in any order and possibly at the same time.
pub(crate) fn for_each(n: usize, f: impl Fn(usize) + Sync) {
    if super::team::for_each(n, &f) {
        return;
    }
    #[cfg(not(target_family = "wasm"))]
    if n > 1 && pool_threads() > 1 {
        use rayon::prelude::*;
        (0..n).into_par_iter().with_max_len(1).for_each(&f);
        return;
    }
    (0..n).for_each(f);
}

/// Threads of rayon's current pool, which is made when it is first asked for. One on a system that has no room for more:
/// nothing may run in rayon's own pool then, since rayon panics where it cannot make it.
#[cfg(not(target_family = "wasm"))]
fn pool_threads() -> usize {
    use std::error::Error;
    static MADE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let make = || match rayon::ThreadPoolBuilder::new().build_global() {
        Ok(()) => true,
        // Without a cause it says that there is a pool: the application has made one of its own.
        Err(e) => e.source().is_none(),
    };
    let usable = rayon::current_thread_index().is_some() || *MADE.get_or_init(make);
    if usable { rayon::current_num_threads() } else { 1 }
}

#[cfg(target_family = "wasm")]
fn pool_threads() -> usize {
    1
}

/// Calls `f` on every item and returns the results in order; on rayon's current pool where there are threads.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    #[cfg(not(target_family = "wasm"))]
    if pool_threads() > 1 {
        use rayon::prelude::*;
        return items.par_iter().map(&f).collect();
    }
    items.iter().map(f).collect()
}

/// Threads that [`for_each`] can use.
pub(crate) fn threads() -> usize {
    super::team::threads().unwrap_or_else(pool_threads)
}

/// Calls `f(range)` on pieces of `0..n`, of about `grain` each: one piece, on this thread, when n is small.
pub(crate) fn for_ranges(n: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
    let grain = grain.max(1);
    for_each(n.div_ceil(grain), |i| f(i * grain..((i + 1) * grain).min(n)));
}

/// A slice that several tasks write, each in places of its own.
///
/// Heads interleave in a row-major tensor, so their pieces cannot be split off as slices beforehand.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `get`, whose callers promise disjoint ranges.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(x: &'a mut [T]) -> Self {
        Self { start: x.as_mut_ptr(), len: x.len(), borrow: PhantomData }
    }

    /// The elements `at .. at + n`.
    ///
    /// # Safety
    /// While the result lives, no other call may give out any of these elements.
    ///
    /// # Panics
    /// If the range ends past the slice.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub(crate) unsafe fn get(&self, at: usize, n: usize) -> &mut [T] {
        assert!(at <= self.len && n <= self.len - at, "range {at}+{n} of {}", self.len);
        // SAFETY: in bounds by the assertion, disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for n in [0, 1, 2, 7, 100] {
            let mut hits = vec![0u8; n];
            let shared = Shared::new(&mut hits);
            // SAFETY: every index belongs to one range.
            for_ranges(n, 3, |r| unsafe { shared.get(r.start, r.len()) }.iter_mut().for_each(|h| *h += 1));
            assert!(hits.iter().all(|h| *h == 1));
        }
    }
}
