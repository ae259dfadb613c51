//! `leasehold inspect`: what is known about a lock.

use std::process::ExitCode;

use leasehold::{Client, HeldLock, LockKind, QueryError};
use serde_json::{Map, Value, json};

use super::failure::LookError;
use super::text::{self, Details};
use super::{Target, text::waiter};
use crate::error::Error;
use crate::options::InspectOptions;
use crate::output::{print, print_json};

/// Prints what is known about a lock, and returns the exit code: 1 if it is free.
///
/// # Errors
///
/// A URL or name that is malformed, and a server that cannot be reached or refuses.
pub async fn run(options: &InspectOptions) -> Result<ExitCode, Error> {
    let Target { client, url } = Target::connect(&options.target).await?;
    let found = look(&client, &options.name).await.map_err(LookError::from)?;
    if options.json {
        let mut fields =
            Map::from_iter([("server".to_owned(), json!(url)), ("held".to_owned(), json!(found.is_some()))]);
        match &found {
            None => drop(fields.insert("name".into(), json!(options.name))),
            Some((lock, details)) => {
                fields.extend(text::object(lock));
                let waiters = details.waiters.as_ref();
                fields.insert("waiters".into(), json!(waiters.map(|(at_least, _)| at_least)));
                fields.insert("queue".into(), json!(waiters.map(|(_, queue)| queue)));
                fields.insert("last_token".into(), json!(details.last_token));
            }
        }
        print_json(&Value::Object(fields))?;
    } else {
        match &found {
            None => print(format_args!("{:?} is free", options.name))?,
            Some((lock, details)) => print(text::lines(lock, details).join("\n"))?,
        }
    }
    Ok(if found.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is known about a lock; `None` if it is free.
pub(super) async fn look(client: &Client, name: &str) -> Result<Option<(HeldLock, Details)>, QueryError> {
    let Some(lock) = client.find(name).await? else { return Ok(None) };
    let waiters = match lock.kind {
        LockKind::Lock => {
            // It may be a fair lock: then it has a queue, which other engines and other locks have not.
            let queue =
                client.fair_lock(name).waiters().await.ok().filter(|waiters| !waiters.queue.is_empty());
            match queue {
                Some(queue) => Some(queue),
                None => client.lock(name).waiters().await.ok(),
            }
        }
        LockKind::Read | LockKind::Write => client.rw_lock(name).read().waiters().await.ok(),
        LockKind::SetNx => client.setnx_lock(name).waiters().await.ok(),
        _ => None,
    };
    let last_token = match lock.kind {
        LockKind::Lock => client.lock(name).last_token().await.ok(),
        LockKind::Write => client.rw_lock(name).write().last_token().await.ok(),
        LockKind::SetNx => client.setnx_lock(name).last_token().await.ok(),
        _ => None,
    };
    let waiters = waiters.map(|waiters| (waiters.at_least, waiters.queue.iter().map(waiter).collect()));
    Ok(Some((lock, Details { waiters, last_token })))
}
