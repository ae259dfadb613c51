//! The server's own statistics.
//!
//! *Commands sent.* `INFO commandstats` also counts the commands that scripts call, and so does
//! `total_commands_processed`; the server does not distinguish them. So only those commands are added up that no script can
//! call or none of the contender's does: calls of scripts, subscriptions and other commands of a connection, and the plain
//! commands that [`Contender::plain`](crate::plan::Contender) names, as `MONITOR` shows them. A message that the server
//! sends is not a command.

use std::collections::HashMap;

use leasehold_servers::resp::{Connection, Value};

/// Commands that no script can call.
const NEVER_IN_SCRIPTS: &[&str] = &[
    "auth",
    "discard",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exec",
    "fcall",
    "fcall_ro",
    "hello",
    "multi",
    "ping",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "select",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "unwatch",
    "watch",
];

/// The statistics of a server at one moment.
#[derive(Debug)]
pub(crate) struct Info {
    calls: HashMap<String, f64>,
    /// Processor time in seconds.
    pub(crate) cpu: f64,
    pub(crate) connections: f64,
    /// Commands of any kind, including those of scripts.
    pub(crate) commands: f64,
}

impl Info {
    pub(crate) fn ask(connection: &mut Connection) -> Result<Self, String> {
        let mut text = String::new();
        for section in ["commandstats", "cpu", "clients", "stats"] {
            let reply = connection.call(&["INFO", section]).map_err(|error| error.to_string())?;
            text += reply.as_str().ok_or("INFO has no text")?;
        }
        let fields: HashMap<_, _> = text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let number = |key: &str| fields.get(key).and_then(|value| value.parse().ok()).unwrap_or(0.0);
        let calls = fields.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix("cmdstat_")?;
            let calls = value.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
            Some((name.to_owned(), calls))
        });
        Ok(Self {
            calls: calls.collect(),
            cpu: number("used_cpu_sys") + number("used_cpu_user"),
            connections: number("connected_clients"),
            commands: number("total_commands_processed"),
        })
    }

    /// How many commands clients have sent since `before`.
    pub(crate) fn sent_since(&self, before: &Self, plain: &[(&str, f64)]) -> f64 {
        let share = |name: &str| {
            let alone = name.split('|').next().unwrap_or(name);
            let never = NEVER_IN_SCRIPTS.contains(&name) || ["client", "script"].contains(&alone);
            let sent = plain.iter().find(|(command, _)| *command == name).map_or(0.0, |(_, share)| *share);
            if never { 1.0 } else { sent }
        };
        let since = |name: &str, calls: f64| calls - before.calls.get(name).unwrap_or(&0.0);
        self.calls.iter().map(|(name, calls)| share(name) * since(name, *calls)).sum()
    }
}

/// The version in a line such as `redis_version:7.0.15`.
pub(crate) fn version(connection: &mut Connection) -> String {
    let reply = connection.call(&["INFO", "server"]).unwrap_or(Value::Nil);
    let text = reply.as_str().unwrap_or_default();
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, version) => format!("Redis {}", version.unwrap_or("of unknown version")),
    }
}
