//! The shared state of the connections of a proxy, and the thread that they all run on.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    fs, io,
    net::{self, SocketAddr},
    panic,
    rc::Rc,
    sync::mpsc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
    sync::{Notify, mpsc::UnboundedReceiver},
    task::{AbortHandle, JoinError, JoinSet, LocalSet},
    time::sleep,
};

use super::{
    faults::{Faults, Kind, Losses, Which},
    relay,
};

/// A command that a client has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of the connection: 0 for the first that was accepted, and so on.
    pub connection: usize,
    /// The name of the command, in upper case.
    pub name: String,
}

/// The counts of a proxy since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The connections it has accepted.
    pub connections: usize,
    /// The bytes that clients have sent, forwarded or not.
    pub from_clients: usize,
    /// The bytes that the server has sent, forwarded or not.
    pub from_server: usize,
    /// The replies it has lost.
    pub replies_lost: usize,
    /// The messages it has dropped.
    pub messages_dropped: usize,
}

/// The bytes of one connection, as they arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// What the client has sent.
    pub from_client: Vec<u8>,
    /// What the server has sent.
    pub from_server: Vec<u8>,
}

/// An action for the proxy's thread.
pub(super) struct Control {
    pub(super) action: Box<dyn FnOnce(&mut State) + Send>,
    /// Notified once it has taken effect.
    pub(super) done: mpsc::Sender<()>,
}

/// The state that connections and controls share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) listening: bool,
    /// The port of the server that new connections lead to.
    pub(super) server: u16,
    /// The connections that are to be closed.
    pub(super) cut: Option<Which>,
    command: Faults,
    pub_sub: Faults,
    pub(super) losses: Losses,
    pub(super) connections: BTreeMap<usize, Open>,
    pub(super) sent: Vec<Sent>,
    pub(super) counts: Counts,
    /// What it forwards without understanding it, by connection; commands are understood otherwise.
    pub(super) recordings: Option<BTreeMap<usize, Recording>>,
    /// The process whose connections are held.
    held_process: Option<u32>,
    /// The direction in which the next bytes are forwarded in part.
    pub(super) cut_inside: Option<Toward>,
}

/// A connection that is open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) kind: Kind,
    /// Whether this very connection is held, whatever happens to others.
    pub(super) held: bool,
    /// The port of its client.
    client: u16,
    /// The process of its client, if that was looked for.
    process: Option<u32>,
    task: AbortHandle,
}

impl State {
    pub(super) fn faults(&mut self, which: Which) -> impl Iterator<Item = &mut Faults> {
        [(Kind::Command, &mut self.command), (Kind::PubSub, &mut self.pub_sub)]
            .into_iter()
            .filter_map(move |(kind, faults)| which.covers(kind).then_some(faults))
    }

    pub(super) fn faults_of(&self, kind: Kind) -> &Faults {
        match kind {
            Kind::Command => &self.command,
            Kind::PubSub => &self.pub_sub,
        }
    }

    /// Holds the connections of a process, those that it opens later included.
    pub(super) fn hold_process(&mut self, process: u32) {
        self.held_process = Some(process);
        let ports = ports_of(process);
        for open in self.connections.values_mut().filter(|open| ports.contains(&open.client)) {
            open.process = Some(process);
        }
    }

    fn is_held_process(&self, open: &Open) -> bool {
        self.held_process.is_some() && self.held_process == open.process
    }

    pub(super) fn heal(&mut self) {
        self.listening = true;
        self.command = Faults::default();
        self.pub_sub = Faults::default();
        self.losses = Losses::default();
        self.cut_inside = None;
        self.held_process = None;
        self.connections.values_mut().for_each(|open| open.held = false);
    }
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// From a client to the server.
    Server,
    /// From the server to a client.
    Client,
}

/// The state, and a notification for its changes.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) state: RefCell<State>,
    changed: Notify,
}

impl Hub {
    /// Sets a connection's kind, which may end a fault for it or start one.
    pub(super) fn set_kind(&self, connection: usize, kind: Kind) {
        if let Some(open) = self.state.borrow_mut().connections.get_mut(&connection) {
            open.kind = kind;
        }
        self.changed.notify_waiters();
    }

    /// Whether a connection is held at this moment, in that direction.
    pub(super) fn holds(&self, connection: usize, toward: Toward) -> bool {
        let state = self.state.borrow();
        state.connections.get(&connection).is_some_and(|open| {
            let faults = state.faults_of(open.kind);
            open.held || faults.blackhole || faults.one_way == Some(toward) || state.is_held_process(open)
        })
    }

    /// Waits until a connection is not held in that direction.
    pub(super) async fn wait_until_free(&self, connection: usize, toward: Toward) {
        loop {
            let changed = self.changed.notified();
            if !self.holds(connection, toward) {
                return;
            }
            changed.await;
        }
    }
}

/// Runs a proxy until its last controller is dropped.
pub(super) fn run(
    listener: net::TcpListener,
    server: u16,
    is_opaque: bool,
    controls: UnboundedReceiver<Control>,
) {
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    LocalSet::new().block_on(&runtime, async {
        let address = listener.local_addr().expect("a listener has an address");
        let state = State {
            listening: true,
            server,
            cut: None,
            command: Faults::default(),
            pub_sub: Faults::default(),
            losses: Losses::default(),
            connections: BTreeMap::new(),
            sent: Vec::new(),
            counts: Counts::default(),
            recordings: is_opaque.then(BTreeMap::new),
            held_process: None,
            cut_inside: None,
        };
        let hub = Rc::new(Hub { state: RefCell::new(state), changed: Notify::new() });
        let entrance = Some(Entrance::new(listener));
        Acceptor { hub, address, entrance, reserved: None, tasks: JoinSet::new() }.run(controls).await;
    });
}

/// Accepts and closes connections.
struct Acceptor {
    hub: Rc<Hub>,
    address: SocketAddr,
    entrance: Option<Entrance>,
    /// The port, while there is no listener: no other server must get it and reply to the clients of this one.
    reserved: Option<TcpSocket>,
    tasks: JoinSet<()>,
}

impl Acceptor {
    async fn run(mut self, mut controls: UnboundedReceiver<Control>) {
        loop {
            tokio::select! {
                biased;
                control = controls.recv() => match control {
                    Some(Control { action, done }) => {
                        action(&mut self.hub.state.borrow_mut());
                        self.take_effect().await;
                        // The caller may have given up.
                        let _ = done.send(());
                    }
                    None => break,
                },
                client = Entrance::accept(self.entrance.as_ref()) => self.admit(client),
                Some(ended) = self.tasks.join_next() => check(ended),
            }
        }
        while let Some(ended) = self.tasks.try_join_next() {
            check(ended);
        }
    }

    fn admit(&mut self, client: TcpStream) {
        let mut state = self.hub.state.borrow_mut();
        let connection = state.counts.connections;
        state.counts.connections += 1;
        let registered = Registered { hub: Rc::clone(&self.hub), connection };
        let server = state.server;
        let client_port = client.peer_addr().map_or(0, |address| address.port());
        let process = state.held_process.filter(|process| ports_of(*process).contains(&client_port));
        let task = self.tasks.spawn_local(async move {
            // Whichever side fails, the connection ends; the error is ignored.
            let _ = relay::relay(&registered.hub, connection, client, server).await;
        });
        state.connections.insert(
            connection,
            Open { kind: Kind::default(), held: false, client: client_port, process, task },
        );
    }

    async fn take_effect(&mut self) {
        let (listening, cut) = {
            let mut state = self.hub.state.borrow_mut();
            (state.listening, state.cut.take())
        };
        self.hub.changed.notify_waiters();
        if let Some(which) = cut {
            if let Some(entrance) = &self.entrance
                && which.covers(Kind::default())
            {
                entrance.refuse_waiting();
            }
            let mut closing = Vec::new();
            for (connection, open) in &self.hub.state.borrow().connections {
                if which.covers(open.kind) {
                    open.task.abort();
                    closing.push(*connection);
                }
            }
            while closing
                .iter()
                .any(|connection| self.hub.state.borrow().connections.contains_key(connection))
            {
                self.tasks.join_next().await.into_iter().for_each(check);
            }
        }
        if !listening {
            if self.entrance.take().is_some() {
                self.reserved = Some(as_soon_as_free(|| reserve(self.address)).await);
            }
        } else if self.entrance.is_none() {
            self.reserved = None;
            let listener = as_soon_as_free(|| net::TcpListener::bind(self.address)).await;
            self.entrance = Some(Entrance::new(listener));
        }
    }
}

/// Binds the port of a socket that was just closed. A process that another thread starts at this moment has a copy of the socket
/// for an instant, until it runs its program.
async fn as_soon_as_free<T>(bind: impl Fn() -> io::Result<T>) -> T {
    for _ in 0..1000 {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => sleep(Duration::from_millis(1)).await,
            bound => return bound.expect("the port of the proxy can be bound"),
        }
    }
    panic!("the port of the proxy stays in use");
}

/// A socket that has a port and does not listen: connections to it are refused, and no other socket can listen there.
fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Connections of the former listener may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.set_reuseaddr(false)?;
    Ok(socket)
}

/// Propagates a panic, which ends the proxy.
fn check(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        panic::resume_unwind(panic);
    }
}

/// Removes a connection from the list when its task ends for any reason.
struct Registered {
    hub: Rc<Hub>,
    connection: usize,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.hub.state.borrow_mut().connections.remove(&self.connection);
    }
}

/// The ports of this machine from which a process has connections by TCP.
fn ports_of(process: u32) -> HashSet<u16> {
    let sockets: HashSet<_> = fs::read_dir(format!("/proc/{process}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .filter_map(|link| link.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned))
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.split_once(':')?;
        fields.get(9).filter(|inode| sockets.contains(**inode))?;
        u16::from_str_radix(port, 16).ok()
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// A listener, twice: to await connections, and to check for pending ones.
struct Entrance {
    awaited: TcpListener,
    looked_at: net::TcpListener,
}

impl Entrance {
    fn new(listener: net::TcpListener) -> Self {
        listener.set_nonblocking(true).expect("a listener can be awaited");
        let looked_at = listener.try_clone().expect("a listener can be held twice");
        Self { awaited: TcpListener::from_std(listener).expect("the runtime listens"), looked_at }
    }

    /// Waits for the next connection; for ever, if there is no listener.
    async fn accept(entrance: Option<&Self>) -> TcpStream {
        loop {
            match entrance {
                Some(entrance) => {
                    // A connection that closes before it is accepted is an error, but not the proxy's.
                    if let Ok((client, _)) = entrance.awaited.accept().await {
                        return client;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// Closes the connections that clients have opened and that are not accepted yet.
    fn refuse_waiting(&self) {
        while self.looked_at.accept().is_ok() {}
    }
}
