//! The engine on the named locks of MySQL and MariaDB: `GET_LOCK` and `RELEASE_LOCK`.
//!
//! A lock belongs to a connection. A client has one, its home, for tries, releases and heartbeats; and a [lane](lane) for each name
//! that it waits for, which becomes the home of that lock when it is granted. To the server a client is one owner, so its owners are
//! distinguished here. A connection that is silent for the watchdog time-out is ended by the server, which each connection has
//! asked for; the guards of its locks are lost before that, or at once when the connection ends.

mod address;
mod connection;
mod home;
mod lane;
mod locks;
mod login;
mod names;
mod packets;
mod places;
mod setup;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch::Sender;

use self::address::Address;
use self::home::{Function, Home, Patience, Worker};
use self::locks::Entry;
use self::places::Places;
use super::remote::Remote;
use super::remote::store::{
    By, Done, Events, Given, LeaseOf, Shard, Store, StoreError, Take, Taken, Topic, Traits, Wake, Watch,
    report,
};
use super::schemes::{Options, Scheme};
use super::{Engine, Feature, HoldKey, Kind, Profile, Query, QueryResult};
use crate::credentials::Provider;
use crate::env::{self, Tasks, jittered};
use crate::error::ServerError;
use crate::mutex::Mutex;

/// `mysql://[user:password@]host[:port][/database]`.
pub(crate) const SCHEME: Scheme = Scheme {
    names: &["mysql", "mariadb"],
    usage: "`mysql://[user:password@]host[:port][/database]`, `mariadb://…` (named locks of MySQL or MariaDB)",
    profile: &PROFILE,
    server: |url| Address::parse(url).ok().map(|address| address.server()),
    open: |url, options| {
        let address = Address::parse(url)?;
        Ok(Box::pin(async move {
            let (linger, lazy) = (options.linger, options.lazy);
            let store = |events| MySqlStore(Arc::new(Server::new(address, options, events)));
            let remote = if lazy {
                Remote::connect_lazily(linger, store)?
            } else {
                Remote::connect(linger, store).await?
            };
            Ok(Arc::new(remote) as Arc<dyn Engine>)
        }))
    },
};

static PROFILE: Profile = Profile {
    engine: "mysql",
    real_time: true,
    lacks: &[
        Feature::Kind(Kind::Fair),
        Feature::Kind(Kind::SetNx),
        Feature::Kind(Kind::Read),
        Feature::Kind(Kind::Write),
        Feature::Kind(Kind::Group),
        Feature::Kind(Kind::Semaphore),
        Feature::Kind(Kind::LeasedSemaphore),
        Feature::Kind(Kind::Latch),
        Feature::MinHold,
        Feature::Steal,
        Feature::ForceUnlock,
        Feature::Upgrade,
        Feature::FencedWrite,
        Feature::LastToken,
        Feature::List,
    ],
};

static TRAITS: Traits = Traits {
    profile: &PROFILE,
    lease: LeaseOf::Session,
    counts: By::Client,
    owners: By::Client,
    ordered: true,
    takes_all: 0,
};

/// The longest time-out of a session, a year less a day.
const LONGEST_IDLE: u64 = 364 * 24 * 3600;
/// How often a waiter looks without a wake-up: a look at a lane sends nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long waiters poll after a lane has failed, before another one is opened.
const WITHOUT_LANES: Duration = Duration::from_secs(1);
/// The pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The locks of one client.
struct MySqlStore(Arc<Server>);

/// The server as one client sees it.
struct Server {
    address: Address,
    /// The program's own source of credentials, which replaces those of the URL.
    provider: Option<Provider>,
    connect_limit: Duration,
    patience: Patience,
    events: Weak<dyn Events>,
    /// The I/O thread.
    io: OnceLock<Tasks>,
    places: Mutex<Places>,
    /// Whether the client is closed.
    closed: Sender<bool>,
}

impl Server {
    fn new(address: Address, options: Options, events: Weak<dyn Events>) -> Self {
        let Options {
            watchdog, connect_timeout: connect_limit, response_timeout: reply, credentials, ..
        } = options;
        let seconds = watchdog.as_secs() + u64::from(watchdog.subsec_nanos() > 0);
        let idle = Duration::from_secs(seconds.clamp(1, LONGEST_IDLE));
        Self {
            address,
            provider: credentials,
            connect_limit,
            patience: Patience { idle, reply },
            events,
            io: OnceLock::new(),
            places: Mutex::default(),
            closed: Sender::new(false),
        }
    }

    /// The home connection, if there is one whose locks can be trusted.
    fn home(&self) -> Result<Arc<Home>, StoreError> {
        let home = self.places.lock().home.clone().filter(|home| home.session.loss().is_none());
        home.ok_or_else(|| StoreError::NotSent(ServerError::Unavailable("not connected".into())))
    }

    /// Runs on the I/O thread, if that has begun.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(io) = self.io.get() {
            io.spawn(task);
        }
    }

    /// Serves until this is dropped.
    async fn serve(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        let mut worker = if let Some(opened) = opened {
            let first = self.connect_once().await;
            opened(first.as_ref().map(|_| ()).map_err(Clone::clone));
            let Ok(worker) = first else { return };
            worker
        } else {
            let worker = self.connect(None).await;
            report(&self.events, |events| events.up(Shard::ONLY, false));
            worker
        };
        loop {
            let (loss, reason) = worker.serve().await;
            let home = {
                let mut places = self.places.lock();
                let home = places.home.clone();
                places.home_is_gone();
                home
            };
            if let Some(home) = home {
                report(&self.events, |events| events.session_lost(&home.session, loss));
            }
            report(&self.events, |events| events.down(Shard::ONLY));
            worker = self.connect(Some(reason)).await;
            // What the connection before may still carry out ends with it.
            report(&self.events, |events| events.up(Shard::ONLY, false));
        }
    }

    /// Connects until the server replies.
    async fn connect(&self, reason: Option<ServerError>) -> Worker {
        let mut pause = FIRST_PAUSE;
        reason.inspect(|reason| self.still_down(reason));
        loop {
            match self.connect_once().await {
                Ok(worker) => return worker,
                Err(reason) => self.still_down(&reason),
            }
            env::sleep_for(jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn still_down(&self, reason: &ServerError) {
        report(&self.events, |events| events.still_down(Shard::ONLY, reason.clone()));
    }

    async fn connect_once(&self) -> Result<Worker, ServerError> {
        let (home, worker, warnings) = self.open_home().await?;
        let mut places = self.places.lock();
        (places.home, places.warnings, places.blocked_until) = (Some(home), warnings, None);
        Ok(worker)
    }
}

impl MySqlStore {
    /// Carries a request out on the I/O thread. A caller whose request is late is told so, and its outcome takes effect later.
    fn request<T: Send + 'static>(
        &self,
        mut done: impl Done<T>,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) {
        if *self.0.closed.borrow() {
            return;
        }
        let patience = self.0.patience;
        self.0.spawn(async move {
            let mut work = pin!(work);
            let mut outcome = env::within(patience.reply, &mut work).await;
            if outcome.is_none() {
                if let Some(tell) = done.late() {
                    tell(patience.late());
                }
                outcome = Some(work.await);
            }
            if let Some(outcome) = outcome {
                done.done(outcome);
            }
        });
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MySql").field(&self.0.address.server()).finish()
    }
}

impl Store for MySqlStore {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn wake(&self, _kind: Kind) -> Wake {
        Wake::Message
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let (server, entry) = (Arc::clone(&self.0), Entry::new(take));
        self.request(done, async move { server.take(&entry).await });
    }

    fn give(&self, key: &HoldKey, _from: u32, _length: Duration, done: impl Done<Given>) {
        let (server, key) = (Arc::clone(&self.0), key.clone());
        self.request(done, async move { server.give(&key).await });
    }

    fn lower(&self, key: &HoldKey, _to: u32, done: impl Done<Given>) {
        // Counts are kept by the client: what it undoes here is a hold.
        let (server, key) = (Arc::clone(&self.0), key.clone());
        self.request(done, async move { server.give(&key).await });
    }

    fn is_there(&self, key: &HoldKey, done: impl Done<bool>) {
        let (server, key) = (Arc::clone(&self.0), key.clone());
        self.request(done, async move { server.is_there(&key).await });
    }

    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>) {
        let server = Arc::clone(&self.0);
        match *query {
            Query::Holder(resource, _) => {
                let resource = resource.clone();
                self.request(done, async move {
                    let holding = server.holder(&resource).await?;
                    Ok(QueryResult { holding, ..QueryResult::default() })
                });
            }
            Query::Client(_, client) => {
                self.request(done, async move { Ok(QueryResult::of_process(client)) });
            }
            Query::Queue(_) | Query::Waiters(_) | Query::Token(_) | Query::Uptime => {
                self.request(done, async { Ok(QueryResult::default()) });
            }
        }
    }

    /// A lane wakes its waiters as soon as there is one.
    fn watch(&self, topic: &Topic) -> Watch {
        self.0.places.lock().watched.insert(topic.clone());
        Watch::Active
    }

    fn unwatch(&self, topic: &Topic) {
        let name = self.0.name(&topic.0).unwrap_or_default();
        self.0.places.lock().unwatch(&name, topic);
    }

    fn server(&self, _shard: Shard) -> String {
        self.0.address.server()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.places.lock().warnings.clone()
    }

    fn ping(&self, done: impl Done<()>) {
        let server = Arc::clone(&self.0);
        self.request(done, async move { server.home()?.call(Function::Nothing, "").await.map(drop) });
    }

    async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        self.0.io.get_or_init(Tasks::here);
        let mut closed = self.0.closed.subscribe();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => {}
            () = self.0.serve(opened) => {}
        }
    }

    fn close(&self) {
        self.0.closed.send_replace(true);
    }
}
