//! Dropping a future at every poll: no file stays locked, no permit is lost, and no other waiter is stranded.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use leasehold::{AcquireError, Client};
use leasehold_testkit::bench::{Backend as _, Files};
use leasehold_testkit::cut::{Cut, Ended, cut_off, everywhere};
use leasehold_testkit::primitive::Primitive;
use tokio::time::{Instant, sleep, timeout};

const NAME: &str = "n";
/// Longer than anything takes here on a busy machine.
const LONG: Duration = Duration::from_secs(10);

/// What is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Primitive(Primitive),
    Fenced,
    Read,
    Write,
    /// The write half, which keeps new readers out while it waits.
    PreferredWrite,
}

const ALL: &[Of] = &[
    Of::Primitive(Primitive::Plain),
    Of::Primitive(Primitive::Group),
    Of::Primitive(Primitive::Semaphore),
    Of::Primitive(Primitive::Leased),
    Of::Fenced,
    Of::Read,
    Of::Write,
    Of::PreferredWrite,
];

/// Any guard.
type Held = Box<dyn Any + Send>;
type Acquiring = Pin<Box<dyn Future<Output = Result<Held, AcquireError>> + Send>>;

fn boxed<G: Any + Send, F>(
    acquire: impl IntoFuture<Output = Result<G, AcquireError>, IntoFuture = F>,
) -> Acquiring
where
    F: Future<Output = Result<G, AcquireError>> + Send + 'static,
{
    let acquire = acquire.into_future();
    Box::pin(async { Ok(Box::new(acquire.await?) as Held) })
}

impl Of {
    async fn create(self, client: &Client) {
        if let Self::Primitive(of) = self {
            of.create(client, NAME).await;
        }
    }

    fn acquire(self, client: &Client) -> Acquiring {
        let rw = client.rw_lock(NAME);
        match self {
            Self::Primitive(of) => boxed(of.acquire(client, NAME, None)),
            Self::Fenced => boxed(client.fenced_lock(NAME).acquire()),
            Self::Read => boxed(rw.read().acquire()),
            Self::Write => boxed(rw.write().acquire()),
            Self::PreferredWrite => boxed(rw.prefer_writers().write().acquire()),
        }
    }

    fn acquire_within(self, client: &Client, wait: Duration) -> Acquiring {
        let rw = client.rw_lock(NAME);
        match self {
            Self::Primitive(of) => boxed(of.acquire(client, NAME, Some(wait))),
            Self::Fenced => boxed(client.fenced_lock(NAME).acquire().wait(wait)),
            Self::Read => boxed(rw.read().acquire().wait(wait)),
            Self::Write => boxed(rw.write().acquire().wait(wait)),
            Self::PreferredWrite => boxed(rw.prefer_writers().write().acquire().wait(wait)),
        }
    }

    /// One that excludes it.
    fn other(self) -> Self {
        if self == Self::Read { Self::Write } else { self }
    }
}

/// A directory and two clients: the one whose futures are dropped, and another.
struct Stage {
    of: Of,
    files: Files,
    client: Client,
    other: Client,
}

impl Stage {
    async fn new(of: Of) -> Self {
        let files = Files::new();
        let client = Client::connect(files.url()).await.unwrap();
        let other = Client::connect(files.url()).await.unwrap();
        of.create(&other).await;
        Self { of, files, client, other }
    }

    /// Nothing is locked, all permits are free, and both clients acquire it at once.
    async fn nothing_is_left(&self, cut: Cut) {
        let what = format!("{:?}, {cut:?}", self.of);
        let begun = Instant::now();
        while let Some(left) = self.left().await {
            assert!(begun.elapsed() < LONG, "left behind after {LONG:?}: {left}: {what}");
            sleep(Duration::from_millis(1)).await;
        }
        for client in [&self.client, &self.other] {
            let held = soon(&format!("it is free: {what}"), self.of.other().acquire(client)).await.unwrap();
            drop(held);
        }
    }

    async fn left(&self) -> Option<String> {
        match self.of {
            Of::Primitive(Primitive::Semaphore) => {
                let free = self.other.semaphore(NAME).available().await.unwrap();
                (free != 3).then(|| format!("{free} permits are free"))
            }
            Of::Primitive(Primitive::Leased) => {
                let free = self.other.leased_semaphore(NAME).available().await.unwrap();
                (free != 3).then(|| format!("{free} permits are free"))
            }
            _ => {
                let left = self.files.left_behind(NAME).await.unwrap();
                (left != 0).then(|| format!("{left} files are locked or have content"))
            }
        }
    }
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
}

/// The same directory for all cuts of one primitive, so that what one has left would disturb the next.
async fn with_each<F: Future<Output = bool>>(case: impl Fn(std::sync::Arc<Stage>, Cut) -> F) {
    for of in ALL {
        let stage = std::sync::Arc::new(Stage::new(*of).await);
        everywhere(&[*of], |_, cut| case(std::sync::Arc::clone(&stage), cut)).await;
        for moment in 0..10 {
            case(std::sync::Arc::clone(&stage), Cut::At(Duration::from_micros(150) * moment)).await;
        }
    }
}

#[tokio::test]
async fn a_dropped_acquire_of_a_free_file_leaves_nothing_behind() {
    with_each(|stage, cut| async move {
        let ended = soon("the acquire ends", cut_off(cut, stage.of.acquire(&stage.client))).await;
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        stage.nothing_is_left(cut).await;
        was_cut
    })
    .await;
}

#[tokio::test]
async fn a_dropped_wait_for_a_held_file_leaves_nothing_behind() {
    with_each(|stage, cut| async move {
        let held = stage.of.other().acquire(&stage.other).await.unwrap();
        let wait = Duration::from_millis(3);
        let ended = soon("the wait ends", cut_off(cut, stage.of.acquire_within(&stage.client, wait))).await;
        let was_cut = matches!(ended, Ended::Cut);
        assert!(!matches!(ended, Ended::Done(Ok(_))), "{:?}, {cut:?}: it is held", stage.of);
        drop((ended, held));
        stage.nothing_is_left(cut).await;
        was_cut
    })
    .await;
}

/// A holder, the waiter that is cut off, one behind it at the same client, and one at another client.
#[tokio::test]
async fn a_dropped_waiter_for_a_file_strands_no_other_waiter() {
    with_each(|stage, cut| async move {
        let what = format!("{:?}, {cut:?}", stage.of);
        let third = Client::connect(stage.files.url()).await.unwrap();
        let held = stage.of.other().acquire(&stage.other).await.unwrap();
        let first = tokio::spawn(cut_off(cut, stage.of.acquire(&stage.client)));
        tokio::task::yield_now().await;
        let others = [&stage.client, &third].map(|client| {
            let acquire = stage.of.acquire(client);
            tokio::spawn(async move { acquire.await.map(drop) })
        });
        tokio::task::yield_now().await;
        drop(held);
        let ended = soon(&format!("the first waiter ends: {what}"), first).await.unwrap();
        let was_cut = matches!(ended, Ended::Cut);
        drop(ended);
        for other in others {
            soon(&format!("another waiter gets the lock: {what}"), other).await.unwrap().unwrap();
        }
        drop(third);
        stage.nothing_is_left(cut).await;
        was_cut
    })
    .await;
}

/// A lock, a group and permits: the release is carried out, wherever it is dropped.
#[tokio::test]
async fn a_dropped_release_of_a_file_is_carried_out() {
    for of in [Primitive::Plain, Primitive::Group, Primitive::Semaphore, Primitive::Leased] {
        let stage = std::sync::Arc::new(Stage::new(Of::Primitive(of)).await);
        everywhere(&[of], |of, cut| {
            let stage = std::sync::Arc::clone(&stage);
            async move {
                let held = of.acquire(&stage.client, NAME, None).await.unwrap();
                let ended = soon("the release ends", cut_off(cut, held.release())).await;
                let was_cut = matches!(ended, Ended::Cut);
                stage.nothing_is_left(cut).await;
                was_cut
            }
        })
        .await;
    }
}
