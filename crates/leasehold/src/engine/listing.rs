//! The requests of a listing: which resources are held.

use std::sync::Arc;

#[cfg(feature = "file")]
use super::Kind;
use super::{Holding, Resource};
use crate::identity::ClientInfo;
use crate::name::Name;
use crate::pattern::Pattern;

/// One request of a listing. It changes nothing.
#[derive(Debug, Clone)]
pub(crate) enum ListStep {
    /// A part of the names that match, from this cursor on.
    Page(Arc<Pattern>, Cursor),
    /// What is held under a key that a page has found.
    Key(Name, Shape),
    /// What is held under a name, whatever it is.
    Name(Name),
}

/// Where a listing continues. The first page begins at the default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursor {
    pub(crate) at: u64,
    /// What the first page has found in a directory: files that come and go between two pages hide no lock, and repeat none.
    #[cfg(feature = "file")]
    pub(crate) files: Option<Arc<[(Name, Kind)]>>,
    /// The last key of the page before.
    #[cfg(feature = "etcd")]
    pub(crate) after: Option<Arc<[u8]>>,
    /// What is searched at present.
    pub(crate) shape: Shape,
    /// Strings are to be searched, too.
    pub(crate) with_strings: bool,
}

/// How the state of a resource is stored, on a server that has more than locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Most locks.
    #[default]
    Hash,
    /// A lock by `SET … NX`.
    String,
}

/// The reply to a [`ListStep`].
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) found: Vec<Found>,
    /// Keys that may be held: a request for each of them tells.
    pub(crate) keys: Vec<(Name, Shape)>,
    /// Where the next page begins; `None` at the end.
    pub(crate) next: Option<Cursor>,
}

/// A resource that is held.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) resource: Resource,
    /// One of its holders.
    pub(crate) holding: Holding,
    /// How many holders there are, this one included.
    pub(crate) holders: usize,
    /// What is known of the client of the holder. `None` if it is to be asked for.
    pub(crate) client: Option<Box<ClientInfo>>,
    /// The process of the holder, where it is known although its client may not be.
    pub(crate) process: Option<u32>,
}
