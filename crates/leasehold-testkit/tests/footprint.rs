//! Short-lived names leave nothing behind: alone in its process, because it measures the process.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use leasehold::Client;

const MILLION: usize = 1_000_000;

/// Resident memory of this process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this test reads Linux's /proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is there");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("VmRSS is a number")
}

async fn take_and_release(client: &Client, names: std::ops::Range<usize>) {
    for number in names {
        let lock = client.lock(format!("order:{number}"));
        let guard = lock.acquire().await.unwrap();
        // Every kind of trace a name can leave: a waiter, a named owner, a lost race.
        match number % 4 {
            0 => assert!(lock.try_acquire().await.unwrap().is_none()),
            1 => assert!(lock.acquire().wait(std::time::Duration::from_nanos(1)).await.is_err()),
            2 => drop(lock.acquire().as_owner(guard.owner()).await.unwrap()),
            _ => {}
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_second_million_of_names_adds_less_than_two_percent_of_memory() {
    let client = Client::connect("memory:").await.unwrap();
    take_and_release(&client, 0..MILLION).await;
    let first = resident();
    take_and_release(&client, MILLION..2 * MILLION).await;
    let second = resident();
    println!("{first} KiB after a million names, {second} KiB after two");
    assert!(second * 100 < first * 102, "{first} KiB, then {second} KiB");
}
