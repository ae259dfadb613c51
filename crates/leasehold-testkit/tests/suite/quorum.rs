//! The loss of a lock on several engines is one event, with one cause, for good.

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold::{Client, ExtendError, Loss, QuorumGuard, QuorumLock, ReleaseError};
use tokio::time::{advance, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const WATCHDOG: Duration = Duration::from_secs(30);

/// Three engines, each with a client that holds and one that contends.
struct Stage {
    holders: Vec<Client>,
    others: Vec<Client>,
}

impl Stage {
    async fn new(test: &str) -> Self {
        let (mut holders, mut others) = (Vec::new(), Vec::new());
        for number in 0..3 {
            for clients in [&mut holders, &mut others] {
                let connect = Client::connect(format!("memory:quorum-{test}-{number}"));
                clients.push(connect.watchdog(WATCHDOG).await.unwrap());
            }
        }
        Self { holders, others }
    }

    async fn guard(&self) -> QuorumGuard {
        let guard = QuorumLock::new(&self.holders, "n").acquire().await.unwrap();
        assert_eq!(guard.votes(), 3);
        guard
    }

    async fn force(&self, number: usize) {
        assert!(self.others[number].lock("n").force_unlock().await.unwrap());
    }

    async fn steal(&self, number: usize) {
        let stolen = self.others[number].lock("n").acquire().steal().await.unwrap();
        stolen.release().await.unwrap();
    }

    async fn locked(&self) -> usize {
        let mut locked = 0;
        for other in &self.others {
            locked += usize::from(other.lock("n").is_locked().await.unwrap());
        }
        locked
    }
}

/// Makes every query of a lost guard.
async fn is_lost(guard: &QuorumGuard, cause: Loss) {
    assert!(!guard.is_held());
    assert_eq!((guard.remaining(), guard.votes()), (Duration::ZERO, 0));
    assert_eq!(timeout(SECOND, guard.lost()).await, Ok(cause));
    assert_eq!(guard.extend(SECOND).await.map_err(|error| error.loss()), Err(Some(cause)));
    assert_eq!(guard.run(async {}).await.map_err(|lost| lost.loss), Err(cause));
}

#[tokio::test(start_paused = true)]
async fn a_lost_quorum_guard_reports_its_loss_forever_and_by_every_query() {
    let stage = Stage::new("for-ever").await;
    let guard = stage.guard().await;
    stage.force(0).await;
    assert!(guard.is_held() && guard.votes() == 2);
    stage.force(1).await;
    is_lost(&guard, Loss::ForceUnlocked).await;
    assert_eq!(stage.locked().await, 0, "what was still held is given back with the loss");
    for _ in 0..5 {
        // Time enough to acquire the missing votes again, which no contender prevents.
        sleep(WATCHDOG / 2).await;
        is_lost(&guard, Loss::ForceUnlocked).await;
        assert_eq!(stage.locked().await, 0);
    }
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::ForceUnlocked, .. })));
    assert!(QuorumLock::new(&stage.others, "n").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_quorum_loss_is_that_of_the_member_that_broke_the_majority() {
    let stage = Stage::new("cause").await;
    let guard = stage.guard().await;
    stage.steal(0).await;
    assert!(guard.is_held());
    stage.force(1).await;
    is_lost(&guard, Loss::ForceUnlocked).await;
    drop(guard);

    let guard = stage.guard().await;
    stage.force(2).await;
    assert!(guard.is_held());
    stage.steal(0).await;
    is_lost(&guard, Loss::TakenOver).await;
    drop(guard);

    let guard = QuorumLock::new(&stage.holders, "n").acquire().lease(SECOND).await.unwrap();
    advance(SECOND).await;
    is_lost(&guard, Loss::Expired).await;
    drop(guard);

    let guard = stage.guard().await;
    for holder in &stage.holders[..2] {
        holder.shutdown(Duration::ZERO).await;
    }
    is_lost(&guard, Loss::Shutdown).await;
}

#[tokio::test(start_paused = true)]
async fn listeners_added_before_and_after_a_quorum_loss_are_notified_of_the_same_cause() {
    let stage = Stage::new("listeners").await;
    let guard = stage.guard().await;
    let before = tokio::spawn(guard.lost());
    tokio::task::yield_now().await;
    stage.force(0).await;
    assert_eq!(guard.votes(), 2);
    stage.steal(1).await;
    assert_eq!(timeout(SECOND, before).await.unwrap().unwrap(), Loss::TakenOver);
    is_lost(&guard, Loss::TakenOver).await;
}

/// A missing member is acquired again, as long as the others are held.
#[tokio::test(start_paused = true)]
async fn members_can_be_lost_in_turn_if_each_is_acquired_again_before_the_next_loss() {
    let stage = Stage::new("in-turn").await;
    let guard = stage.guard().await;
    for round in 0..9 {
        stage.force(round % 3).await;
        assert_eq!(guard.votes(), 2);
        sleep(WATCHDOG).await;
        assert!(guard.is_held() && guard.votes() == 3, "round {round}");
    }
    guard.release().await.unwrap();
    assert_eq!(stage.locked().await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_remaining_time_of_a_quorum_guard_is_that_of_a_majority() {
    let mut clients = Vec::new();
    for watchdog in [10, 30, 20] {
        clients.push(Client::connect("memory:").watchdog(SECOND * watchdog).await.unwrap());
    }
    let guard = QuorumLock::new(&clients, "n").acquire().await.unwrap();
    assert_eq!(guard.remaining(), SECOND * 20);
    clients[1].lock("n").force_unlock().await.unwrap();
    assert_eq!(guard.remaining(), SECOND * 10);
}

#[tokio::test(start_paused = true)]
async fn a_released_quorum_guard_is_not_reported_as_lost() {
    let stage = Stage::new("released").await;
    let guard = stage.guard().await;
    let (lost, extend) = (guard.lost(), guard.extend(SECOND));
    guard.release().await.unwrap();
    assert!(timeout(WATCHDOG * 4, lost).await.is_err());
    assert!(matches!(extend.await, Err(ExtendError::NotHeld { .. })));
    let free = timeout(SECOND, QuorumLock::new(&stage.others, "n").acquire().into_future()).await;
    drop(free.unwrap().unwrap());
}
