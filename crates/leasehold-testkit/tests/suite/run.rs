//! Futures of work under a lock that cross threads, and work that fails while its lock is lost.

use std::sync::Arc;

use leasehold::{Client, Error, QuorumLock};

/// As a web framework asks of its handlers.
fn handler<F: Future<Output = Result<String, Error>> + Send + 'static>(handle: F) -> F {
    handle
}

#[derive(Clone)]
struct Service {
    client: Client,
    issued: Arc<tokio::sync::Mutex<Vec<String>>>,
}

impl Service {
    /// The work borrows from the request and from the service.
    async fn issue(&self, user: &str) -> Result<String, Error> {
        let lock = self.client.lock(format!("coupon:{user}"));
        let by_view = lock
            .acquire()
            .run_with(|hold| async move {
                hold.check()?;
                self.issued.lock().await.push(user.to_owned());
                Ok::<_, Error>(user.to_uppercase())
            })
            .await?;
        lock.acquire().run(async { Ok::<_, Error>(format!("{user}:{by_view}")) }).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_can_borrow_in_a_task_and_in_a_handler() {
    let client = Client::connect("memory:").await.unwrap();
    let service = Service { client, issued: Arc::default() };
    let of_task = service.clone();
    let (request, other) = (String::from("ann"), String::from("bob"));
    let task = tokio::spawn(handler(async move { of_task.issue(&request).await }));
    assert_eq!(task.await.unwrap().unwrap(), "ann:ANN");
    let of_handler = service.clone();
    assert_eq!(handler(async move { of_handler.issue(&other).await }).await.unwrap(), "bob:BOB");
    assert_eq!(*service.issued.lock().await, ["ann", "bob"]);
}

/// An error of one's own that has room for one of the library, and boxed errors.
#[tokio::test]
async fn the_error_of_the_work_is_any_type_that_ours_converts_to() {
    #[derive(Debug)]
    enum OfService {
        SoldOut,
        Lock(Error),
    }
    impl From<Error> for OfService {
        fn from(error: Error) -> Self {
            Self::Lock(error)
        }
    }
    let lock = Client::connect("memory:").await.unwrap().lock("n");
    let sold_out = lock.acquire().run(async { Err::<(), _>(OfService::SoldOut) }).await;
    assert!(matches!(sold_out, Err(OfService::SoldOut)));
    let held = lock.acquire().await.unwrap();
    let busy = lock.acquire().wait(std::time::Duration::ZERO).run(async { Ok::<(), OfService>(()) }).await;
    assert!(matches!(busy, Err(OfService::Lock(error)) if error.is_contended()));
    held.release().await.unwrap();
    let boxed = lock.acquire().run(async {
        let number: u8 = "300".parse()?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(number)
    });
    assert!(boxed.await.unwrap_err().to_string().contains("too large"));
}

/// The loss and the error of the work are there at the same poll.
#[tokio::test]
async fn the_error_of_work_counts_if_the_lock_is_lost_besides() {
    let (client, other) = (
        Client::connect("memory:run-lost").await.unwrap(),
        Client::connect("memory:run-lost").await.unwrap(),
    );
    let own = Error::from(leasehold::Loss::Shutdown);
    let failed = client.lock("n").acquire().run_with(|hold| async move {
        other.lock("n").force_unlock().await.map_err(Error::from)?;
        assert!(!hold.is_held());
        Err::<(), _>(Error::from(leasehold::Loss::Shutdown))
    });
    assert_eq!(failed.await, Err(own));
}

#[tokio::test]
async fn work_runs_under_a_lock_on_a_majority() {
    let mut clients = Vec::new();
    for number in 0..3 {
        clients.push(Client::connect(format!("memory:run-quorum-{number}")).await.unwrap());
    }
    let lock = QuorumLock::new(&clients, "n");
    let done = lock.acquire().run_with(|hold| async move {
        assert!(hold.is_held() && hold.token().is_none() && !hold.remaining().is_zero());
        Ok::<_, Error>(hold)
    });
    let hold = done.await.unwrap();
    assert!(!hold.is_held());
    let lost = lock.acquire().run_with(|hold| {
        let clients = &clients;
        async move {
            for client in &clients[..2] {
                client.lock("n").force_unlock().await?;
            }
            hold.lost().await;
            Ok::<_, Error>(())
        }
    });
    assert!(matches!(lost.await, Err(Error::Lost(_))));
    let blocked = lock.acquire();
    let blocked = std::thread::spawn(move || blocked.run_blocking(|hold| Ok::<_, Error>(hold.is_held())));
    assert_eq!(tokio::task::spawn_blocking(|| blocked.join().unwrap()).await.unwrap(), Ok(true));
}

/// The guard belongs to the closure, so the lock is held as long as that runs, whatever becomes of the task.
#[tokio::test]
async fn blocking_work_in_an_aborted_task_keeps_its_lock_until_it_is_done() {
    let client = Client::connect("memory:run-blocking").await.unwrap();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (end, may_end) = std::sync::mpsc::channel();
    let lock = client.lock("n");
    let task = tokio::spawn(async move {
        let work = tokio::task::spawn_blocking(move || {
            lock.acquire().run_blocking(|_| {
                begun.send(()).unwrap();
                may_end.recv().unwrap();
                Ok::<_, Error>(())
            })
        });
        work.await
    });
    has_begun.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(client.lock("n").is_locked().await.unwrap(), "the work still runs");
    end.send(()).unwrap();
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}
