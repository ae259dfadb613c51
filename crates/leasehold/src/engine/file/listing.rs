//! Which locks of a directory are held: the files that are there, and what the kernel says of them.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use super::group::Group;
use super::lock_file::FileId;
use super::{Files, failure, kernel, names, table};
use crate::engine::remote::store::StoreError;
use crate::engine::{Cursor, Found, Holding, Kind, ListStep, Listed, Resource};
use crate::name::Name;
use crate::pattern::Pattern;

/// How many names are examined for one page.
const PAGE: usize = 100;

impl Files {
    pub(super) fn list(&self, step: &ListStep) -> Result<Listed, StoreError> {
        match step {
            ListStep::Page(pattern, cursor) => self.page(pattern, cursor),
            ListStep::Key(name, _) | ListStep::Name(name) => {
                let found = [Kind::Lock, Kind::Group].map(|kind| self.found(name, kind));
                let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
                Ok(Listed { found: found.into_iter().flatten().collect(), ..Listed::default() })
            }
        }
    }

    fn page(&self, pattern: &Pattern, cursor: &Cursor) -> Result<Listed, StoreError> {
        let all = match &cursor.files {
            Some(all) => Arc::clone(all),
            None => {
                self.names(pattern).map_err(|error| failure::refused(&self.directory.path, &error))?.into()
            }
        };
        let from = usize::try_from(cursor.at).unwrap_or(usize::MAX).min(all.len());
        let until = (from + PAGE).min(all.len());
        let mut listed = Listed::default();
        for (name, kind) in &all[from..until] {
            listed.found.extend(self.found(name, *kind)?);
        }
        listed.next = (until < all.len()).then(|| Cursor {
            at: until as u64,
            files: Some(Arc::clone(&all)),
            ..cursor.clone()
        });
        Ok(listed)
    }

    /// The names that have a file, in their order, and what they may be.
    fn names(&self, pattern: &Pattern) -> io::Result<Vec<(Name, Kind)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory.path)? {
            let file = entry?.file_name();
            let suffixes: [(&[u8], Kind); 2] = [(b".lock", Kind::Lock), (b".group.state", Kind::Group)];
            let named = suffixes.iter().find_map(|(suffix, kind)| {
                let name = names::decode(file.as_bytes().strip_suffix(*suffix)?)?;
                Some((Name::new("", &name).ok()?, *kind))
            });
            found.extend(named.filter(|(name, _)| pattern.matched(name).is_some()));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn found(&self, name: &Name, kind: Kind) -> Result<Option<Found>, StoreError> {
        let resource = Resource::new(kind, name.clone());
        if kind == Kind::Group { self.group_found(resource) } else { self.lock_found(&resource) }
    }

    /// A lock, or the half of a read-write lock: the file of a writer is locked as that of a lock.
    fn lock_found(&self, resource: &Resource) -> Result<Option<Found>, StoreError> {
        for kind in [Kind::Lock, Kind::Read] {
            let resource = resource.of_kind(kind);
            let Some(holding) = self.holder(&resource, None)? else { continue };
            let path = self.path(&resource, "lock");
            let holders = match FileId::of(&path) {
                Ok(Some(id)) => kernel::holders(&path, id),
                Ok(None) => Ok(Vec::new()),
                Err(error) => Err(error),
            };
            let holders = holders.map_err(|error| failure::refused(&path, &error))?;
            let process = holders.first().map(|holder| holder.process).filter(|process| *process > 0);
            return Ok(Some(Found {
                resource,
                holding,
                holders: holders.len().max(1),
                client: None,
                process,
            }));
        }
        Ok(None)
    }

    /// A group of which living clients hold values.
    fn group_found(&self, resource: Resource) -> Result<Option<Found>, StoreError> {
        let path = self.path(&resource, "group");
        let content = table::peek(&path).map_err(|error| failure::refused(&path, &error))?;
        let Ok(mut group) = Group::parse(&content) else { return Ok(None) };
        group.expire(|client| self.clients.is_alive(client));
        let owners = group.owners();
        Ok(owners.first().map(|owner| {
            let holding = Holding { owner: Some(*owner), count: 1, remaining: Duration::ZERO };
            Found { resource, holding, holders: owners.len(), client: None, process: None }
        }))
    }
}
