//! `leasehold unlock`: frees a lock in place of its holder.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use leasehold::{Client, HeldLock, LockKind, QueryError};
use serde_json::json;

use super::failure::LookError;
use super::{Target, text};
use crate::error::Error;
use crate::options::UnlockOptions;
use crate::output::{print, print_json, write};

/// Frees a lock, and returns the exit code: 1 if it was free, or stays held.
///
/// # Errors
///
/// A URL or name that is malformed, a server that cannot be reached or refuses, and a lock that cannot be freed.
pub async fn run(options: &UnlockOptions) -> Result<ExitCode, Error> {
    let Target { client, url } = Target::connect(&options.target).await?;
    let name = &options.name;
    let found = client.find(name).await.map_err(LookError::from)?;
    let Some(lock) = found else { return told(options, false, &format!("{name:?} is free")) };
    let held = text::held(&lock);
    if url.is_file() {
        return Err(LookError::NotFreed { held, advice: end_the_process(&lock) }.into());
    }
    if lock.kind == LockKind::Group {
        let advice =
            "Values of a group are freed by the library: `client.group_lock(group, values).force_unlock()`";
        return Err(LookError::NotFreed { held, advice: advice.into() }.into());
    }
    if !options.yes {
        if !io::stdin().is_terminal() {
            return Err(LookError::NoTerminal { held }.into());
        }
        write(&format!(
            "{held}.\nFreeing it cuts {} off. Work under it may still be running, and another client can get the lock\n\
             meanwhile. Free it? [y/N] ",
            cut_off(&lock)
        ));
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map_err(Error::Input)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return told(options, false, &format!("{name:?} stays held"));
        }
        // Meanwhile another holder may have got it, about which no question was asked.
        match client.find(name).await.map_err(LookError::from)? {
            None => return told(options, false, &format!("{name:?} is free")),
            Some(now) if !is_same(&lock, &now) => {
                let text =
                    format!("nothing was freed, because the holder has changed: now {}", text::held(&now));
                return told(options, false, &text);
            }
            Some(_) => {}
        }
    }
    let was_held = free(&client, &lock).await.map_err(LookError::from)?;
    let text = if was_held { format!("{name:?} was freed") } else { format!("{name:?} is free") };
    told(options, was_held, &text)
}

fn told(options: &UnlockOptions, was_freed: bool, text: &str) -> Result<ExitCode, Error> {
    if options.json {
        print_json(&json!({ "name": options.name, "freed": was_freed }))?;
    } else {
        print(text)?;
    }
    Ok(if was_freed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Who loses the lock when it is freed.
fn cut_off(lock: &HeldLock) -> String {
    match lock.holders {
        0 | 1 => "that holder".into(),
        holders => format!("all {holders} holders"),
    }
}

/// Whether both are of one kind, and of one owner or lease. Of several holders a look tells one, and how many there are.
fn is_same(before: &HeldLock, now: &HeldLock) -> bool {
    let lease = |lock: &HeldLock| lock.holder.client.as_ref().and_then(|client| client.lease.clone());
    let seen = |lock: &HeldLock| (lock.kind, lock.holder.owner.clone(), lease(lock), lock.holders);
    seen(before) == seen(now)
}

/// Frees the lock as the kind that it is.
async fn free(client: &Client, lock: &HeldLock) -> Result<bool, QueryError> {
    let name = &lock.name;
    match lock.kind {
        LockKind::Read => client.rw_lock(name).read().force_unlock().await,
        LockKind::Write => client.rw_lock(name).write().force_unlock().await,
        LockKind::SetNx => client.setnx_lock(name).force_unlock().await,
        // It may be a fair lock, whose queue is to be told.
        _ => client.fair_lock(name).force_unlock().await,
    }
}

/// What to do where a lock lasts as long as a process.
fn end_the_process(lock: &HeldLock) -> String {
    let process = lock.holder.client.as_ref().and_then(|client| client.pid);
    match process {
        Some(pid) => format!(
            "It cannot be freed in place of its process: end that, `kill {pid}`, and the processes that it has started"
        ),
        None => "It cannot be freed in place of its process: end that".into(),
    }
}
