//! The system's allocator, and one line where it has nothing left.
//!
//! Whoever asks for much memory asks first and says what it was for. Small pieces are taken without asking, all over the
//! program and its libraries; by default Rust aborts where there is none of them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes from which on whoever asks can be told that there is no memory.
const LARGE: usize = 1 << 20;

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: everything is the system allocator's; where this one does not return, it ends the program.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        had(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        had(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        had(unsafe { System.realloc(at, layout, size) }, size)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[inline]
fn had(at: *mut u8, size: usize) -> *mut u8 {
    if at.is_null() && size < LARGE {
        end(size);
    }
    at
}

/// Ends the program, without taking any memory.
#[cold]
fn end(size: usize) {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::Relaxed) {
        // Another thread is at it; or this one is, and what runs at the end of a program wants memory: then Rust aborts.
        std::thread::sleep(Duration::from_secs(1));
        return;
    }
    let _ = writeln!(stderr(), "error: out of memory: there are no {size} bytes left");
    std::process::exit(2);
}
