//! One connection of a proxy: from the client to the server and back.

use std::{cell::RefCell, future, io, net::Ipv4Addr, time::Duration};

use tokio::{
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};

use super::{
    exchange::{Command, Exchange, Received},
    faults::Kind,
    hub::{Hub, Sent, Toward},
};
use crate::resp;

/// Bytes to forward, and the earliest time for that. The end of the queue is the end of the connection.
struct Chunk {
    bytes: Vec<u8>,
    due: Instant,
}

/// Forwards in both directions until either side has closed and all its bytes are delivered.
///
/// # Errors
///
/// When the server cannot be reached, or either side breaks off.
///
/// # Panics
///
/// When either side does not speak the protocol, unless that does not matter.
pub(super) async fn relay(hub: &Hub, id: usize, client: TcpStream, server: u16) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let exchange = RefCell::new(Exchange::default());
    let (commands, to_server) = unbounded_channel();
    let (replies, to_client) = unbounded_channel();
    let up = Direction { hub, id, toward: Toward::Server, from: &client, to: &server };
    let down = Direction { hub, id, toward: Toward::Client, from: &server, to: &client };
    if hub.state.borrow().recordings.is_some() {
        return tokio::select! {
            delivered = up.deliver(to_server) => delivered,
            delivered = down.deliver(to_client) => delivered,
            () = up.bytes(commands) => Ok(()),
            () = down.bytes(replies) => Ok(()),
        };
    }
    tokio::select! {
        delivered = up.deliver(to_server) => delivered,
        delivered = down.deliver(to_client) => delivered,
        () = up.commands(&exchange, commands) => Ok(()),
        () = down.replies(&exchange, replies) => Ok(()),
    }
}

struct Direction<'a> {
    hub: &'a Hub,
    id: usize,
    toward: Toward,
    from: &'a TcpStream,
    to: &'a TcpStream,
}

impl Direction<'_> {
    /// Reads commands until the client closes, and then leaves the rest to the delivery.
    async fn commands(&self, exchange: &RefCell<Exchange>, queue: UnboundedSender<Chunk>) {
        let mut buffer = Vec::new();
        while let Some(length) = self.read(&mut buffer).await {
            self.hub.state.borrow_mut().counts.from_clients += length;
            while let Some(command) = Command::take(&mut buffer).expect("clients send commands") {
                let sent = Sent { connection: self.id, name: command.name.clone() };
                self.hub.state.borrow_mut().sent.push(sent);
                let bytes = command.bytes.clone();
                exchange.borrow_mut().sent(command);
                self.hub.set_kind(self.id, exchange.borrow().kind);
                let _ = queue.send(Chunk { bytes, due: Instant::now() });
            }
        }
        drop(queue);
        future::pending::<()>().await;
    }

    /// Reads replies until the server closes or one is lost, and then leaves the rest to the delivery.
    async fn replies(&self, exchange: &RefCell<Exchange>, queue: UnboundedSender<Chunk>) {
        let mut buffer = Vec::new();
        'connection: while let Some(length) = self.read(&mut buffer).await {
            self.hub.state.borrow_mut().counts.from_server += length;
            while let Some((value, length)) = resp::parse(&buffer).expect("servers send values") {
                let bytes = buffer.drain(..length).collect();
                let received = exchange.borrow_mut().received(&value);
                let kind = exchange.borrow().kind;
                let state = &mut *self.hub.state.borrow_mut();
                match received {
                    Received::Message if state.faults_of(kind).drop_messages => {
                        state.counts.messages_dropped += 1;
                        continue;
                    }
                    Received::Reply { command } if state.losses.lose(kind, &command) => {
                        state.counts.replies_lost += 1;
                        break 'connection;
                    }
                    _ => {}
                }
                let due = Instant::now() + state.faults_of(kind).delay;
                let _ = queue.send(Chunk { bytes, due });
            }
        }
        drop(queue);
        future::pending::<()>().await;
    }

    /// Reads bytes until their sender closes or some are to be cut, and then leaves the rest to the delivery.
    async fn bytes(&self, queue: UnboundedSender<Chunk>) {
        let mut buffer = Vec::new();
        while let Some(length) = self.read(&mut buffer).await {
            let mut bytes = std::mem::take(&mut buffer);
            let state = &mut *self.hub.state.borrow_mut();
            let recording = state.recordings.get_or_insert_default().entry(self.id).or_default();
            let (count, record) = match self.toward {
                Toward::Server => (&mut state.counts.from_clients, &mut recording.from_client),
                Toward::Client => (&mut state.counts.from_server, &mut recording.from_server),
            };
            *count += length;
            record.extend(&bytes);
            let is_cut = state.cut_inside.take_if(|toward| *toward == self.toward).is_some();
            if is_cut {
                bytes.truncate(length / 2);
            }
            let delay = match self.toward {
                Toward::Server => Duration::ZERO,
                Toward::Client => state.faults_of(Kind::Command).delay,
            };
            let _ = queue.send(Chunk { bytes, due: Instant::now() + delay });
            if is_cut {
                break;
            }
        }
        drop(queue);
        future::pending::<()>().await;
    }

    /// Reads some bytes, and returns how many; `None` at the end of the stream or on an error.
    async fn read(&self, buffer: &mut Vec<u8>) -> Option<usize> {
        loop {
            self.from.readable().await.ok()?;
            let mut chunk = [0; 16 * 1024];
            match self.from.try_read(&mut chunk) {
                Ok(0) => return None,
                Ok(length) => {
                    buffer.extend(&chunk[..length]);
                    return Some(length);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Delivers the queue, as far as faults allow, and then closes.
    async fn deliver(&self, mut queue: UnboundedReceiver<Chunk>) -> io::Result<()> {
        while let Some(Chunk { bytes, due }) = queue.recv().await {
            sleep_until(due).await;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                self.hub.wait_until_free(self.id, self.toward).await;
                self.to.writable().await?;
                if self.hub.holds(self.id, self.toward) {
                    continue;
                }
                match self.to.try_write(rest) {
                    Ok(length) => rest = &rest[length..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.hub.wait_until_free(self.id, self.toward).await;
        Ok(())
    }
}
