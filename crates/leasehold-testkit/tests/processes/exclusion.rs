//! Mutual exclusion across processes, some of which are killed.

use std::env;
use std::time::Duration;

use leasehold::{Client, Lock, ReleaseError};
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::support::{Dice, Running, number, part, server_of_part};

const PROCESSES: usize = 8;
/// These are killed and restarted repeatedly.
const MORTAL: usize = 2;
const TASKS: usize = 4;
/// The lock of a killed holder is free after this.
const WATCHDOG: Duration = Duration::from_millis(500);
const NAME: &str = "one name";
const TURNS: &str = "LEASEHOLD_TURNS";
const SEAT: &str = "LEASEHOLD_SEAT";

/// The second half of a turn. KEYS: value, inside, log, turns. ARGV: the value that was read, the owner that read it, its
/// seat.
///
/// It is one step, so that a process that is killed has written and logged, or neither. It detects whether another owner was
/// inside since the value was read; if so, a plain write would have lost an update.
const WRITE: &str = r"
    if (redis.call('get', KEYS[1]) or '0') ~= ARGV[1] or redis.call('get', KEYS[2]) ~= ARGV[2] then
        return 'not alone'
    end
    local value = redis.call('incr', KEYS[1])
    redis.call('rpush', KEYS[3], value)
    redis.call('hincrby', KEYS[4], ARGV[3], 1)
    return 'written'
";

#[test]
fn child_process_that_contends_for_the_lock() {
    let Some(port) = server_of_part() else { return };
    let seat = env::var(SEAT).unwrap();
    let turns = number(TURNS, 0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(format!("redis://127.0.0.1:{port}"))
            .watchdog(WATCHDOG)
            .response_timeout(Duration::from_secs(10))
            .await
            .unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| tokio::spawn(take_turns(client.lock(NAME), port, seat.clone(), turns)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

async fn take_turns(lock: Lock, port: u16, seat: String, turns: u64) {
    let mut server = Connection::open(port).expect("the server listens");
    let mut call = |command: &[&str]| server.call(command).expect("the server replies");
    let mut failures = 0;
    for turn in 0_u64.. {
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            // If this process did not run for longer than a lease, the reply arrived too late.
            Err(error) => {
                failures += 1;
                assert!(error.is_unavailable() && failures < 10, "{error}");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let me = guard.owner().to_string();
        call(&["SET", "inside", &me]);
        let seen = call(&["GET", "value"]).as_str().unwrap_or("0").to_owned();
        if seen.parse::<u64>().expect("a number") >= turns {
            return;
        }
        tokio::task::yield_now().await;
        let written = call(&["EVAL", WRITE, "4", "value", "inside", "log", "turns", &seen, &me, &seat]);
        if written != "written" {
            // A guard that has detected its loss is no violation.
            let list = if guard.is_held() { "violations" } else { "told" };
            call(&["RPUSH", list, &format!("{me} after {seen}: {written:?}")]);
        }
        // Both ways to release.
        if turn % 2 == 0 {
            drop(guard);
        } else if let Err(error) = guard.release().await {
            assert!(matches!(error, ReleaseError::NotHeld { .. }), "{error}");
        }
    }
}

#[test]
fn hd_17_processes_exclude_each_other_while_some_are_killed() {
    let turns = number(TURNS, 2_500);
    let seed = number("LEASEHOLD_SEED", 1);
    println!("exclusion: seed {seed}, {turns} turns");
    let mut dice = Dice::new(seed);
    let server = Server::start(Flavour::Redis);
    let start = |seat: usize| {
        let mut command = part("exclusion::child_process_that_contends_for_the_lock", &server);
        Running::start(command.env(TURNS, turns.to_string()).env(SEAT, seat.to_string()))
    };
    let begun = Instant::now();
    let mut contenders: Vec<_> = (0..PROCESSES).map(start).collect();

    let mut connection = server.connect();
    let mut text = |command: &[&str]| connection.call(command).unwrap();
    let (mut kills, mut killed_holding) = (0, 0);
    let mut progress = (0, Instant::now());
    loop {
        std::thread::sleep(dice.between(Duration::from_millis(200), Duration::from_millis(1500)));
        let value = text(&["GET", "value"]).as_str().map_or(0, |value| value.parse().unwrap());
        if value >= turns {
            break;
        }
        if value > progress.0 {
            progress = (value, Instant::now());
        }
        assert!(progress.1.elapsed() < Duration::from_secs(20), "all owners wait, at {value}");
        let victim = dice.index(MORTAL);
        contenders[victim].kill();
        kills += 1;
        // No other owner can hold the lock during the dead one's lease: check whether it held the lock.
        let inside = text(&["HKEYS", NAME]);
        std::thread::sleep(Duration::from_millis(20));
        killed_holding += u32::from(!inside.elements().is_empty() && inside == text(&["HKEYS", NAME]));
        contenders[victim] = start(victim);
    }
    let took = begun.elapsed();

    // Every process sees that all turns are taken, and ends.
    let limit = Instant::now() + Duration::from_secs(20);
    for (seat, contender) in contenders.iter_mut().enumerate() {
        let status = loop {
            if let Some(status) = contender.ended() {
                break status;
            }
            assert!(Instant::now() < limit, "contender {seat} does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "contender {seat} ended with {status}");
    }

    let violations = text(&["LRANGE", "violations", "0", "-1"]);
    assert!(violations.elements().is_empty(), "two owners held the lock at once: {violations:?}");
    let log = text(&["LRANGE", "log", "0", "-1"]);
    let log: Vec<u64> = log.elements().iter().map(|value| value.as_str().unwrap().parse().unwrap()).collect();
    assert!(log.iter().copied().eq(1..=turns), "a value is missing or there twice: {log:?}");
    let by_seat: Vec<_> = (0..PROCESSES).map(|seat| text(&["HGET", "turns", &seat.to_string()])).collect();
    assert!(by_seat[MORTAL..].iter().all(|turns| turns.as_str().is_some()), "an owner starved: {by_seat:?}");
    let told = text(&["LLEN", "told"]);
    println!(
        "exclusion: {turns} turns in {took:.1?}, {kills} kills, about {killed_holding} of holders, \
         {told:?} told of a loss; turns by process: {by_seat:?}"
    );
}
