//! The compiler's warnings about values that are not used.
//!
//! Each statement expects its warning: a missing warning is an error, and the tests do not build.

#![deny(unfulfilled_lint_expectations)]

use std::time::Duration;

use leasehold::{AnyLock, BackOff, Client, Fence, MultiLock, Owner, QuorumLock};

/// States that the compiler warns about each of these statements.
macro_rules! must_be_used {
    ($($value:expr;)+) => {$(
        #[expect(unused_must_use, reason = "that it complains is the test")]
        { $value; }
    )+};
}

/// A guard that is not kept would release the lock on the spot.
#[test]
fn an_unused_guard_is_warned_about() {
    let client = Client::connect("memory:").block().unwrap();
    let (rw, semaphore, leased) = (client.rw_lock("rw"), client.semaphore("s"), client.leased_semaphore("l"));
    semaphore.try_set_permits(1).block().unwrap();
    leased.try_set_permits(1).block().unwrap();
    must_be_used! {
        client.lock("a").acquire().block().unwrap();
        client.fenced_lock("a").acquire().block().unwrap();
        AnyLock::acquire(&client.lock("any")).block().unwrap();
        rw.read().acquire().block().unwrap();
        rw.write().acquire().block().unwrap();
        client.multi_lock(["a", "b"]).acquire().block().unwrap();
        QuorumLock::new([&client], "q").acquire().block().unwrap();
        semaphore.acquire(1).block().unwrap();
        leased.acquire(1).block().unwrap();
    }
}

/// Nothing happens before `.await` or `.block()`.
#[test]
fn an_operation_that_is_not_awaited_is_warned_about() {
    let client = Client::connect("memory:").block().unwrap();
    let lock = client.lock("a");
    let (multi, quorum) = (client.multi_lock(["a", "b"]), QuorumLock::new([&client], "q"));
    let (semaphore, leased, latch) = (client.semaphore("s"), client.leased_semaphore("l"), client.latch("c"));
    must_be_used! {
        Client::connect("memory:");
        lock.acquire();
        lock.try_acquire();
        AnyLock::acquire(&lock);
        AnyLock::try_acquire(&lock);
        lock.is_locked();
        lock.force_unlock();
        client.fenced_lock("a").acquire();
        client.rw_lock("rw").write().try_acquire();
        client.rw_lock("rw").write().is_locked();
        client.fair_lock("a").acquire();
        multi.acquire();
        multi.try_acquire();
        quorum.acquire();
        quorum.try_acquire();
        semaphore.acquire(1);
        semaphore.try_acquire(1);
        semaphore.try_set_permits(1);
        semaphore.release(1);
        leased.acquire(1);
        leased.acquire(1).permanent();
        leased.try_acquire(1);
        leased.set_permits(1);
        latch.opened();
        latch.count_down();
        client.fenced_write("key", 1, "value");
        client.shutdown(Duration::ZERO);
    }
    let guard = lock.acquire().block().unwrap();
    must_be_used! {
        guard.lost();
        guard.extend(Duration::from_secs(1));
        guard.reenter();
        guard.run(async {});
        guard.release();
    }
}

/// Options are set on the returned value, not on the original.
#[test]
fn an_unused_option_is_warned_about() {
    let client = Client::connect("memory:").block().unwrap();
    let second = Duration::from_secs(1);
    must_be_used! {
        client.lock("a").non_reentrant();
        client.lock("a").back_off(BackOff::default());
        client.fair_lock("a").non_reentrant();
        client.fair_lock("a").as_owner(Owner::unique());
        client.fenced_lock("a").non_reentrant();
        client.fenced_lock("a").back_off(BackOff::default());
        client.rw_lock("rw").prefer_writers();
        client.lock("a").as_owner(Owner::unique());
        MultiLock::new([client.lock("a")]);
        QuorumLock::new([&client], "q").server_timeout(second);
        QuorumLock::new([&client], "q").rejoin_delay(second);
        BackOff::constant(second).factor(1);
        Owner::unique();
        Fence::new();
    }
}
