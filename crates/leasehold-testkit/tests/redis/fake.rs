//! A server with scripted replies.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use leasehold_testkit::resp::{self, Value};

/// A server on a port of its own. It ends with the test.
pub(crate) struct Fake {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Fake {
    /// Replies to each command by `answer`, which gets the words of the command and may write more itself.
    pub(crate) fn start(
        answer: impl Fn(&[Value], &mut TcpStream) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(client.unwrap(), answer.as_ref()));
            }
        });
        Self { port, connections }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Until the client closes, or stops reading.
fn serve(mut client: TcpStream, answer: &dyn Fn(&[Value], &mut TcpStream) -> Vec<u8>) {
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut chunk) {
        received.extend_from_slice(&chunk[..length]);
        while let Some((command, length)) = resp::parse(&received).unwrap() {
            received.drain(..length);
            let reply = answer(command.elements(), &mut client);
            if client.write_all(&reply).is_err() {
                return;
            }
        }
    }
}

/// The replies of a server of this mode and role to the commands that set up a connection.
pub(crate) fn set_up(command: &[Value], mode: &str, role: &str) -> Option<Vec<u8>> {
    let reply = match command[0].as_str()? {
        "HELLO" => format!("%3\r\n+id\r\n:7\r\n+mode\r\n+{mode}\r\n+role\r\n+{role}\r\n"),
        "CLIENT" if command[1] == "ID" => ":7\r\n".into(),
        "CLIENT" | "SELECT" => "+OK\r\n".into(),
        "COMMAND" => "*2\r\n_\r\n_\r\n".into(),
        _ => return None,
    };
    Some(reply.into_bytes())
}
