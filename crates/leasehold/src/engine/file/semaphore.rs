//! Permits that are only counted: a number, and when it expires.

use super::Milliseconds;
use crate::engine::Adjust;

/// The count of a semaphore that is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Semaphore {
    /// Tells this semaphore from an earlier one of that name, whose permits do not belong to it.
    pub(super) generation: u64,
    free: i64,
    ends: Option<Milliseconds>,
}

impl Semaphore {
    /// The semaphore in the content of its table, unless it has expired. The error: it is something else.
    pub(super) fn parse(content: &str, now: Milliseconds) -> Result<Option<Self>, ()> {
        if content.is_empty() {
            return Ok(None);
        }
        let words: Vec<_> = content.split_whitespace().collect();
        let ["semaphore", generation, free, ends] = words[..] else { return Err(()) };
        let ends = if ends == "-" { None } else { Some(ends.parse().map_err(drop)?) };
        let (generation, free) = (generation.parse().map_err(drop)?, free.parse().map_err(drop)?);
        Ok(Some(Self { generation, free, ends }).filter(|_| ends.is_none_or(|ends| ends > now)))
    }

    pub(super) fn format(semaphore: Option<&Self>) -> String {
        semaphore.map_or_else(String::new, |Self { generation, free, ends }| {
            let ends = ends.map_or_else(|| "-".into(), |ends| ends.to_string());
            format!("semaphore {generation} {free} {ends}\n")
        })
    }

    /// Takes permits, all or none.
    pub(super) fn take(&mut self, permits: u32) -> bool {
        let enough = self.free >= permits.into();
        if enough {
            self.free -= i64::from(permits);
        }
        enough
    }

    pub(super) fn give(&mut self, permits: u32) {
        self.free = self.free.saturating_add(permits.into());
    }

    /// Carries out a change or a query. `fresh` is the generation of a semaphore that it makes.
    pub(super) fn adjust(
        semaphore: &mut Option<Self>,
        adjust: &Adjust,
        fresh: u64,
        now: Milliseconds,
    ) -> i64 {
        let new = |free: i64, ends| Self { generation: fresh, free, ends };
        match (adjust, semaphore.as_mut()) {
            (Adjust::TrySet { count, ttl }, None) => {
                let ends = ttl.map(|ttl| now.saturating_add(super::milliseconds(ttl)));
                *semaphore = Some(new((*count).into(), ends));
                1
            }
            (Adjust::Add(permits), Some(is)) => {
                is.free = is.free.saturating_add((*permits).into());
                is.ends = None;
                is.free
            }
            (Adjust::Add(permits), None) => {
                *semaphore = Some(new((*permits).into(), None));
                (*permits).into()
            }
            (Adjust::Give { count, .. }, Some(is)) => {
                is.give(*count);
                1
            }
            (Adjust::Give { count, create: true }, None) => {
                *semaphore = Some(new((*count).into(), None));
                1
            }
            (Adjust::Drain, Some(is)) => {
                is.ends = None;
                std::mem::take(&mut is.free)
            }
            (Adjust::Delete, is) => {
                let existed = is.is_some();
                *semaphore = None;
                existed.into()
            }
            (Adjust::Count, Some(is)) => is.free,
            (Adjust::Exists, is) => is.is_some().into(),
            _ => 0,
        }
    }
}
