//! Many locks in one process: held and renewed, or waited for.

use std::thread;
use std::time::{Duration, Instant};

use bench_drivers::unix_nanos;
use leasehold_servers::resp::{Connection, Value};

use crate::driver::Driver;
use crate::info::Info;
use crate::metrics::Metrics;
use crate::plan::{Contender, Family, LEASE};
use crate::runner::{PATIENCE, Runner};

/// How many keys one request of the harness covers.
const CHUNK: usize = 500;

/// Makes a driver hold many locks, and watches their remaining time.
pub(crate) fn hold(
    runner: &Runner,
    contender: &Contender,
    prefix: &str,
    count: usize,
    connection: &mut Connection,
) -> Result<Metrics, String> {
    let mut words = runner.words(contender, "hold", prefix, count);
    words.push(format!("lease_ms={}", LEASE.as_millis()));
    let mut driver = Driver::start(&runner.places, contender, &words)?;
    driver.expect("ready", PATIENCE)?;
    let empty = driver.memory();
    driver.say("go")?;
    driver.expect("held", PATIENCE)?;
    let (before, cpu, began) = (Info::ask(connection)?, driver.fine_cpu(), Instant::now());
    let period = LEASE / 3;
    let mut least = LEASE.as_millis() as f64;
    let mut random = 1usize;
    while began.elapsed() < period * runner.periods {
        for _ in 0..50 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("{}{prefix}:{}", contender.key_prefix, (random >> 33) % count);
            connection.send(&["PTTL", &key]).map_err(|error| error.to_string())?;
        }
        for _ in 0..50 {
            let left = connection.receive().map_err(|error| error.to_string())?;
            least = least.min(integer(&left).max(0.0));
        }
        thread::sleep(Duration::from_millis(10));
    }
    let watched = began.elapsed();
    let after = Info::ask(connection)?;
    let (cpu, full) = (driver.fine_cpu() - cpu, driver.memory());
    driver.say("end")?;
    driver.outcome(PATIENCE)?;
    let sent = after.sent_since(&before, contender.plain);
    let periods = watched.as_secs_f64() / period.as_secs_f64();
    let each = 1.0 / count as f64;
    Ok(Metrics::from([
        ("requests_per_second", sent / watched.as_secs_f64()),
        ("requests_per_100", sent / periods * 100.0 * each),
        ("client_cpu", cpu / periods * 1e6 * each),
        ("server_cpu", (after.cpu - before.cpu) / periods * 1e6 * each),
        ("memory", (full - empty) * each),
        ("least_left", least / LEASE.as_millis() as f64),
        ("connections", after.connections - 1.0),
    ]))
}

/// Makes a driver wait for many locks that the harness holds, and releases all of them at once.
pub(crate) fn wake(
    runner: &Runner,
    contender: &Contender,
    prefix: &str,
    count: usize,
    connection: &mut Connection,
) -> Result<Metrics, String> {
    let key = |name: usize| format!("{}{prefix}:{name}", contender.key_prefix);
    let mine = match contender.family {
        Family::Hash => "redis.call('hset', key, 'another-owner:1', 1) redis.call('pexpire', key, 600000)",
        _ => "redis.call('set', key, 'another-owner', 'PX', 600000)",
    };
    let keys: Vec<_> = (0..count).map(key).collect();
    let take = format!("for _, key in ipairs(KEYS) do {mine} end");
    for keys in keys.chunks(CHUNK) {
        script(connection, &take, keys, &[])?;
    }
    let mut driver =
        Driver::start(&runner.places, contender, &runner.words(contender, "wake", prefix, count))?;
    driver.expect("ready", PATIENCE)?;
    let empty = driver.memory();
    driver.say("go")?;
    driver.expect("held", PATIENCE)?;
    settle(connection, contender, prefix, count)?;
    let (full, before) = (driver.memory(), Info::ask(connection)?);
    let channels: Vec<_> = (0..count)
        .map(|name| {
            contender.channel.map_or(String::new(), |channel| format!("{channel}{{{prefix}:{name}}}"))
        })
        .collect();
    let give = "for i, key in ipairs(KEYS) do redis.call('del', key)
        if ARGV[i] ~= '' then redis.call('publish', ARGV[i], '0') end end";
    let released = unix_nanos();
    driver.say("end")?;
    for (keys, channels) in keys.chunks(CHUNK).zip(channels.chunks(CHUNK)) {
        script(connection, give, keys, channels)?;
    }
    let outcome = driver.outcome(PATIENCE)?;
    if outcome.grants != count as u64 {
        return Err(format!("only {} of {count} were granted", outcome.grants));
    }
    Ok(Metrics::from([
        ("memory", (full - empty) / count as f64),
        ("elapsed", outcome.last_ns.saturating_sub(released) as f64 / 1e3),
        ("connections", before.connections - 1.0),
    ]))
}

/// Waits until all waiters are subscribed, where they subscribe, and the server is idle; or for a while where waiters poll.
fn settle(
    connection: &mut Connection,
    contender: &Contender,
    prefix: &str,
    count: usize,
) -> Result<(), String> {
    if let Some(channel) = contender.channel {
        let pattern = format!("{channel}{{{prefix}:*");
        let began = Instant::now();
        loop {
            let reply =
                connection.call(&["PUBSUB", "CHANNELS", &pattern]).map_err(|error| error.to_string())?;
            let listening = reply.elements().len();
            if listening >= count {
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("only {listening} of {count} waiters are subscribed"));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
    let mut still = 0;
    let mut last = Info::ask(connection)?;
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(100));
        let now = Info::ask(connection)?;
        // The few are the harness' own requests.
        still = if now.commands - last.commands < 10.0 { still + 1 } else { 0 };
        if still == 3 {
            break;
        }
        last = now;
    }
    Ok(())
}

fn script(connection: &mut Connection, text: &str, keys: &[String], args: &[String]) -> Result<(), String> {
    let count = keys.len().to_string();
    let mut command = vec!["EVAL", text, &count];
    command.extend(keys.iter().chain(args).map(String::as_str));
    let reply = connection.call(&command).map_err(|error| error.to_string())?;
    if let Value::Error(error) = reply { Err(error) } else { Ok(()) }
}

fn integer(value: &Value) -> f64 {
    match value {
        Value::Int(number) => *number as f64,
        _ => 0.0,
    }
}
