//! Ctrl-C: the first asks the program to end at the next token, the second ends it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Between two looks at Ctrl-C.
const LOOK: Duration = Duration::from_millis(20);

/// Whether Ctrl-C was pressed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for Ctrl-C from now on.
    pub(crate) fn watch() -> Self {
        Self::watch_and(|| ())
    }

    /// The same for what leaves nothing behind: it ends a second later, wherever it is then.
    pub(crate) fn watch_briefly() -> Self {
        Self::watch_and(|| {
            let wait = || {
                std::thread::sleep(Duration::from_secs(1));
                std::process::exit(130);
            };
            if std::thread::Builder::new().spawn(wait).is_err() {
                std::process::exit(130);
            }
        })
    }

    /// `first`: what the first Ctrl-C does besides.
    fn watch_and(first: impl Fn() + Send + 'static) -> Self {
        let flag = Self::default();
        let seen = flag.0.clone();
        // Without a handler Ctrl-C ends the program at once, which is all right too.
        let _ = ctrlc::set_handler(move || {
            if seen.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            first();
        });
        flag
    }

    pub(crate) fn pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs what cannot be asked to end early, on a thread of its own; `None` when Ctrl-C is pressed first. The thread is
    /// left behind then, and ends with the program.
    pub(crate) fn unless_pressed<T, F>(&self, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (hand, handed) = channel::<F>();
        let (give, given) = channel();
        let run = move || {
            if let Ok(work) = handed.recv() {
                // Nobody waits for it any more when this fails.
                let _ = give.send(work());
            }
        };
        let Ok(thread) = std::thread::Builder::new().spawn(run) else {
            // The system has no room for a thread: Ctrl-C has to wait.
            return Some(work());
        };
        let _ = hand.send(work);
        loop {
            match given.recv_timeout(LOOK) {
                Ok(value) => return Some(value),
                Err(RecvTimeoutError::Timeout) if self.pressed() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match thread.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => return None,
                },
            }
        }
    }
}
