//! A sentinel that announces a failover.
//!
//! Real sentinels name a new primary some time before they announce it, so a client of theirs may have asked by then.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use leasehold::Client;
use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::{Flavour, Server};

use crate::fake::{Fake, set_up};
use crate::{SECOND, until};

const LABEL: &str = "follows";
const CHANNEL: &str = "+switch-master";

/// What the sentinel knows.
struct State {
    /// The port of the primary, and the epoch in which it became that.
    primary: (u16, u64),
    /// How often it was asked.
    asked: usize,
    /// The connections that listen to announcements.
    listeners: Vec<TcpStream>,
}

impl State {
    fn announce(&mut self) {
        let payload = "main 127.0.0.1 1 127.0.0.1 2";
        for listener in &mut self.listeners {
            listener.write_all(&texts('>', &["message", CHANNEL, payload])).unwrap();
        }
    }
}

/// An array or a push of texts.
fn texts(kind: char, texts: &[&str]) -> Vec<u8> {
    let each = texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len()));
    format!("{kind}{}\r\n{}", texts.len(), each.collect::<String>()).into_bytes()
}

fn answer(state: &Mutex<State>, command: &[Value], client: &TcpStream) -> Vec<u8> {
    if let Some(reply) = set_up(command, "sentinel", "sentinel") {
        return reply;
    }
    let mut state = state.lock().unwrap();
    let (port, epoch) = state.primary;
    match (command[0].as_str().unwrap(), command[1].as_str().unwrap()) {
        ("SUBSCRIBE", _) => {
            state.listeners.push(client.try_clone().unwrap());
            format!(">3\r\n+subscribe\r\n+{CHANNEL}\r\n:1\r\n").into_bytes()
        }
        ("SENTINEL", "MYID") => b"+its-own\r\n".into(),
        ("SENTINEL", "GET-MASTER-ADDR-BY-NAME") => texts('*', &["127.0.0.1", &port.to_string()]),
        ("SENTINEL", "MASTER") => {
            state.asked += 1;
            texts('*', &["config-epoch", &epoch.to_string()])
        }
        ("SENTINEL", "SENTINELS") => b"*0\r\n".into(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_announced_failover_is_followed_before_the_sentinel_is_asked_again() {
    let servers = [(); 2].map(|()| Server::start(Flavour::Redis));
    let state = State { primary: (servers[0].port(), 1), asked: 0, listeners: Vec::new() };
    let state = Arc::new(Mutex::new(state));
    let answers = Arc::clone(&state);
    let sentinel = Fake::start(move |command, client| answer(&answers, command, client));
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let client = Client::connect(url).label(LABEL).await.unwrap();
    let is_at = |server: &Server| {
        server.cli(&["CLIENT", "LIST"]).as_str().is_some_and(|list| list.contains(&format!("name={LABEL}")))
    };
    assert!(is_at(&servers[0]));

    // It is asked about once a second: the next time is far away.
    let asked = state.lock().unwrap().asked;
    until("the sentinel is asked", || state.lock().unwrap().asked > asked).await;
    let announced = Stopwatch::start();
    {
        let mut state = state.lock().unwrap();
        state.primary = (servers[1].port(), 2);
        state.announce();
    }
    until("the client is at the new primary", || is_at(&servers[1])).await;
    let followed = announced.elapsed();
    assert!(followed < SECOND / 2, "{followed:?} after the announcement");
    until("the client has left the old primary", || !is_at(&servers[0])).await;
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}
