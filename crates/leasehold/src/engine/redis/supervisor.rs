//! Who keeps one connection for commands alive, and what is owed on it in mind.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use super::connection::{Settings, Trouble};
use super::desk::{BETWEEN_TRIES, Desk};
use super::hints::Hints;
use super::io::{Message, Pipe};
use super::keeper::Keeper;
use super::lasting::Lasting;
use super::link::{Identity, Link};
use super::reconnect::Reconnect;
use crate::engine::Spot;
use crate::error::Failure;
use crate::time::jittered;

/// Keeps one connection for commands alive, and what is owed on it in mind.
pub(super) struct Supervisor {
    settings: Settings,
    pipe: Pipe,
    keeper: Arc<Keeper>,
    hints: Arc<Hints>,
    desk: Arc<Desk>,
    /// How many links there were.
    links: u64,
    /// Calls that last and wait for a connection.
    waiting: Vec<Lasting>,
    /// How many calls that last and notes there are.
    open: usize,
    closing: Option<oneshot::Sender<()>>,
    /// Whether every connection that broke was ended on the server, too.
    no_ghosts: bool,
    /// Connections that broke and may still have something of ours to do.
    dead: Vec<Dead>,
}

/// A connection that broke.
struct Dead {
    identity: Option<Identity>,
    /// Whose steps had no reply on it.
    unanswered: Vec<Spot>,
}

impl Dead {
    fn new(link: Link) -> Self {
        Self { unanswered: link.connection.end(), identity: link.identity }
    }
}

impl Supervisor {
    pub(super) fn new(
        settings: Settings,
        pipe: Pipe,
        desk: Arc<Desk>,
        keeper: Arc<Keeper>,
        hints: Arc<Hints>,
    ) -> Self {
        Self {
            settings,
            pipe,
            keeper,
            hints,
            desk,
            links: 1,
            waiting: Vec::new(),
            open: 0,
            closing: None,
            no_ghosts: true,
            dead: Vec::new(),
        }
    }

    pub(super) async fn run(mut self, mut messages: UnboundedReceiver<Message>) {
        let mut reconnect = Reconnect::default();
        let mut opening = Box::pin(open_after(Duration::ZERO, self.settings.clone(), 0, self.pipe.clone()));
        let mut is_opening = false;
        loop {
            if !is_opening && !self.desk.is_linked() {
                let pause = reconnect.pause();
                opening.set(open_after(pause, self.settings.clone(), self.links, self.pipe.clone()));
                is_opening = true;
            }
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                opened = &mut opening, if is_opening => {
                    is_opening = false;
                    match opened {
                        Ok(link) => {
                            reconnect.opened();
                            self.connected(link).await;
                        }
                        Err(failure) => {
                            reconnect.failed("commands", &failure);
                            self.hints.not_connected_because(failure);
                        }
                    }
                }
            }
            self.end_if_settled();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Last(lasting) => {
                self.open += 1;
                self.last(lasting);
            }
            Message::Again(lasting) => self.last(lasting),
            Message::Forget(note) => {
                // Without a connection it goes when the record does.
                let Some((connection, _)) = self.desk.connection() else { return };
                let pipe = self.pipe.clone();
                self.open += 1;
                tokio::spawn(async move {
                    drop(connection.send(note.removal()).await);
                    pipe.tell(Message::Ended);
                });
            }
            Message::Ended => self.open -= 1,
            Message::Tried(unsettled, outcome, None) => self.desk.tried(unsettled, outcome),
            Message::Tried(unsettled, outcome, Some(pause)) => {
                let pipe = self.pipe.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    pipe.tell(Message::Tried(unsettled, outcome, None));
                });
            }
            Message::Broken(number) => {
                if let Some(link) = self.desk.link_down(number) {
                    tracing::debug!("the connection is replaced");
                    self.dead.push(Dead::new(link));
                    self.hints.outage(true);
                }
            }
            Message::Close(done) => self.closing = Some(done),
        }
    }

    async fn connected(&mut self, link: Link) {
        self.links += 1;
        // What a dead connection still has to do must not happen after it was undone.
        let mut killed = Vec::with_capacity(self.dead.len());
        for Dead { identity, .. } in &self.dead {
            let Some(identity) = identity else {
                killed.push(false);
                continue;
            };
            match link.connection.send(identity.kill()).await {
                Ok(_) => killed.push(true),
                Err(Trouble::Refused(_) | Trouble::NoScript) => killed.push(false),
                Err(Trouble::Broken(_)) => {
                    // Broken again: another link will have to do it.
                    self.dead.push(Dead::new(link));
                    return;
                }
            }
        }
        let dead = std::mem::take(&mut self.dead).into_iter().zip(killed);
        let ghosts: Vec<_> = dead.filter(|(_, killed)| !killed).map(|(dead, _)| dead.unanswered).collect();
        self.no_ghosts &= ghosts.is_empty();
        self.desk
            .link_up(link, Some(ghosts).filter(|ghosts| !ghosts.is_empty()).map(|ghosts| ghosts.concat()));
        for lasting in std::mem::take(&mut self.waiting) {
            self.last(lasting);
        }
        self.keeper.check_all();
        self.hints.outage(false);
    }

    /// Sends a call that lasts, or keeps it until there is a connection.
    fn last(&mut self, mut lasting: Lasting) {
        let Some((connection, number)) = self.desk.connection() else {
            self.waiting.push(lasting);
            return;
        };
        if !lasting.begin() {
            self.open -= 1;
            return;
        }
        // A dead connection that still acts would not recognise what is taken off the record.
        let forget = self.no_ghosts || lasting.is_first();
        let pipe = self.pipe.clone();
        tokio::spawn(async move {
            match lasting.send(&connection).await {
                Ok(answer) => {
                    let forget = forget && answer.is_ok();
                    let note = lasting.answer(answer);
                    if forget {
                        drop(connection.send(note.removal()).await);
                    }
                    pipe.tell(Message::Ended);
                }
                Err(Trouble::Broken(_)) => {
                    pipe.tell(Message::Broken(number));
                    pipe.tell(Message::Again(lasting));
                }
                Err(_) => {
                    tokio::time::sleep(jittered(BETWEEN_TRIES)).await;
                    pipe.tell(Message::Again(lasting));
                }
            }
        });
    }

    fn end_if_settled(&mut self) {
        if self.closing.is_some() && self.open == 0 && self.desk.is_settled() {
            self.closing.take().map(|done| done.send(()));
        }
    }
}

async fn open_after(pause: Duration, settings: Settings, number: u64, pipe: Pipe) -> Result<Link, Failure> {
    tokio::time::sleep(pause).await;
    Link::open(&settings, number, &pipe).await
}
