//! A proxy that shares each client's commands out to several connections, and may change replies.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use leasehold_testkit::resp::{self, Value};

/// What becomes of the reply to a command.
type Change = dyn Fn(&[Value], Vec<u8>) -> Vec<u8> + Send + Sync;

/// A proxy on a port of its own. It has one reply for each command, so no messages. It ends with the test.
pub(crate) struct Forwarder {
    port: u16,
}

impl Forwarder {
    /// Sends the commands of each client to the server by this many connections in turn, and their replies back through `change`.
    pub(crate) fn start(
        server: u16,
        connections: usize,
        change: impl Fn(&[Value], Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let change: Arc<Change> = Arc::new(change);
        thread::spawn(move || {
            for client in listener.incoming() {
                let change = Arc::clone(&change);
                let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
                let servers = (0..connections).map(|_| connect()).collect();
                thread::spawn(move || forward(client.unwrap(), servers, &*change));
            }
        });
        Self { port }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }
}

/// Until the client closes.
fn forward(mut client: TcpStream, mut servers: Vec<TcpStream>, change: &Change) {
    let (mut received, mut chunk, mut turn) = (Vec::new(), [0; 4096], 0);
    while let Ok(length @ 1..) = client.read(&mut chunk) {
        received.extend_from_slice(&chunk[..length]);
        while let Some((command, length)) = resp::parse(&received).unwrap() {
            let bytes: Vec<u8> = received.drain(..length).collect();
            // All connections speak the version of the protocol that the client wants.
            let all = if command.elements()[0] == "HELLO" { servers.len() } else { 1 };
            for _ in 0..all {
                turn = (turn + 1) % servers.len();
                servers[turn].write_all(&bytes).unwrap();
                let reply = change(command.elements(), reply(&mut servers[turn]));
                if turn == 0 || all == 1 {
                    client.write_all(&reply).unwrap();
                }
            }
        }
    }
}

/// The next value that a server sends.
fn reply(server: &mut TcpStream) -> Vec<u8> {
    let (mut received, mut chunk) = (Vec::new(), [0; 4096]);
    while resp::parse(&received).unwrap().is_none() {
        let length = server.read(&mut chunk).unwrap();
        assert!(length > 0, "the server has closed a connection");
        received.extend_from_slice(&chunk[..length]);
    }
    received
}
