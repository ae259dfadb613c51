//! What a connection says before it serves: its settings, whether it is one connection, and what an operator should know.

use std::time::Duration;

use super::Server;
use super::connection::{Call, Connection, Rows, number, refused};
use super::home::{Home, Patience, Worker, begin};
use super::lane::WAIT;
use super::names::Rule;
use super::packets::Value;
use crate::env;
use crate::error::ServerError;

const CHARACTERS: &str = "SET NAMES utf8mb4";
/// A silent client loses its locks; no limit ends a wait, and no statement waits for a commit.
const ON_MARIADB: &str =
    "SET SESSION wait_timeout = CAST(? AS UNSIGNED), SESSION max_statement_time = 0, SESSION autocommit = 1";
const ON_MYSQL: &str =
    "SET SESSION wait_timeout = CAST(? AS UNSIGNED), SESSION max_execution_time = 0, SESSION autocommit = 1";
const GRANTED: &str = "SELECT @@session.wait_timeout";
const MARK: &str = "SELECT GET_LOCK(?, 0)";
const WHO: &str = "SELECT CONNECTION_ID(), IS_USED_LOCK(?)";
const KIND: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                    ('read_only', 'wsrep_on', 'group_replication_group_name')";

/// Two names of one client that differ in case would be one lock, of which the client is the holder already.
const NOT_EXACT: &str = "exact_names=true is for MariaDB alone: MySQL ignores upper and lower case of names, so leave the option out";

const MULTIPLEXED: &str = "a proxy shares connections between clients (ProxySQL with multiplexing, for instance), so a named lock would \
                           belong to nobody: connect to the server itself, or switch multiplexing off for this user";

impl Server {
    /// Connects for good: the home connection, which has a mark that lanes can check, and its worker.
    pub(super) async fn open_home(&self) -> Result<(std::sync::Arc<Home>, Worker, Vec<String>), ServerError> {
        let setting_up = async {
            let mut connection = Connection::open(&self.address, self.provider.as_ref()).await?;
            if self.address.rule == Rule::Exact && !connection.is_mariadb {
                return Err(ServerError::Denied(NOT_EXACT.into()));
            }
            let idle = self.configure(&mut connection).await?;
            let mark = mark();
            let begun = env::now();
            let taken = connection.one(Call::new(MARK, [&*mark])).await?;
            checked(&taken)?;
            let Some(taken) = number(&taken) else {
                return Err(ServerError::Unavailable("the first lock of this client was interrupted".into()));
            };
            let who = who(&mut connection, &mark).await?;
            if taken != 1 || who != [connection.id.into(); 2] {
                return Err(ServerError::Denied(MULTIPLEXED.into()));
            }
            let warnings = warnings(&mut connection).await?;
            let patience = Patience { idle, ..self.patience };
            let (home, worker) = begin(connection, mark, patience, begun);
            Ok((home, worker, warnings))
        };
        self.within(setting_up).await
    }

    /// Connects for a wait, to the server of the home connection.
    pub(super) async fn open_lane(&self, home: &Home) -> Result<Connection, ServerError> {
        let setting_up = async {
            let mut connection = Connection::open(&self.address, self.provider.as_ref()).await?;
            self.configure(&mut connection).await?;
            let who = who(&mut connection, &home.mark).await?;
            if who != [connection.id, home.id].map(u64::from) {
                return Err(ServerError::Unavailable("another server has replied than before".into()));
            }
            // The wait has no limit, so nothing else may be a part of it.
            connection.prepare(WAIT).await?.map_err(refused)?;
            Ok(connection)
        };
        self.within(setting_up).await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, ServerError>>) -> Result<T, ServerError> {
        let limit = self.connect_limit;
        let late = || Err(ServerError::Unavailable(format!("no connection within {limit:?}")));
        let done = env::within(limit, work).await.unwrap_or_else(late);
        done.map_err(|error| match error {
            ServerError::Unavailable(text) => {
                ServerError::Unavailable(format!("{}:{}: {text}", self.address.host, self.address.port))
            }
            other => other,
        })
    }

    /// Sets a connection up. Returns for how long the server keeps the locks of a silent client.
    async fn configure(&self, connection: &mut Connection) -> Result<Duration, ServerError> {
        let seconds = self.patience.idle.as_secs().to_string();
        let settings = if connection.is_mariadb { ON_MARIADB } else { ON_MYSQL };
        let mut done = connection.one(Call::new(CHARACTERS, [])).await?;
        checked(&done)?;
        done = connection.one(Call::new(settings, [&*seconds])).await?;
        checked(&done)?;
        let granted = connection.one(Call::new(GRANTED, [])).await?;
        checked(&granted)?;
        match number(&granted) {
            Some(granted) if granted == self.patience.idle.as_secs() => Ok(self.patience.idle),
            _ => Err(ServerError::Denied(
                "the server does not let this session set wait_timeout, without which a lock could outlast its client by hours"
                    .into(),
            )),
        }
    }
}

/// A name that nobody else has.
fn mark() -> String {
    use std::fmt::Write as _;
    env::random_bytes().iter().fold("leasehold:client:".to_owned(), |mut mark, byte| {
        let _ = write!(mark, "{byte:02x}");
        mark
    })
}

/// Which connection asks, and which one has the mark.
async fn who(connection: &mut Connection, mark: &str) -> Result<Vec<u64>, ServerError> {
    let rows = connection.one(Call::new(WHO, [mark])).await?;
    checked(&rows)?;
    let value = |value: &Value| if let Value::Number(number) = value { *number } else { 0 };
    Ok(rows.ok().and_then(|rows| Some(rows.first()?.iter().map(value).collect())).unwrap_or_default())
}

/// What an operator should know: a lock belongs to one server.
async fn warnings(connection: &mut Connection) -> Result<Vec<String>, ServerError> {
    let rows = connection.one(Call::new(KIND, [])).await?;
    checked(&rows)?;
    let text = |value: Option<&Value>| match value {
        Some(Value::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    let variables = rows.unwrap_or_default();
    let variables = variables.iter().map(|row| (text(row.first()), text(row.get(1))));
    Ok(variables.filter_map(|(name, value)| warning(&name, &value)).collect())
}

/// What a variable says about the scope of locks.
fn warning(name: &str, value: &str) -> Option<String> {
    let which = match (name, value) {
        ("read_only", "ON" | "1") => "this server is a replica (read_only)",
        ("wsrep_on", "ON" | "1") => "this server is a member of a Galera cluster (wsrep_on)",
        ("group_replication_group_name", group) if !group.is_empty() => {
            "this server is a member of a replication group (group_replication_group_name)"
        }
        _ => return None,
    };
    Some(format!(
        "{which}, and named locks belong to one server: clients on another member do not see them. Let all clients connect to one \
         and the same server"
    ))
}

fn checked(rows: &Rows) -> Result<(), ServerError> {
    rows.as_ref().map(drop).map_err(|error| refused(error.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_one_of_several_is_named() {
        for (name, value, what) in [
            ("read_only", "ON", Some("a replica")),
            ("read_only", "OFF", None),
            ("wsrep_on", "ON", Some("Galera")),
            ("wsrep_on", "OFF", None),
            ("group_replication_group_name", "aaaa", Some("replication group")),
            ("group_replication_group_name", "", None),
        ] {
            let warning = warning(name, value);
            assert_eq!(warning.is_some(), what.is_some(), "{name}={value}");
            assert!(warning.unwrap_or_default().contains(what.unwrap_or_default()), "{name}={value}");
        }
    }
}
