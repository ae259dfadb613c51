//! The proxy: its records, and each of its faults.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use leasehold_testkit::{
    proxy::{Proxy, Recording, Sent, Toward, Which},
    resp::{Connection, Value},
    server::{Flavour, Server},
};
use tokio::time::Instant;

use crate::until;

/// Long enough to see that nothing arrives.
const MOMENT: Duration = Duration::from_millis(50);

fn start() -> (Server, Proxy) {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

fn open(proxy: &Proxy) -> Connection {
    Connection::open(proxy.port()).expect("the proxy listens")
}

/// Subscribes a connection, in RESP2 or 3.
fn subscriber(proxy: &Proxy, version: &str) -> Connection {
    let mut connection = open(proxy);
    connection.call(&["HELLO", version]).expect("the proxy forwards");
    let confirmed = connection.call(&["SUBSCRIBE", "c"]).expect("the proxy forwards");
    assert_eq!(confirmed.elements()[0], "subscribe");
    connection
}

fn silent(connection: &mut Connection) -> bool {
    connection.timeout(MOMENT).expect("the time is not zero");
    let received = connection.receive();
    connection.timeout(Connection::TIMEOUT).expect("the time is not zero");
    match received {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Ok(_) => false,
        Err(error) => panic!("neither silent nor received: {error}"),
    }
}

fn closed<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    let closings = [
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::ConnectionAborted,
    ];
    closings.contains(&result.expect_err("the connection is closed").kind())
}

fn sent(connection: usize, name: &str) -> Sent {
    Sent { connection, name: name.into() }
}

#[test]
fn commands_and_bytes_are_recorded_for_each_connection() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        let (mut first, mut second) = (open(&proxy), open(&proxy));
        assert_eq!(first.call(&["set", "k", "v"]).unwrap(), "OK");
        assert_eq!(second.call(&["GET", "k"]).unwrap(), "v");
        first.send(&["INCR", "n"]).unwrap();
        first.send(&["EVAL", "return redis.call('INCR', 'n')", "0"]).unwrap();
        assert_eq!((first.receive().unwrap(), first.receive().unwrap()), (Value::Int(1), Value::Int(2)));
        assert_eq!(proxy.take_sent(), [sent(0, "SET"), sent(1, "GET"), sent(0, "INCR"), sent(0, "EVAL")]);
        assert_eq!(proxy.take_sent(), []);
        let counts = proxy.counts();
        assert_eq!(counts.connections, 2);
        assert_eq!(counts.from_server, "+OK\r\n$1\r\nv\r\n:1\r\n:2\r\n".len());
        assert!(counts.from_clients > counts.from_server);
        assert_eq!(proxy.url(), format!("redis://127.0.0.1:{}", proxy.port()));
    }
}

#[test]
fn large_values_pass_the_proxy_unchanged() {
    let (server, proxy) = start();
    let mut connection = open(&proxy);
    let large = "0123456789".repeat(300_000);
    assert_eq!(connection.call(&["SET", "k", &large]).unwrap(), "OK");
    assert_eq!(connection.call(&["GET", "k"]).unwrap(), large.as_str());
    assert_eq!(server.cli(&["STRLEN", "k"]), 3_000_000);
}

#[test]
fn the_end_of_a_connection_is_forwarded_in_both_directions() {
    let (mut server, proxy) = start();
    let (mut first, second) = (open(&proxy), open(&proxy));
    first.call(&["PING"]).unwrap();
    assert_eq!(proxy.open(Which::All), 2);
    drop(second);
    until("the end of the second connection", || proxy.open(Which::All) == 1);
    server.kill();
    assert!(closed(first.receive()));
    until("the end of the first connection", || proxy.open(Which::All) == 0);
    // There is no server behind the proxy, so it closes the connections that it accepts.
    assert!(closed(open(&proxy).call(&["PING"])));
    server.restart();
    assert_eq!(open(&proxy).call(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_cut_closes_connections_of_its_kind_and_admits_new_connections() {
    let (_server, proxy) = start();
    for (which, command_closed, pub_sub_closed) in
        [(Which::Command, true, false), (Which::PubSub, false, true), (Which::All, true, true)]
    {
        let mut command = open(&proxy);
        command.call(&["PING"]).unwrap();
        let mut pub_sub = subscriber(&proxy, "2");
        assert_eq!(
            (proxy.open(Which::Command), proxy.open(Which::PubSub), proxy.open(Which::All)),
            (1, 1, 2)
        );
        proxy.cut(which);
        let left = (usize::from(!command_closed), usize::from(!pub_sub_closed));
        assert_eq!((proxy.open(Which::Command), proxy.open(Which::PubSub)), left);
        for (connection, is_closed) in [(&mut command, command_closed), (&mut pub_sub, pub_sub_closed)] {
            if is_closed {
                assert!(closed(connection.call(&["PING"])));
            } else {
                connection.call(&["PING"]).unwrap();
            }
        }
        proxy.cut(Which::All);
    }
    assert_eq!(open(&proxy).call(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_cut_also_closes_connections_opened_just_before() {
    let (_server, proxy) = start();
    for _ in 0..50 {
        let mut connection = open(&proxy);
        proxy.cut(Which::All);
        assert!(closed(connection.call(&["PING"])));
    }
}

#[test]
fn the_proxy_refuses_connections_until_healed() {
    let (_server, proxy) = start();
    let mut connection = open(&proxy);
    connection.call(&["PING"]).unwrap();
    proxy.refuse();
    assert!(closed(connection.call(&["PING"])));
    for _ in 0..2 {
        let error = Connection::open(proxy.port()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // A cut in addition admits no connection.
        proxy.cut(Which::All);
    }
    proxy.heal();
    assert_eq!(open(&proxy).call(&["PING"]).unwrap(), "PONG");
}

/// Otherwise the server of another test could reply to the clients of this one.
#[test]
fn the_port_of_a_proxy_that_refuses_connections_stays_its_own() {
    let (_server, proxy) = start();
    for _ in 0..3 {
        let mut connection = open(&proxy);
        connection.call(&["PING"]).unwrap();
        proxy.refuse();
        let taken = TcpListener::bind(("127.0.0.1", proxy.port()));
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        proxy.heal();
    }
}

#[test]
fn a_proxy_refuses_and_heals_while_other_threads_start_processes() {
    let (_server, proxy) = start();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Not for ever, if the proxy has failed.
            for _ in 0..2_000 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                Command::new("true").status().unwrap();
            }
        });
        for _ in 0..500 {
            proxy.refuse();
            proxy.heal();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(open(&proxy).call(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_black_hole_holds_commands_until_healed_and_closes_no_connection() {
    let (server, proxy) = start();
    let (mut old, mut abandoned) = (open(&proxy), open(&proxy));
    for connection in [&mut old, &mut abandoned] {
        connection.call(&["PING"]).unwrap();
    }
    proxy.blackhole(Which::All);
    assert_eq!(proxy.take_sent().len(), 2);
    let mut new = open(&proxy);
    for (connection, key) in [(&mut old, "old"), (&mut new, "new"), (&mut abandoned, "abandoned")] {
        connection.send(&["INCR", key]).unwrap();
        assert!(silent(connection));
    }
    drop(abandoned);
    // All was sent, none has arrived, and nothing is closed.
    assert_eq!(proxy.take_sent(), [sent(0, "INCR"), sent(2, "INCR"), sent(1, "INCR")]);
    assert_eq!(server.cli(&["EXISTS", "old", "new", "abandoned"]), 0);
    assert_eq!(proxy.open(Which::All), 3);
    proxy.heal();
    assert_eq!((old.receive().unwrap(), new.receive().unwrap()), (Value::Int(1), Value::Int(1)));
    until("what was sent before the end", || server.cli(&["GET", "abandoned"]) == "1");
    until("the end", || proxy.open(Which::All) == 2);
}

#[test]
fn a_black_hole_holds_replies_and_the_close_by_the_server() {
    let (mut server, proxy) = start();
    let mut connection = open(&proxy);
    connection.send(&["BLPOP", "list", "0"]).unwrap();
    until("the command", || {
        server.cli(&["CLIENT", "LIST"]).as_str().is_some_and(|list| list.contains("blpop"))
    });
    proxy.blackhole(Which::All);
    server.cli(&["RPUSH", "list", "v"]);
    server.kill();
    assert!(silent(&mut connection));
    proxy.heal();
    assert_eq!(connection.receive().unwrap().elements()[1], "v");
    assert!(closed(connection.receive()));
}

#[test]
fn a_cut_discards_commands_held_by_a_black_hole() {
    let (server, proxy) = start();
    let mut connection = open(&proxy);
    proxy.blackhole(Which::All);
    connection.send(&["INCR", "k"]).unwrap();
    until("the command", || !proxy.take_sent().is_empty());
    proxy.cut(Which::All);
    proxy.heal();
    assert!(closed(connection.receive()));
    assert_eq!(server.cli(&["EXISTS", "k"]), 0);
}

#[test]
fn half_open_connections_are_silent_and_new_connections_work() {
    let (server, proxy) = start();
    let mut old = open(&proxy);
    old.call(&["PING"]).unwrap();
    proxy.half_open(Which::All);
    old.send(&["INCR", "old"]).unwrap();
    assert!(silent(&mut old));
    assert_eq!(open(&proxy).call(&["INCR", "new"]).unwrap(), 1);
    assert_eq!(server.cli(&["EXISTS", "old", "new"]), 1);
    proxy.heal();
    assert_eq!(old.receive().unwrap(), 1);
}

#[test]
fn replies_can_be_held_while_commands_pass() {
    let (server, proxy) = start();
    let mut old = open(&proxy);
    old.call(&["PING"]).unwrap();
    proxy.hold_replies(Which::Command);
    let mut new = open(&proxy);
    for (connection, key) in [(&mut old, "old"), (&mut new, "new")] {
        connection.send(&["INCR", key]).unwrap();
        assert!(silent(connection));
    }
    until("both commands", || server.cli(&["EXISTS", "old", "new"]) == 2);
    proxy.heal();
    assert_eq!((old.receive().unwrap(), new.receive().unwrap()), (Value::Int(1), Value::Int(1)));
}

#[test]
fn a_black_hole_can_affect_one_kind_of_connection() {
    let (server, proxy) = start();
    for version in ["2", "3"] {
        let mut command = open(&proxy);
        command.call(&["PING"]).unwrap();
        let mut pub_sub = subscriber(&proxy, version);
        proxy.blackhole(Which::PubSub);
        server.cli(&["PUBLISH", "c", "held"]);
        assert_eq!(command.call(&["PING"]).unwrap(), "PONG");
        assert!(silent(&mut pub_sub));
        proxy.heal();
        assert_eq!(pub_sub.receive().unwrap().elements()[2], "held");

        proxy.blackhole(Which::Command);
        server.cli(&["PUBLISH", "c", "through"]);
        assert_eq!(pub_sub.receive().unwrap().elements()[2], "through");
        command.send(&["PING"]).unwrap();
        assert!(silent(&mut command));
        proxy.heal();
        assert_eq!(command.receive().unwrap(), "PONG");
    }
}

#[test]
fn a_delay_applies_to_each_reply_and_does_not_accumulate() {
    let (server, proxy) = start();
    let mut connection = open(&proxy);
    let delay = Duration::from_millis(100);
    proxy.delay(Which::Command, delay);
    let start = Instant::now();
    for _ in 0..100 {
        connection.send(&["INCR", "k"]).unwrap();
    }
    until("that the server has executed them", || server.cli(&["GET", "k"]) == "100");
    for n in 1..=100 {
        assert_eq!(connection.receive().unwrap(), n);
    }
    let took = start.elapsed();
    assert!(took >= delay, "{took:?}");
    assert!(took < delay * 50, "they were delayed one after the other: {took:?}");
    // The other kind of connection is not affected.
    let mut pub_sub = open(&proxy);
    pub_sub.call(&["SUBSCRIBE", "c"]).unwrap();
    server.cli(&["PUBLISH", "c", "p"]);
    assert_eq!(pub_sub.receive().unwrap().elements()[2], "p");
}

#[test]
fn one_reply_is_lost_after_its_command_was_executed() {
    for version in ["2", "3"] {
        let (server, proxy) = start();
        proxy.lose_reply_once(Which::All);
        let mut connection = open(&proxy);
        connection.call(&["HELLO", version]).unwrap();
        assert!(closed(connection.call(&["INCR", "k"])));
        assert_eq!(server.cli(&["GET", "k"]), "1");
        assert_eq!(proxy.counts().replies_lost, 1);
        assert_eq!(open(&proxy).call(&["INCR", "k"]).unwrap(), 2);
    }
}

#[test]
fn replies_before_the_lost_reply_still_arrive() {
    let (_server, proxy) = start();
    let mut connection = open(&proxy);
    proxy.lose_each_reply_once(Which::All);
    assert!(closed(connection.call(&["INCR", "a"])));
    proxy.delay(Which::All, MOMENT);
    let mut connection = open(&proxy);
    connection.send(&["INCR", "a"]).unwrap();
    connection.send(&["INCR", "b"]).unwrap();
    connection.send(&["INCR", "a"]).unwrap();
    assert_eq!(connection.receive().unwrap(), 2);
    assert!(closed(connection.receive()));
}

#[test]
fn each_command_loses_only_its_first_reply() {
    let (server, proxy) = start();
    proxy.lose_each_reply_once(Which::Command);
    for key in ["a", "b"] {
        assert!(closed(open(&proxy).call(&["INCR", key])));
        let mut connection = open(&proxy);
        assert_eq!(connection.call(&["INCR", key]).unwrap(), 2);
        assert_eq!(connection.call(&["INCR", key]).unwrap(), 3);
    }
    // The other kind of connection is not affected.
    subscriber(&proxy, "3").call(&["UNSUBSCRIBE", "c"]).unwrap();
    proxy.heal();
    assert_eq!(open(&proxy).call(&["INCR", "c"]).unwrap(), 1);
    assert_eq!(proxy.counts().replies_lost, 2);
    assert_eq!(server.cli(&["MGET", "a", "b", "c"]), Value::Array(vec!["3".into(), "3".into(), "1".into()]));
}

#[test]
fn the_confirmation_of_a_subscription_can_be_lost() {
    for version in ["2", "3"] {
        let (_server, proxy) = start();
        proxy.lose_each_reply_once(Which::PubSub);
        let mut connection = open(&proxy);
        connection.call(&["HELLO", version]).unwrap();
        connection.call(&["PING"]).unwrap();
        assert!(closed(connection.call(&["SUBSCRIBE", "c"])));
        subscriber(&proxy, version);
    }
}

#[test]
fn the_proxy_drops_messages_and_no_replies() {
    for version in ["2", "3"] {
        let (server, proxy) = start();
        let mut pub_sub = subscriber(&proxy, version);
        assert_eq!(pub_sub.call(&["PSUBSCRIBE", "d*"]).unwrap().elements()[0], "psubscribe");
        proxy.drop_messages();
        assert_eq!(server.cli(&["PUBLISH", "c", "dropped"]), 1);
        assert_eq!(server.cli(&["PUBLISH", "d1", "dropped"]), 1);
        assert_eq!(pub_sub.call(&["SUBSCRIBE", "e"]).unwrap().elements()[0], "subscribe");
        assert_eq!(proxy.counts().messages_dropped, 2);
        proxy.heal();
        server.cli(&["PUBLISH", "c", "heard"]);
        assert_eq!(pub_sub.receive().unwrap().elements()[2], "heard");
    }
}

#[tokio::test(start_paused = true)]
async fn the_proxy_works_while_the_runtime_of_the_test_is_blocked_and_its_clock_is_paused() {
    let (_server, proxy) = start();
    proxy.delay(Which::All, MOMENT);
    assert_eq!(open(&proxy).call(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let (_server, proxy) = start();
    let mut connection = open(&proxy);
    connection.call(&["PING"]).unwrap();
    let port = proxy.port();
    proxy.blackhole(Which::All);
    drop(proxy);
    assert!(closed(connection.receive()));
    assert_eq!(Connection::open(port).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_test_fails_when_its_proxy_could_not_parse_a_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap().port());
    let mut connection = open(&proxy);
    connection.send(&["PING"]).unwrap();
    io::Write::write_all(&mut listener.accept().unwrap().0, b"HTTP/1.1 400\r\n").unwrap();
    assert!(closed(connection.receive()));
    assert!(thread::spawn(move || drop(proxy)).join().is_err());
}

#[test]
fn a_command_on_a_half_open_connection_is_executed_after_healing() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let mut old = Connection::open(proxy.port()).unwrap();
    assert_eq!(old.call(&["SET", "a", "1"]).unwrap(), "OK");
    proxy.half_open(Which::All);
    old.send(&["SET", "a", "2"]).unwrap();
    let mut new = Connection::open(proxy.port()).unwrap();
    assert_eq!(new.call(&["GET", "a"]).unwrap(), "1");
    proxy.heal();
    assert_eq!(old.receive().unwrap(), "OK");
    assert_eq!(new.call(&["GET", "a"]).unwrap(), "2");
}

#[test]
fn new_connections_are_redirected_to_another_server() {
    let (first, second) = (Server::start(Flavour::Redis), Server::start(Flavour::Redis));
    let proxy = Proxy::start(first.port());
    let mut old = Connection::open(proxy.port()).unwrap();
    assert_eq!(old.call(&["SET", "a", "first"]).unwrap(), "OK");
    proxy.lead_to(second.port());
    let mut new = Connection::open(proxy.port()).unwrap();
    assert_eq!(new.call(&["SET", "a", "second"]).unwrap(), "OK");
    assert_eq!(old.call(&["GET", "a"]).unwrap(), "first");
    assert_eq!(second.cli(&["GET", "a"]), "second");
}

/// A pair of sockets with a proxy between them that does not understand what passes.
fn opaque() -> (Proxy, TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = Proxy::start_opaque(listener.local_addr().expect("an address").port());
    let client = TcpStream::connect(("127.0.0.1", proxy.port())).expect("the proxy listens");
    let (server, _) = listener.accept().expect("the proxy connects");
    for end in [&client, &server] {
        end.set_read_timeout(Some(Connection::TIMEOUT)).expect("the time is not zero");
    }
    (proxy, listener, client, server)
}

#[test]
fn an_opaque_proxy_forwards_and_records_any_bytes() {
    let (proxy, _listener, mut client, mut server) = opaque();
    let mut received = [0; 3];
    client.write_all(b"\x16\x03\xff").unwrap();
    server.read_exact(&mut received).unwrap();
    assert_eq!(received, *b"\x16\x03\xff");
    server.write_all(b"\r\n\0").unwrap();
    client.read_exact(&mut received).unwrap();
    assert_eq!(received, *b"\r\n\0");
    let recording = Recording { from_client: b"\x16\x03\xff".into(), from_server: b"\r\n\0".into() };
    assert_eq!(proxy.recordings(), [recording]);
    assert_eq!((proxy.counts().from_clients, proxy.counts().from_server), (3, 3));
    proxy.cut(Which::All);
    assert!(matches!(client.read(&mut received), Ok(0) | Err(_)));
}

#[test]
fn a_proxy_can_cut_a_connection_inside_what_it_forwards() {
    for toward in [Toward::Client, Toward::Server] {
        let (proxy, _listener, client, server) = opaque();
        let (mut from, mut to) = if toward == Toward::Client { (server, client) } else { (client, server) };
        proxy.cut_inside(toward);
        from.write_all(b"12345678").unwrap();
        let mut received = Vec::new();
        to.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"1234", "{toward:?}");
    }
}
