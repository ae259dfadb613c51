//! Each kind of lock excludes what it should, and admits the rest.

use std::pin::pin;
use std::sync::Arc;

use leasehold::{Client, Error};
use tokio::sync::Barrier;

use crate::{MINUTE, clients, within};

#[leasehold::locked("n", skip_if_busy)]
async fn plain(client: &Client) -> Result<Option<bool>, Error> {
    Ok(Some(client.lock("n").is_locked().await?))
}

#[leasehold::locked("n", kind = plain)]
async fn plain_by_name(client: &Client) -> Result<bool, Error> {
    Ok(client.lock("n").is_locked().await?)
}

#[tokio::test]
async fn own_370_the_body_of_a_function_runs_while_the_lock_is_held() {
    let (client, other) = clients("kinds-plain").await;
    assert_eq!(plain(&client).await, Ok(Some(true)));
    let held = other.lock("n").try_acquire().await.unwrap().expect("the lock is free after the function");
    assert_eq!(plain(&client).await, Ok(None));
    held.release().await.unwrap();
    assert_eq!(plain_by_name(&client).await, Ok(true));
}

/// Two owners inside at once would lose an increment.
#[tokio::test(flavor = "multi_thread")]
async fn functions_that_wait_for_one_lock_run_one_after_the_other() {
    #[leasehold::locked("n")]
    async fn increment(client: &Client, counter: &tokio::sync::Mutex<u32>) -> Result<(), Error> {
        let seen = *counter.lock().await;
        tokio::task::yield_now().await;
        *counter.lock().await = seen + 1;
        Ok(())
    }
    let (client, other) = clients("kinds-turns").await;
    let counter = Arc::new(tokio::sync::Mutex::new(0));
    let turns = (0..200).map(|number| {
        let (client, counter) =
            (if number % 2 == 0 { &client } else { &other }.clone(), Arc::clone(&counter));
        tokio::spawn(async move { increment(&client, &counter).await })
    });
    for turn in turns.collect::<Vec<_>>() {
        within(MINUTE, turn).await.unwrap().unwrap();
    }
    assert_eq!(*counter.lock().await, 200);
}

#[leasehold::locked("n", kind = fair)]
async fn fair(client: &Client) -> Result<usize, Error> {
    Ok(client.fair_lock("n").queue().await?.len())
}

#[tokio::test]
async fn a_function_under_a_fair_lock_is_queued() {
    let (client, other) = clients("kinds-fair").await;
    let held = other.fair_lock("n").acquire().await.unwrap();
    let of_task = client.clone();
    let queued = tokio::spawn(async move { fair(&of_task).await });
    let is_queued = async {
        while other.fair_lock("n").queue().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within(MINUTE, is_queued).await;
    held.release().await.unwrap();
    assert_eq!(within(MINUTE, queued).await.unwrap(), Ok(0));
}

#[leasehold::locked("n", kind = read, skip_if_busy)]
async fn read(client: &Client, others: &Barrier) -> Result<Option<()>, Error> {
    others.wait().await;
    Ok(Some(()))
}

#[leasehold::locked("n", kind = write, skip_if_busy)]
async fn write(client: &Client) -> Result<Option<bool>, Error> {
    Ok(Some(client.rw_lock("n").write().is_locked().await?))
}

#[tokio::test]
async fn readers_run_together_and_a_writer_alone() {
    let (client, other) = clients("kinds-read-write").await;
    let both = Barrier::new(2);
    let readers = async { tokio::join!(read(&client, &both), read(&other, &both)) };
    assert_eq!(within(MINUTE, readers).await, (Ok(Some(())), Ok(Some(()))));

    let reader = other.rw_lock("n").read().acquire().await.unwrap();
    assert_eq!(write(&client).await, Ok(None));
    reader.release().await.unwrap();
    assert_eq!(write(&client).await, Ok(Some(true)));
    let writer = other.rw_lock("n").write().acquire().await.unwrap();
    assert_eq!(within(MINUTE, read(&client, &both)).await, Ok(None));
    writer.release().await.unwrap();
}

#[leasehold::locked("n", kind = fenced, guard = hold)]
async fn fenced(client: &Client) -> Result<Option<u64>, Error> {
    Ok(hold.token())
}

#[tokio::test]
async fn a_fenced_lock_gives_each_call_a_greater_token() {
    let (client, other) = clients("kinds-fenced").await;
    let (first, second) = (fenced(&client).await.unwrap(), fenced(&other).await.unwrap());
    assert!(first.is_some() && second > first, "{first:?}, {second:?}");
}

const PERMITS: u32 = 2;

#[leasehold::locked("n", kind = leased_semaphore(2), lease = "10s", skip_if_busy, guard = hold)]
async fn under_permit(client: &Client, others: &Barrier) -> Result<Option<()>, Error> {
    hold.check()?;
    others.wait().await;
    Ok(Some(()))
}

#[leasehold::locked("m", kind = leased_semaphore(PERMITS - 1))]
async fn under_the_only_permit(client: &Client) -> Result<i64, Error> {
    Ok(client.leased_semaphore("m").available().await?)
}

#[tokio::test]
async fn as_many_functions_as_there_are_permits_run_at_once() {
    let (client, other) = clients("kinds-permits").await;
    let three = Barrier::new(3);
    {
        let (mut one, mut two) = (pin!(under_permit(&client, &three)), pin!(under_permit(&other, &three)));
        let are_inside = async {
            while client.leased_semaphore("n").acquired().await.unwrap() < 2 {
                tokio::select! {
                    biased;
                    _ = &mut one => panic!("it waits for a third"),
                    _ = &mut two => panic!("it waits for a third"),
                    () = tokio::task::yield_now() => {}
                }
            }
        };
        within(MINUTE, are_inside).await;
        assert_eq!(within(MINUTE, under_permit(&client, &three)).await, Ok(None));
    }
    assert_eq!(within(MINUTE, under_the_only_permit(&client)).await, Ok(0));
}

#[test]
fn a_plain_function_runs_under_the_lock_on_its_own_thread() {
    #[leasehold::locked("n", guard = hold)]
    fn blocking(client: &Client) -> Result<(bool, bool), Error> {
        Ok((hold.is_held(), client.lock("n").is_locked().block()?))
    }
    #[leasehold::locked("n", kind = leased_semaphore(1), skip_if_busy)]
    fn blocking_if_free(client: &Client) -> Result<Option<u8>, Error> {
        Ok(Some(1))
    }
    let client = Client::connect("memory:kinds-blocking").block().unwrap();
    assert_eq!(blocking(&client), Ok((true, true)));
    assert!(!client.lock("n").is_locked().block().unwrap());
    assert_eq!(blocking_if_free(&client), Ok(Some(1)));
    let held = client.leased_semaphore("n").acquire(1).block().unwrap();
    assert_eq!(blocking_if_free(&client), Ok(None));
    held.release().block().unwrap();
}
