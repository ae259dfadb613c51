//! A lock that is lost while the function runs.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::{Client, Error, Loss};
use tokio::sync::Notify;

use crate::{MINUTE, clients, within};

struct SetsAtDrop(Arc<AtomicBool>);

impl Drop for SetsAtDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[leasehold::locked("n")]
async fn endless(client: &Client, begun: &Notify, at_drop: SetsAtDrop) -> Result<(), Error> {
    begun.notify_one();
    pending::<()>().await;
    drop(at_drop);
    Ok(())
}

#[tokio::test]
async fn own_372_the_body_of_an_async_function_is_dropped_when_the_lock_is_lost() {
    let (client, other) = clients("loss-async").await;
    let (begun, dropped) = (Notify::new(), Arc::new(AtomicBool::new(false)));
    let lose = async {
        begun.notified().await;
        assert!(!dropped.load(Ordering::SeqCst));
        assert!(other.lock("n").force_unlock().await.unwrap());
    };
    let work = endless(&client, &begun, SetsAtDrop(Arc::clone(&dropped)));
    let (done, ()) = within(MINUTE, async { tokio::join!(work, lose) }).await;
    assert!(matches!(done, Err(Error::Lost(lost)) if lost.loss == Loss::ForceUnlocked));
    assert!(dropped.load(Ordering::SeqCst));
}

#[test]
fn own_373_the_body_of_a_plain_function_runs_on_and_the_loss_is_returned_after_it() {
    #[leasehold::locked("n", guard = hold)]
    fn runs_on(client: &Client, other: &Client, done: &AtomicBool) -> Result<(), Error> {
        assert!(hold.is_held());
        assert!(other.lock("n").force_unlock().block()?);
        assert!(!hold.is_held());
        done.store(true, Ordering::SeqCst);
        Ok(())
    }
    let client = Client::connect("memory:loss-plain").block().unwrap();
    let other = Client::connect("memory:loss-plain").block().unwrap();
    let done = AtomicBool::new(false);
    let result = runs_on(&client, &other, &done);
    assert!(matches!(result, Err(Error::Lost(lost)) if lost.loss == Loss::ForceUnlocked));
    assert!(done.load(Ordering::SeqCst));
}
