// Of two definitions of a link the first counts; doc tests are named after the first file, so they do without.
#![cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests may use the clock and the tasks of their runtime")
)]
#![warn(clippy::iter_over_hash_type)]

#[macro_use]
mod mutation;

mod acquire;
mod any_lock;
mod back_off;
mod block;
mod cache_padded;
mod client;
mod client_id;
mod config;
mod connect;
mod counter;
mod credentials;
mod delegate;
mod deref;
mod diagnosis;
#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "only a server can be out of reach"))]
#[cfg_attr(
    all(feature = "remote", not(feature = "redis")),
    allow(dead_code, reason = "a part is for engines that this build does not have")
)]
mod engine;
#[expect(clippy::disallowed_methods, reason = "the one place where they are called")]
mod env;
mod error;
mod events;
mod fair;
mod fence;
mod fenced;
mod guard;
#[cfg(doc)]
pub mod guide;
mod hold;
mod hold_view;
mod holds;
mod identity;
mod initial_permits;
mod interrupt;
mod latch;
mod lease;
mod leased_semaphore;
pub mod limits;
mod listing;
mod lock;
mod loss;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub mod metrics;
mod multi_lock;
mod mutex;
mod name;
mod observe;
mod observer;
mod operation;
mod outage;
mod owner;
mod pattern;
mod permit_id;
mod permits;
mod quorum_lock;
mod race;
mod run;
mod running_under;
mod runtime_thread;
mod rw_lock;
mod semaphore;
#[cfg_attr(
    not(any(feature = "etcd", feature = "mysql", feature = "test-util")),
    expect(dead_code, reason = "no other engine loses sessions")
)]
mod session;
mod stats;
mod status;
mod term;
#[cfg(feature = "redis")]
mod tls;
mod url;
mod waiters;
mod waiting;

#[cfg(feature = "test-util")]
pub mod test;

#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub use leasehold_macros::locked;

pub use crate::acquire::{Acquire, TryAcquire};
pub use crate::any_lock::{AnyAcquire, AnyGuard, AnyLock, AnyTryAcquire};
pub use crate::back_off::BackOff;
pub use crate::client::{Client, ShutdownReport};
pub use crate::config::{Config, ConfigError, TimeParseError, parse_time};
pub use crate::connect::ConnectOptions;
pub use crate::credentials::Credentials;
pub use crate::diagnosis::{Diagnosis, Fact, Finding, Severity};
pub use crate::error::{
    AcquireError, ChangeError, ConnectError, Error, ExtendError, InvalidRequestError, LostError, PingError,
    QueryError, ReleaseError, ServerError, Subject, WaitError, WriteError,
};
pub use crate::events::{Event, EventLock, Events};
pub use crate::fair::{FairLock, QueuePosition};
pub use crate::fence::{Fence, StaleTokenError};
pub use crate::fenced::{FencedGuard, FencedLock};
pub use crate::guard::{Guard, Released};
pub use crate::hold_view::HoldView;
pub use crate::identity::ClientInfo;
pub use crate::interrupt::Interrupt;
pub use crate::latch::{Latch, LatchOpened};
pub use crate::leased_semaphore::{LeasedPermits, LeasedSemaphore};
pub use crate::listing::{HeldLock, List, Listing, LockKind};
pub use crate::lock::{Holder, Lock, OwnerLock};
pub use crate::loss::Loss;
pub use crate::multi_lock::{AcquireAll, MultiGuard, MultiLock};
pub use crate::operation::Operation;
pub use crate::owner::{Owner, OwnerParseError};
pub use crate::permit_id::{PermitId, PermitIdParseError};
pub use crate::permits::{AcquirePermits, SemaphorePermits, TryAcquirePermits};
pub use crate::quorum_lock::{AcquireQuorum, QuorumGuard, QuorumLock};
pub use crate::rw_lock::{ReadGuard, ReadLock, RwLock, WriteGuard, WriteLock};
pub use crate::semaphore::{Semaphore, TrySetPermits};
pub use crate::stats::Stats;
pub use crate::status::Status;
pub use crate::url::UrlError;
pub use crate::waiters::{Waiter, Waiters};
