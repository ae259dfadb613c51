//! The tests of the kit itself: the servers it starts and the faults it injects.

mod proxy;
mod server;

use std::{thread, time::Duration};

/// Polls until `happened`, for 10 s at most.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if happened() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("not within 10 s: {what}");
}
