//! Several locks as one, across processes whose sets overlap: no deadlock, and no partial holds.

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::Instant;

use crate::support::{Dice, Running, number, part, server_of_part};

const PROCESSES: usize = 6;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const SECONDS: &str = "LEASEHOLD_SECONDS";
const SEAT: &str = "LEASEHOLD_SEAT";
/// Where it is set, the names are values of one group.
const GROUP: &str = "LEASEHOLD_GROUP";

/// Acquires two or three names at random, adds one to the value of each by a read and a write, and logs what it wrote.
#[test]
fn child_process_that_increments_values_under_several_locks() {
    let Some(port) = server_of_part() else { return };
    let seconds = number(SECONDS, 0);
    let mut dice = Dice::new(number(SEAT, 0) + 1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(format!("redis://127.0.0.1:{port}")).await.unwrap();
        let mut server = Connection::open(port).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            let mut names = NAMES.to_vec();
            while names.len() > 2 + dice.index(2) {
                names.remove(dice.index(names.len()));
            }
            // Specified in any order.
            let first = dice.index(names.len());
            names.rotate_left(first);
            if let Ok(group) = std::env::var(GROUP) {
                let guard = client.group_lock(group, &names).acquire().await.unwrap();
                add_to_all(&mut server, &names).await;
                guard.release().await.unwrap();
            } else {
                let guard = client.multi_lock(&names).acquire().await.unwrap();
                add_to_all(&mut server, &names).await;
                guard.release().await.unwrap();
            }
        }
    });
}

async fn add_to_all(server: &mut Connection, names: &[&str]) {
    let mut call = |command: &[&str]| server.call(command).unwrap();
    let values: Vec<u64> = names
        .iter()
        .map(|name| call(&["HGET", "values", name]).as_str().unwrap_or("0").parse().unwrap())
        .collect();
    tokio::task::yield_now().await;
    for (name, value) in names.iter().zip(&values) {
        let value = (value + 1).to_string();
        call(&["HSET", "values", name, &value]);
        call(&["RPUSH", &format!("log:{name}"), &value]);
    }
    call(&["INCR", "turns"]);
}

#[test]
fn processes_that_want_some_of_the_same_locks_do_not_deadlock() {
    all_go_on(None);
}

#[test]
fn processes_that_want_some_values_of_one_group_do_not_deadlock() {
    all_go_on(Some("group"));
}

fn all_go_on(group: Option<&str>) {
    let seconds = number(SECONDS, 5);
    let server = Server::start(Flavour::Redis);
    let begun = Instant::now();
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|seat| {
            let mut command =
                part("several::child_process_that_increments_values_under_several_locks", &server);
            command.envs(group.map(|group| (GROUP, group)));
            Running::start(command.env(SECONDS, seconds.to_string()).env(SEAT, seat.to_string()))
        })
        .collect();
    while let Some(waiting) = processes.iter_mut().map(Running::ended).find(Option::is_none) {
        assert!(
            waiting.is_none() && begun.elapsed() < Duration::from_secs(seconds + 30),
            "they wait in a circle"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(processes.iter_mut().all(|process| process.ended().is_some_and(|status| status.success())));
    let mut written = 0;
    for name in NAMES {
        let log = server.cli(&["LRANGE", &format!("log:{name}"), "0", "-1"]);
        let log: Vec<u64> =
            log.elements().iter().map(|value| value.as_str().unwrap().parse().unwrap()).collect();
        assert!(log.iter().copied().eq(1..=log.len() as u64), "an update of {name} is lost: {log:?}");
        written += log.len();
    }
    let turns = server.cli(&["GET", "turns"]);
    let what = group.unwrap_or("names");
    println!("several: {} turns with {written} of {what} in {seconds} s", turns.as_str().unwrap());
    assert!(written > 100, "hardly anything happened");
    let left = server.cli(&["EXISTS", "a", "b", "c", "d", "e", "group"]);
    assert_eq!(left, 0);
}
