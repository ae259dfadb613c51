//! Which types may cross threads.

use leasehold::{
    Acquire, AcquireError, Client, Connect, ConnectError, ExtendError, Guard, Holder, Invalid, Lock, Loss,
    Operation, OwnedLock, Owner, QueryError, ReleaseError, TryAcquire,
};

fn free<T: Send + Sync + 'static>() {}
fn sendable<T: Send + 'static>(_: &T) {}

#[test]
fn values_are_send_sync_and_static() {
    free::<Client>();
    free::<Connect>();
    free::<Lock>();
    free::<OwnedLock>();
    free::<Acquire>();
    free::<TryAcquire>();
    free::<Guard>();
    free::<Owner>();
    free::<Holder>();
    free::<Loss>();
}

#[test]
fn errors_are_send_sync_and_static() {
    fn error<T: std::error::Error + Clone + PartialEq + Send + Sync + 'static>() {}
    error::<AcquireError>();
    error::<ConnectError>();
    error::<ExtendError>();
    error::<Invalid>();
    error::<Loss>();
    error::<QueryError>();
    error::<ReleaseError>();
}

#[tokio::test]
async fn futures_are_send_and_static_and_the_work_of_run_is_the_callers() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("a");
    sendable(&lock.acquire().into_future());
    sendable(&lock.try_acquire().into_future());
    sendable(&lock.force_unlock());
    let guard = lock.acquire().await.unwrap();
    sendable(&guard.lost());
    sendable(&guard.extend(std::time::Duration::from_secs(1)));
    sendable(&guard.reenter());
    // `run` borrows the guard and the work: neither has to be Send or 'static.
    let local = std::rc::Rc::new(1);
    assert_eq!(guard.run(async { *local }).await, Ok(1));
    let lost: Operation<Loss> = guard.lost();
    drop(guard);
    drop(lost);
}
