//! A proxy in front of a server that records the traffic, and injects faults.

mod exchange;
mod faults;
mod hub;
mod relay;

use std::{net::Ipv4Addr, sync::mpsc, thread, time::Duration};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use faults::Which;
pub use hub::{Counts, Recording, Sent, Toward};

use crate::port;
use hub::{Control, State};

/// A proxy on a port of its own on the loopback interface.
///
/// It forwards whole commands and whole replies, in both versions of the protocol. Faults can be switched at
/// any time; they are in effect, and connections to be cut are closed, when the method returns.
///
/// It runs on a separate thread, so it continues while a test blocks its own runtime, and in real time, so it continues while a
/// test has paused its own clock. The methods are blocking and short.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    // Only a drop takes these.
    controls: Option<UnboundedSender<Control>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy to the server at this port of the loopback interface.
    ///
    /// While no server listens there, the proxy closes the connections that it accepts.
    ///
    /// # Panics
    ///
    /// When the system does not provide a port or a thread.
    #[must_use]
    pub fn start(server: u16) -> Self {
        Self::start_as(server, false)
    }

    /// The same for connections with TLS: it forwards bytes as they come, and [records](Self::recordings) them. All of its
    /// connections count as ones for commands, and faults that concern replies or messages have no effect.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn start_opaque(server: u16) -> Self {
        Self::start_as(server, true)
    }

    fn start_as(server: u16, is_opaque: bool) -> Self {
        let listener = port::listen();
        let port = listener.local_addr().expect("a listener has an address").port();
        let (controls, receiver) = unbounded_channel();
        let thread = thread::Builder::new().name(format!("proxy {port} to {server}"));
        let thread = thread
            .spawn(move || hub::run(listener, server, is_opaque, receiver))
            .expect("a thread can be started");
        Self { port, controls: Some(controls), thread: Some(thread) }
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// Closes connections, and drops all data in flight on them. New ones are accepted.
    pub fn cut(&self, which: Which) {
        self.with(move |state| state.cut = Some(which));
    }

    /// Closes all connections and refuses new ones, until [`heal`](Self::heal).
    pub fn refuse(&self) {
        self.with(|state| {
            state.listening = false;
            state.cut = Some(Which::All);
        });
    }

    /// Accepts new connections again after [`refuse`](Self::refuse). Other faults go on.
    pub fn accept(&self) {
        self.with(|state| state.listening = true);
    }

    /// Holds all data in either direction, the end of a connection included, until [`heal`](Self::heal) delivers it, or a
    /// [`cut`](Self::cut) drops it.
    ///
    /// New connections succeed, and then are as silent. A connection counts as one for commands until it sends its first
    /// subscription. So while those are held, a client that waits for replies before it subscribes does not get that far.
    pub fn blackhole(&self, which: Which) {
        self.with(move |state| state.faults(which).for_each(|faults| faults.blackhole = true));
    }

    /// Holds all data on the connections that are open now, in both directions, until [`heal`](Self::heal) or a
    /// [`cut`](Self::cut). New connections work: to a client the old ones look half-open.
    pub fn half_open(&self, which: Which) {
        self.with(move |state| {
            let open = state.connections.values_mut().filter(|open| which.covers(open.kind));
            open.for_each(|open| open.held = true);
        });
    }

    /// Holds the data from the server, until [`heal`](Self::heal) delivers it or a [`cut`](Self::cut) drops it. The server
    /// receives and executes all commands of clients, on new connections, too.
    pub fn hold_replies(&self, which: Which) {
        self.with(move |state| state.faults(which).for_each(|faults| faults.one_way = Some(Toward::Client)));
    }

    /// Holds the data from clients, until [`heal`](Self::heal) delivers it or a [`cut`](Self::cut) drops it. What the server sends
    /// arrives.
    pub fn hold_requests(&self, which: Which) {
        self.with(move |state| state.faults(which).for_each(|faults| faults.one_way = Some(Toward::Server)));
    }

    /// Holds all data on the connections of this process of the same machine, in both directions, until [`heal`](Self::heal) or a
    /// [`cut`](Self::cut). Those of other processes work.
    pub fn hold_process(&self, process: u32) {
        self.with(move |state| state.hold_process(process));
    }

    /// Connects new clients to the server at this port. Open connections stay where they are.
    pub fn lead_to(&self, server: u16) {
        self.with(move |state| state.server = server);
    }

    /// Delays all data from the server by this time from now on, until [`heal`](Self::heal).
    pub fn delay(&self, which: Which, time: Duration) {
        self.with(move |state| state.faults(which).for_each(|faults| faults.delay = time));
    }

    /// Drops messages, and nothing else that is sent to subscribers, until [`heal`](Self::heal).
    pub fn drop_messages(&self) {
        self.with(|state| state.faults(Which::All).for_each(|faults| faults.drop_messages = true));
    }

    /// Loses the next reply: the server has executed the command, but the connection closes instead.
    ///
    /// The replies to `HELLO`, `AUTH`, `CLIENT`, `COMMAND` and `SELECT`, by which clients set up connections, are
    /// never lost.
    pub fn lose_reply_once(&self, which: Which) {
        self.with(move |state| state.losses.next = Some(which));
    }

    /// Loses the first reply to each command as [`lose_reply_once`](Self::lose_reply_once), until
    /// [`heal`](Self::heal). A command with the same bytes, on whichever connection, gets its reply.
    pub fn lose_each_reply_once(&self, which: Which) {
        self.with(move |state| state.losses.each = Some(which));
    }

    /// Forwards only a half of the next bytes in this direction, and then closes that connection. For a proxy that was
    /// [started](Self::start_opaque) for TLS.
    pub fn cut_inside(&self, toward: Toward) {
        self.with(move |state| state.cut_inside = Some(toward));
    }

    /// The bytes of all connections since the start, in the order in which these were accepted. For a proxy that was
    /// [started](Self::start_opaque) for TLS.
    #[must_use]
    pub fn recordings(&self) -> Vec<Recording> {
        self.with(|state| state.recordings.iter().flat_map(|all| all.values().cloned()).collect())
    }

    /// Ends all faults. Held data is delivered, and delayed data still arrives at its time.
    pub fn heal(&self) {
        self.with(State::heal);
    }

    /// Takes the commands sent since the last call, in the order in which they arrived here.
    #[must_use]
    pub fn take_sent(&self) -> Vec<Sent> {
        self.with(|state| std::mem::take(&mut state.sent))
    }

    /// The counts since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.with(|state| state.counts)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self, which: Which) -> usize {
        self.with(move |state| state.connections.values().filter(|open| which.covers(open.kind)).count())
    }

    /// Runs an action on the proxy's thread, and waits until it has taken effect.
    fn with<T: Send + 'static>(&self, action: impl FnOnce(&mut State) -> T + Send + 'static) -> T {
        let (result, answer) = mpsc::channel();
        let (done, effect) = mpsc::channel();
        let action = Box::new(move |state: &mut State| result.send(action(state)).expect("the caller waits"));
        let controls = self.controls.as_ref().expect("it is not dropped yet");
        assert!(controls.send(Control { action, done }).is_ok(), "the proxy has failed");
        effect.recv().expect("the proxy has not failed");
        answer.recv().expect("the action has been done")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.controls = None;
        let ended = self.thread.take().map(thread::JoinHandle::join);
        // A test must not pass if its proxy could not parse the traffic.
        assert!(thread::panicking() || !matches!(ended, Some(Err(_))), "the proxy has failed");
    }
}
