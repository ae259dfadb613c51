//! The smallest store there is: a table inside the process. It shows what a new engine has to implement.
//!
//! A hold is bound to the client that has acquired it, as to a connection. The table neither distinguishes owners of one client
//! nor counts entries, has no leases, and notifies no waiter. [`Remote`] does all of that.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::bound::ALL_BUT_PLAIN;
use crate::engine::remote::Remote;
use crate::engine::remote::store::{
    By, Done, Events, Given, LeaseOf, Shard, Store, StoreError, Take, Taken, Traits, Wake,
};
use crate::engine::schemes::Scheme;
use crate::engine::{Busy, Engine, HoldKey, Holding, Kind, Profile, Query, QueryResult};
use crate::env;
use crate::error::ServerError;
use crate::owner::OwnerId;
use crate::session::Session;

/// `example:NAME`, a table shared by all clients of the process that use the same name.
pub(crate) const SCHEME: Scheme = Scheme {
    names: &["example"],
    usage: "",
    profile: &PROFILE,
    server: |url| Some(url.to_owned()),
    open: |url, options| {
        let table = table(url);
        Ok(Box::pin(async move {
            let remote =
                Remote::embed(options.linger, options.lazy, |_: Weak<dyn Events>| Example::new(table))
                    .await?;
            Ok(Arc::new(remote) as Arc<dyn Engine>)
        }))
    },
};

static PROFILE: Profile = Profile { engine: "example", real_time: false, lacks: ALL_BUT_PLAIN };

static TRAITS: Traits = Traits {
    profile: &PROFILE,
    lease: LeaseOf::Session,
    counts: By::Client,
    owners: By::Client,
    ordered: false,
    takes_all: 0,
};

/// The owner that holds each name.
type Table = Mutex<BTreeMap<String, OwnerId>>;

fn table(url: &str) -> Arc<Table> {
    static TABLES: LazyLock<Mutex<BTreeMap<String, Weak<Table>>>> = LazyLock::new(Mutex::default);
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let table = tables.get(url).and_then(Weak::upgrade).unwrap_or_default();
    tables.insert(url.to_owned(), Arc::downgrade(&table));
    table
}

/// One client of a table.
#[derive(Debug)]
struct Example {
    table: Arc<Table>,
    /// It lasts as long as the process.
    session: Arc<Session>,
    closed: Notify,
}

impl Example {
    fn new(table: Arc<Table>) -> Self {
        Self { table, session: Session::endless(), closed: Notify::new() }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, OwnerId>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes a request, but not inside the call that has issued it.
    fn reply<T: Send + 'static>(done: impl Done<T>, value: T) {
        env::spawn(async move { done.done(Ok::<_, StoreError>(value)) });
    }
}

impl Store for Example {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn wake(&self, _kind: Kind) -> Wake {
        Wake::Poll(Duration::from_millis(200))
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let HoldKey { resource, owner, .. } = take.hold_key;
        let holder = *self.table().entry(resource.name.to_string()).or_insert(*owner);
        Self::reply(
            done,
            if holder.client == owner.client {
                Taken::Bound(None, Arc::clone(&self.session))
            } else {
                Taken::Busy(Busy { holder: Some(holder), ..Busy::default() })
            },
        );
    }

    fn give(&self, key: &HoldKey, _from: u32, _length: Duration, done: impl Done<Given>) {
        self.lower(key, 0, done);
    }

    fn lower(&self, key: &HoldKey, to: u32, done: impl Done<Given>) {
        let mut table = self.table();
        let name = key.resource.name.as_str();
        let is_held = to == 0 && table.get(name).is_some_and(|holder| holder.client == key.owner.client);
        if is_held {
            table.remove(name);
        }
        // The table notifies no client, so this client has to wake its own waiters.
        Self::reply(done, Given { left: is_held.then_some(0), subscribers: Some(0) });
    }

    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>) {
        if let Query::Client(_, client) = *query {
            return Self::reply(done, QueryResult::of_process(client));
        }
        let holder = query.resource().and_then(|resource| self.table().get(resource.name.as_str()).copied());
        let holding = holder.map(|owner| Holding { owner: Some(owner), count: 1, remaining: Duration::ZERO });
        Self::reply(done, QueryResult { holding, ..QueryResult::default() });
    }

    /// There is nothing to connect to.
    fn shards(&self) -> Vec<Shard> {
        Vec::new()
    }

    fn ping(&self, done: impl Done<()>) {
        Self::reply(done, ());
    }

    async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        if let Some(opened) = opened {
            opened(Ok(()));
        }
        self.closed.notified().await;
    }

    fn close(&self) {
        self.closed.notify_one();
    }
}
