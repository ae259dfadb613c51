//! The requests of a diagnosis.

use std::time::{SystemTime, UNIX_EPOCH};

use super::commands::unexpected;
use super::net::{Call, Value};
use crate::engine::probe::{Probe, Probed};
use crate::error::ServerError;

/// How many keys the server looks at for one request: less than a millisecond.
const STEP: u32 = 500;

/// One step, so that a diagnosis that is dropped leaves nothing.
const MINT: &str = "redis.call('incr', KEYS[1]) return redis.call('del', KEYS[1])";

pub(super) fn call(probe: &Probe) -> Call {
    match probe {
        Probe::Hello => Call::command("HELLO"),
        Probe::Info => Call::command("INFO"),
        Probe::Setting(name) => Call::command("CONFIG").arg("GET").arg(name),
        Probe::ConnectionId => Call::command("CLIENT").arg("ID"),
        Probe::ClockOffset => Call::command("TIME"),
        Probe::TokenKeys(cursor) => {
            Call::command("SCAN").arg(cursor).arg("MATCH").arg("redisson_lock_token:*").arg("COUNT").arg(STEP)
        }
        Probe::Mint(key) => {
            Call::command("EVAL").arg(MINT).arg(1).arg(format_args!("redisson_lock_token:{{{key}}}"))
        }
    }
}

/// Called where the reply is read, so that the clock is that of its arrival.
pub(super) fn reply(probe: &Probe, reply: &Value) -> Result<Probed, ServerError> {
    let known = match (probe, reply) {
        (Probe::Info, Value::Text(text)) => Some(Probed::Fields(lines(&String::from_utf8_lossy(text)))),
        (Probe::Hello | Probe::Setting(_), Value::Array(parts)) => Some(Probed::Fields(pairs(parts))),
        (Probe::ConnectionId | Probe::Mint(_), Value::Int(number)) => Some(Probed::Number(*number)),
        (Probe::ClockOffset, Value::Array(parts)) => offset(parts).map(Probed::Number),
        (Probe::TokenKeys(_), Value::Array(parts)) => match parts.as_slice() {
            [cursor, Value::Array(keys)] => {
                text(cursor).parse().ok().map(|cursor| Probed::Found(cursor, keys.len()))
            }
            _ => None,
        },
        _ => None,
    };
    known.ok_or_else(|| unexpected(reply))
}

/// The lines `name:value`.
fn lines(info: &str) -> Vec<(String, String)> {
    let pairs = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Names and values alternate.
fn pairs(parts: &[Value]) -> Vec<(String, String)> {
    parts.as_chunks().0.iter().map(|[name, value]| (text(name), text(value))).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// The milliseconds by which a clock of seconds and microseconds is ahead.
fn offset(parts: &[Value]) -> Option<i64> {
    let [seconds, micros] = parts else { return None };
    let theirs = text(seconds).parse::<i64>().ok()? * 1000 + text(micros).parse::<i64>().ok()? / 1000;
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(theirs - i64::try_from(ours).ok()?)
}
