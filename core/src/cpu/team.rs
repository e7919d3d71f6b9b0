//! Threads that wait for work without sleeping at once.
//!
//! One token of a small model is some hundred short loops one after the other, each of them shorter than it takes an
//! operating system to wake a thread. A team's threads therefore look out for the next loop for about 100 µs before
//! they go to sleep; between tokens and while nothing is asked for, they do sleep.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Looks before a thread goes to sleep: about 100 µs.
const LOOKS: u32 = 3000;
/// Looks before a thread lets others run in between.
const BUSY_LOOKS: u32 = 10_000;

/// A gate's bit that lets threads in; above it the loop's number, below it the threads inside.
const OPEN: u64 = 1 << 16;
const INSIDE: u64 = OPEN - 1;
const NEXT_LOOP: u64 = OPEN << 1;

/// What a thread's loops run on.
#[derive(Clone, Copy)]
enum Loops {
    /// Nothing of a team.
    Free,
    /// The team whose [`Team::install`] is running on this thread.
    Team(*const Shared),
    /// The thread is in a team's loop; a loop inside it is the thread's own.
    Inside,
}

thread_local! {
    static LOOPS: Cell<Loops> = const { Cell::new(Loops::Free) };
}

/// Sets what this thread's loops run on, until dropped.
struct Set(Loops);

impl Set {
    fn new(loops: Loops) -> Self {
        Self(LOOPS.replace(loops))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        LOOPS.set(self.0);
    }
}

/// The threads.
#[derive(Debug)]
pub(super) struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Threads, with the one that calls.
    threads: usize,
    /// The current loop; see [`OPEN`].
    gate: AtomicU64,
    /// What the loop does; written only while the gate is closed and nobody inside.
    work: UnsafeCell<Work>,
    /// The next index of the loop.
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    end: AtomicBool,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

/// A loop: `call(data, i)` for every i below `n`.
#[derive(Clone, Copy, Debug)]
struct Work {
    call: unsafe fn(*const (), usize),
    data: *const (),
    n: usize,
}

// SAFETY: `work` is shared by the gate's protocol: the calling thread writes it while nobody is inside, others read it
// only inside. Its `data` points to a closure that is `Sync` and outlives the time that anybody is inside.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

unsafe fn nothing(_: *const (), _: usize) {}

impl Team {
    /// A team of `threads`, of which one is whoever calls [`Team::install`].
    pub(super) fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            threads,
            gate: AtomicU64::new(0),
            work: UnsafeCell::new(Work { call: nothing, data: std::ptr::null(), n: 0 }),
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
            end: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut team = Self { shared, helpers: Vec::new() };
        for i in 1..threads {
            let shared = team.shared.clone();
            let builder = std::thread::Builder::new().name(format!("deltanet cpu {i}"));
            team.helpers.push(builder.spawn(move || shared.help())?);
        }
        Ok(team)
    }

    /// A team of `threads`, or of fewer where the system has no room for so many.
    pub(super) fn at_most(threads: usize) -> std::io::Result<Self> {
        match Self::new(threads) {
            Err(_) if threads > 1 => Self::at_most(threads / 2),
            team => team,
        }
    }

    /// Threads, with the one that calls.
    pub(super) fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs `f` on this thread; the loops that it runs through [`for_each`] are shared with the team.
    pub(super) fn install<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // `&mut self` and the thread's own cell: one thread calls at a time.
        let _set = Set::new(Loops::Team(Arc::as_ptr(&self.shared)));
        f()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for helper in self.helpers.drain(..) {
            // Panics of loops have been handed to their callers.
            let _ = helper.join();
        }
    }
}

/// Threads that a loop on this thread runs on, if a team has a say in it.
pub(super) fn threads() -> Option<usize> {
    match LOOPS.get() {
        Loops::Free => None,
        // SAFETY: set only while the team is borrowed by `install`.
        Loops::Team(shared) => Some(unsafe { &*shared }.threads),
        Loops::Inside => Some(1),
    }
}

/// Calls `f(i)` for every i below `n` if a team has a say in this thread's loops, and says whether one has.
pub(super) fn for_each<F: Fn(usize) + Sync>(n: usize, f: &F) -> bool {
    match LOOPS.get() {
        Loops::Free => return false,
        Loops::Team(shared) if n > 1 => {
            // SAFETY: as above.
            if let Some(panic) = unsafe { &*shared }.run(n, f) {
                resume_unwind(panic);
            }
        }
        Loops::Team(_) | Loops::Inside => (0..n).for_each(f),
    }
    true
}

impl Shared {
    fn run<F: Fn(usize) + Sync>(&self, n: usize, f: &F) -> Option<Box<dyn Any + Send>> {
        unsafe fn call<F: Fn(usize)>(data: *const (), i: usize) {
            // SAFETY: `data` is the `&F` below, which lives until everybody has left.
            unsafe { (*data.cast::<F>())(i) }
        }
        let gate = self.gate.load(Ordering::Relaxed);
        debug_assert_eq!(gate & (OPEN | INSIDE), 0, "a loop is running");
        // SAFETY: the gate is closed and nobody inside, so this thread alone looks at it.
        unsafe { *self.work.get() = Work { call: call::<F>, data: std::ptr::from_ref(f).cast(), n } };
        self.next.store(0, Ordering::Relaxed);
        // Publishes `work`. SeqCst, with the sleepers' count: either a sleeper sees this or this thread sees it.
        self.gate.store((gate & !(OPEN | INSIDE)).wrapping_add(NEXT_LOOP) | OPEN, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
        self.work_on();
        let mut gate = self.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0;
        while gate & INSIDE != 0 {
            look_again(&mut looks);
            gate = self.gate.load(Ordering::Acquire);
        }
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes indices of the loop until there are none. Only the caller's thread or one inside the gate may.
    fn work_on(&self) {
        let _set = Set::new(Loops::Inside);
        // SAFETY: written before the gate opened, and not again before this thread has left.
        let Work { call, data, n } = unsafe { *self.work.get() };
        let done = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let i = self.next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    break;
                }
                // SAFETY: `data` is what `call` expects, by `run`.
                unsafe { call(data, i) };
            }
        }));
        if let Err(panic) = done {
            self.next.store(n, Ordering::Relaxed);
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    }

    /// A helper's life.
    fn help(&self) {
        let mut looks = 0;
        // The number of the last loop that this thread took part in: it does not enter twice.
        let mut last = 0;
        loop {
            let gate = self.gate.load(Ordering::Relaxed);
            if gate & OPEN != 0 && gate / NEXT_LOOP != last {
                // One more inside, if the gate is still as it was.
                let entered = self.gate.compare_exchange_weak(gate, gate + 1, Ordering::Acquire, Ordering::Relaxed);
                if entered.is_ok() {
                    last = gate / NEXT_LOOP;
                    self.work_on();
                    self.gate.fetch_sub(1, Ordering::Release);
                    looks = 0;
                }
                continue;
            }
            if self.end.load(Ordering::Relaxed) {
                return;
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                self.sleep(last);
                looks = 0;
            }
        }
    }

    /// Sleeps until there is a loop that this thread has not taken part in.
    fn sleep(&self, last: u64) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            let gate = self.gate.load(Ordering::SeqCst);
            let wanted = gate & OPEN != 0 && gate / NEXT_LOOP != last;
            if wanted || self.end.load(Ordering::SeqCst) {
                break;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake_all(&self) {
        // With the lock held, a thread is either asleep or has not looked yet.
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }
}

/// Waits a moment: busily first, then letting other threads run.
fn look_again(looks: &mut u32) {
    *looks += 1;
    if *looks < BUSY_LOOKS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_runs_once_in_thousands_of_loops() {
        for threads in [1, 2, 3, 8] {
            let mut team = Team::new(threads).unwrap();
            team.install(|| {
                for n in (0..3000).map(|i| i % 37) {
                    let hits: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                    assert!(for_each(n, &|i: usize| {
                        hits[i].fetch_add(1, Ordering::Relaxed);
                    }));
                    assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "{n} on {threads} threads");
                    if n == 36 {
                        // Now and then the helpers fall asleep.
                        std::thread::sleep(std::time::Duration::from_micros(300));
                    }
                }
            });
            assert!(!for_each(3, &|_| ()), "no team any more");
        }
    }

    #[test]
    fn loops_in_loops_and_panics() {
        let mut team = Team::new(4).unwrap();
        let count = AtomicUsize::new(0);
        team.install(|| {
            for_each(8, &|_| {
                for_each(5, &|_: usize| {
                    count.fetch_add(threads().unwrap(), Ordering::Relaxed);
                });
            });
        });
        assert_eq!(count.load(Ordering::Relaxed), 40);
        for _ in 0..50 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.install(|| for_each(16, &|i: usize| assert!(i != 11, "eleven")));
            }));
            let text = caught.unwrap_err().downcast::<&str>().map(|s| *s);
            assert_eq!(text.ok(), Some("eleven"));
            // The team works on.
            team.install(|| assert!(for_each(4, &|_: usize| ())));
        }
    }
}
