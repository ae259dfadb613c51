//! Semaphores, leased semaphores, latches and groups: lines in tables.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::group::{self, Group};
use super::permits::Permits;
use super::semaphore::Semaphore;
use super::table::{self, Table};
use super::{Files, Place, failure, latch, milliseconds, now};
use crate::engine::remote::store::{Given, StoreError, Take, Taken, Verdict};
use crate::engine::{Adjust, Busy, HoldKey, Holding, Kind, Resource};
use crate::env;
use crate::lease::Lease;
use crate::owner::OwnerId;

/// The suffix of the table of a kind, if it has one.
pub(super) fn suffix(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Semaphore => Some("semaphore"),
        Kind::LeasedSemaphore => Some("permits"),
        Kind::Latch => Some("latch"),
        Kind::Group => Some("group"),
        Kind::Lock | Kind::Spin | Kind::Fair | Kind::SetNx | Kind::Read | Kind::Write => None,
    }
}

impl Files {
    /// Changes the table of a resource, or only reads it. `None`: nothing is written.
    fn table<T>(
        &self,
        resource: &Resource,
        change: impl FnOnce(&str) -> Result<(T, Option<String>), ()>,
    ) -> Result<T, StoreError> {
        let path = self.path(resource, suffix(resource.kind).unwrap_or_default());
        let failed = |error| failure::refused(&path, &error);
        let table = open(self, &path).map_err(failed)?;
        let (result, content) = change(table.content()).map_err(|()| failure::not_ours())?;
        if let Some(content) = content {
            table.replace(&content).map_err(failed)?;
        }
        Ok(result)
    }

    pub(super) fn take_line(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        let key = take.hold_key;
        match key.resource.kind {
            Kind::Semaphore => self.take_counted(key),
            Kind::LeasedSemaphore => self.take_permits(take),
            _ => self.take_group(key),
        }
    }

    fn take_counted(&self, key: &HoldKey) -> Result<Taken, StoreError> {
        let taken = self.table(&key.resource, |content| {
            let mut semaphore = Semaphore::parse(content, now())?;
            let taken = semaphore.as_mut().and_then(|is| is.take(key.amount).then_some(is.generation));
            Ok((taken, Some(Semaphore::format(semaphore.as_ref()))))
        })?;
        Ok(match taken {
            Some(generation) => self.bound(key, Place::Counted(generation)),
            None => Taken::Busy(Busy::default()),
        })
    }

    fn take_permits(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        let key = take.hold_key;
        self.live(key)?;
        let (is_taken, next) = self.table(&key.resource, |content| {
            let (mut permits, now) = (Permits::parse(content)?, now());
            self.expire(&mut permits);
            let is_taken = permits.as_mut().is_some_and(|is| is.take(key, take.lease, now));
            let next = permits.as_ref().and_then(Permits::next_end).map(|ends| ends.saturating_sub(now));
            Ok(((is_taken, next), Some(Permits::format(permits.as_ref()))))
        })?;
        Ok(match (is_taken, take.lease) {
            (true, Lease::Kept(_)) => self.bound(key, self.listed()),
            // It has a lease of its own, by which other clients take it back.
            (true, Lease::Fixed(_)) => {
                let before = self.places.lock().insert(key.clone(), self.listed());
                drop(before);
                Taken::Granted(None)
            }
            (false, _) => Taken::Busy(Busy { retry_in: next.map(Duration::from_millis), ..Busy::default() }),
        })
    }

    fn take_group(&self, key: &HoldKey) -> Result<Taken, StoreError> {
        self.live(key)?;
        let taken = self.table(&key.resource, |content| {
            let mut group = Group::parse(content)?;
            group.expire(|client| self.clients.is_alive(client));
            let taken = group.take(key);
            Ok((taken, Some(group.format())))
        })?;
        Ok(match taken {
            Ok(()) => self.bound(key, self.listed()),
            Err(holder) => Taken::Busy(Busy { holder: Some(holder), ..Busy::default() }),
        })
    }

    fn listed(&self) -> Place {
        Place::Listed(self.lines.fetch_add(1, Ordering::Relaxed))
    }

    fn bound(&self, key: &HoldKey, place: Place) -> Taken {
        let before = self.places.lock().insert(key.clone(), place);
        drop(before);
        Taken::Bound(None, std::sync::Arc::clone(&self.session))
    }

    /// Makes the client of a hold count as alive.
    fn live(&self, key: &HoldKey) -> Result<(), StoreError> {
        let client = key.owner.client;
        self.clients
            .enter(client, &self.writer)
            .map_err(|error| failure::refused(&self.directory.path, &error))
    }

    fn expire(&self, permits: &mut Option<Permits>) {
        if let Some(permits) = permits {
            permits.expire(now(), |client| self.clients.is_alive(client));
        }
    }

    pub(super) fn give_line(&self, key: &HoldKey) -> Result<Given, StoreError> {
        let place = self.places.lock().remove(key);
        let is_held = match key.resource.kind {
            Kind::Semaphore => {
                let Some(Place::Counted(generation)) = place else { return Ok(given(false)) };
                self.table(&key.resource, |content| {
                    let mut semaphore = Semaphore::parse(content, now())?;
                    let own = semaphore.as_mut().filter(|is| is.generation == generation);
                    let is_held = own.map(|is| is.give(key.amount)).is_some();
                    Ok((is_held, Some(Semaphore::format(semaphore.as_ref()))))
                })
            }
            Kind::LeasedSemaphore => self.table(&key.resource, |content| {
                let mut permits = Permits::parse(content)?;
                self.expire(&mut permits);
                let is_held = permits.as_mut().is_some_and(|is| is.give(key));
                Ok((is_held, Some(Permits::format(permits.as_ref()))))
            }),
            _ => self.table(&key.resource, |content| {
                let mut group = Group::parse(content)?;
                let is_held = group.give(key);
                Ok((is_held, Some(group.format())))
            }),
        };
        if is_held.is_err() {
            // The release is tried again.
            self.places.lock().extend(place.map(|place| (key.clone(), place)));
        }
        is_held.map(given)
    }

    /// Extends permits with a lease of their own, or only checks them.
    pub(super) fn renew_line(&self, key: &HoldKey, length: Duration) -> Result<Verdict, StoreError> {
        self.table(&key.resource, |content| {
            let mut permits = Permits::parse(content)?;
            self.expire(&mut permits);
            let held = permits.as_mut().filter(|is| is.has(key));
            let verdict = if held.is_some() { Verdict::Held } else { Verdict::Gone };
            if let Some(held) = held.filter(|_| !length.is_zero()) {
                held.extend(key, now().saturating_add(milliseconds(length)));
            }
            Ok((verdict, Some(Permits::format(permits.as_ref()))))
        })
    }

    /// The permits of a hold have no guard any more.
    pub(super) fn detach_line(&self, key: &HoldKey) -> Result<(), StoreError> {
        let place = self.places.lock().remove(key);
        drop(place);
        if key.resource.kind != Kind::LeasedSemaphore {
            return Ok(());
        }
        self.table(&key.resource, |content| {
            let mut permits = Permits::parse(content)?;
            if let Some(permits) = &mut permits {
                permits.detach(key, now());
            }
            Ok(((), Some(Permits::format(permits.as_ref()))))
        })
    }

    pub(super) fn adjust(&self, resource: &Resource, adjust: &Adjust) -> Result<i64, StoreError> {
        self.table(resource, |content| {
            Ok(match resource.kind {
                Kind::Semaphore => {
                    let mut semaphore = Semaphore::parse(content, now())?;
                    let result = Semaphore::adjust(&mut semaphore, adjust, fresh_generation(), now());
                    (result, Some(Semaphore::format(semaphore.as_ref())))
                }
                Kind::LeasedSemaphore => {
                    let mut permits = Permits::parse(content)?;
                    self.expire(&mut permits);
                    let result = Permits::adjust(&mut permits, adjust, now());
                    (result, Some(Permits::format(permits.as_ref())))
                }
                _ => {
                    let mut count = latch::parse(content)?;
                    let result = latch::adjust(&mut count, adjust);
                    (result, Some(latch::format(count)))
                }
            })
        })
    }

    /// Whether a hold is still in its table, as far as that can be read now.
    pub(super) fn is_listed(&self, key: &HoldKey, place: &Place) -> bool {
        let path = self.path(&key.resource, suffix(key.resource.kind).unwrap_or_default());
        let Ok(content) = table::peek(&path) else { return true };
        match (key.resource.kind, place) {
            (Kind::Semaphore, Place::Counted(generation)) => {
                matches!(Semaphore::parse(&content, now()), Ok(Some(is)) if is.generation == *generation)
            }
            (Kind::LeasedSemaphore, _) => {
                let mut permits = Permits::parse(&content).unwrap_or_default();
                self.expire(&mut permits);
                permits.is_some_and(|is| is.has(key))
            }
            _ => Group::parse(&content).is_ok_and(|group| group.has(key)),
        }
    }

    /// The owner of one of the values of a group.
    pub(super) fn line_holder(
        &self,
        resource: &Resource,
        suffix: &str,
        wanted: Option<OwnerId>,
    ) -> Result<Option<Holding>, StoreError> {
        let path = self.path(resource, suffix);
        let content = table::peek(&path).map_err(|error| failure::refused(&path, &error))?;
        let mut group = Group::parse(&content).map_err(|()| failure::not_ours())?;
        group.expire(|client| self.clients.is_alive(client));
        let holder = group.holder(&group::values(resource), wanted);
        Ok(holder.map(|owner| Holding { owner: Some(owner), count: 1, remaining: Duration::ZERO }))
    }
}

fn given(is_held: bool) -> Given {
    Given { left: is_held.then_some(0), subscribers: Some(0) }
}

fn open(files: &Files, path: &Path) -> std::io::Result<Table> {
    match Table::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            files.directory.create()?;
            Table::open(path)
        }
        table => table,
    }
}

/// A number that no other semaphore has.
fn fresh_generation() -> u64 {
    let bytes = env::random_bytes();
    u64::from_le_bytes(std::array::from_fn(|at| bytes[at]))
}
