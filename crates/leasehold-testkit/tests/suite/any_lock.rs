//! Code that is generic over locks, with every lock.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{AnyLock, Client, Error, MultiLock, QuorumLock};

/// A lock with a name for failures, and the same lock of another client.
struct Pair {
    name: &'static str,
    lock: Box<dyn AnyLock>,
    other: Box<dyn AnyLock>,
}

/// Every lock, and every request, of two clients of one memory. The read lock is not among them, because it excludes writers only.
async fn pairs(memory: &str) -> Vec<Pair> {
    let url = format!("memory:{memory}");
    let (one, two) = (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap());
    let pair =
        |name, make: &dyn Fn(&Client) -> Box<dyn AnyLock>| Pair { name, lock: make(&one), other: make(&two) };
    vec![
        pair("plain", &|client| Box::new(client.lock("plain"))),
        pair("set-nx", &|client| Box::new(client.setnx_lock("set-nx"))),
        pair("fair", &|client| Box::new(client.fair_lock("fair"))),
        pair("fenced", &|client| Box::new(client.fenced_lock("fenced"))),
        pair("write", &|client| Box::new(client.rw_lock("write").write())),
        pair("multi", &|client| Box::new(client.multi_lock(["multi-1", "multi-2"]))),
        pair("fair members", &|client| Box::new(MultiLock::new([client.fair_lock("members").into()]))),
        pair("quorum", &|client| Box::new(QuorumLock::new([client], "quorum"))),
        pair("semaphore", &|client| Box::new(client.semaphore("semaphore").with_permits(1))),
        pair("leased", &|client| Box::new(client.leased_semaphore("leased").with_permits(1))),
        pair("plain with a lease", &|client| Box::new(client.lock("plain-lease").acquire().lease(HOUR))),
        pair("fenced with a lease", &|client| {
            Box::new(client.lock("fenced-lease").acquire().fenced().lease(HOUR))
        }),
        pair("write with a lease", &|client| {
            Box::new(client.rw_lock("write-lease").write().acquire().lease(HOUR))
        }),
        pair("multi with a lease", &|client| {
            Box::new(client.multi_lock(["multi-lease"]).acquire().lease(HOUR))
        }),
        pair("quorum with a lease", &|client| {
            Box::new(QuorumLock::new([client], "quorum-lease").acquire().lease(HOUR))
        }),
        pair("two permits", &|client| Box::new(client.semaphore("two").with_permits(3).acquire(2))),
        pair("two leased permits", &|client| {
            Box::new(client.leased_semaphore("two-leased").with_permits(3).acquire(2).lease(HOUR))
        }),
        pair("any", &|client| Box::new(AnyLock::acquire(&client.lock("any")))),
        pair("boxed", &|client| Box::new(Box::new(client.lock("boxed")) as Box<dyn AnyLock>)),
        pair("shared", &|client| Box::new(Arc::new(client.lock("shared")) as Arc<dyn AnyLock>)),
    ]
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A function as users write it: its future is `Send` if that of the work is.
async fn once<T>(lock: &impl AnyLock, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    lock.acquire().wait(Duration::from_millis(20)).run(work).await
}

#[tokio::test(start_paused = true)]
async fn own_360_every_lock_is_acquired_waited_for_and_tried_in_the_same_way() {
    for Pair { name, lock, other } in pairs("any-acquire").await {
        let guard = lock.acquire().await.unwrap();
        assert!(guard.is_held() && !guard.remaining().is_zero(), "{name}");
        assert!(guard.view().check().is_ok(), "{name}");
        assert_eq!(guard.token().is_some(), name.starts_with("fenced"), "{name}");
        assert!(other.try_acquire().await.unwrap().is_none(), "{name}");
        let busy = other.acquire().wait(Duration::from_secs(1)).await.unwrap_err();
        assert!(busy.is_contended(), "{name}: {busy}");
        let view = guard.view();
        let (waited, released) = tokio::join!(other.acquire().wait(MINUTE).into_future(), guard.release());
        released.unwrap();
        assert!(!view.is_held(), "{name}");
        waited.unwrap().release().await.unwrap();
        let guard = other.try_acquire().await.unwrap();
        assert!(guard.is_some_and(|guard| guard.is_held()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn own_361_work_runs_under_every_lock() {
    for Pair { name, lock, other } in pairs("any-run").await {
        let task = tokio::spawn(async move {
            let nested = once(&lock, async { once(&other, async { Ok(()) }).await });
            assert!(nested.await.unwrap_err().is_contended(), "{name}");
            let done = once(&lock, other.try_acquire().run(async { Ok(()) }));
            assert_eq!(done.await, Ok(None), "{name}");
            let held =
                lock.acquire().wait(MINUTE).run_with(|hold| async move { Ok::<_, Error>(hold.is_held()) });
            assert_eq!(held.await, Ok(true), "{name}");
            assert_eq!(other.try_acquire().run(async { Ok::<_, Error>(1) }).await, Ok(Some(1)), "{name}");
        });
        task.await.unwrap();
    }
}

#[test]
fn own_362_every_lock_is_used_on_a_plain_thread() {
    let pairs = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pairs("any-block"));
    for Pair { name, lock, other } in pairs {
        let guard = lock.acquire().block().unwrap();
        assert!(other.try_acquire().block().unwrap().is_none(), "{name}");
        let tried = other.try_acquire().run_blocking(|_| Ok::<_, Error>(()));
        assert_eq!(tried, Ok(None), "{name}");
        guard.release().block().unwrap();
        let done = other.acquire().wait(MINUTE).run_blocking(|hold| Ok::<_, Error>(hold.is_held()));
        assert_eq!(done, Ok(true), "{name}");
    }
}

/// Readers exclude writers, and not each other.
#[tokio::test]
async fn read_locks_are_any_locks_too() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.rw_lock("n");
    let readers: [Box<dyn AnyLock>; 2] = [Box::new(lock.read()), Box::new(lock.read().acquire().lease(HOUR))];
    let one = readers[0].acquire().await.unwrap();
    let two = readers[1].try_acquire().await.unwrap().expect("readers read together");
    assert!(one.is_held() && two.is_held());
    assert!(AnyLock::try_acquire(&lock.write()).await.unwrap().is_none());
    one.release().await.unwrap();
    two.release().await.unwrap();
    assert!(AnyLock::try_acquire(&lock.write()).await.unwrap().is_some());
}

#[tokio::test]
async fn work_under_a_guard_of_any_lock_is_dropped_at_a_loss() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("n");
    let guard = AnyLock::acquire(&lock).await.unwrap();
    assert_eq!(guard.run(async { 1 }).await, Ok(1));
    // The work is done at the same poll.
    assert!(guard.run(async { lock.force_unlock().await.unwrap() }).await.is_err());
    let guard = AnyLock::acquire(&lock).await.unwrap();
    let both = async { tokio::join!(guard.run(pending::<()>()), lock.force_unlock()) };
    let (lost, unlocked) = tokio::time::timeout(MINUTE, both).await.unwrap();
    assert_eq!(unlocked, Ok(true));
    let loss = lost.unwrap_err().loss;
    assert_eq!(guard.lost().await, loss);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    // Work that is done at once, but after the loss.
    assert!(guard.run(async { 1 }).await.is_err());
    assert!(guard.release().await.is_err());
}

/// The lock's own methods come first, also where the trait is in scope.
#[tokio::test]
async fn the_trait_does_not_hide_what_a_lock_has_itself() {
    let client = Client::connect("memory:").await.unwrap();
    let (lock, shared) = (client.lock("n"), Arc::new(client.lock("n")));
    let guard = lock.acquire().lease(HOUR).await.unwrap();
    guard.reenter().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    shared.acquire().lease(HOUR).await.unwrap().release().await.unwrap();
    let borrowed = &lock;
    borrowed.acquire().lease(HOUR).await.unwrap().release().await.unwrap();
}
