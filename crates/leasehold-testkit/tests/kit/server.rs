//! Servers: their settings at the start, the faults that they survive, and that they end.

use std::{
    env,
    io::{self, BufRead as _, BufReader},
    os::unix::net::UnixStream,
    panic,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use leasehold_testkit::{
    certificates::Certificates,
    resp::{Connection, Value},
    server::{Flavour, Message, Server},
};

use crate::until;

#[test]
fn redis_and_valkey_servers_start_in_the_requested_flavour() {
    for (flavour, version) in
        [(Flavour::Redis, "\nredis_version:7."), (Flavour::Valkey, "\nvalkey_version:9.")]
    {
        let server = Server::start(flavour);
        let info = server.cli(&["INFO", "server"]);
        let info = info.as_str().unwrap();
        assert!(info.contains(version), "{info}");
        assert!(info.contains(&format!("\nprocess_id:{}\r", server.pid().unwrap())), "{info}");
        assert_eq!(server.flavour(), flavour);
        assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
        assert_ne!(server.port(), 6379);
        assert!(UnixStream::connect(server.unix_socket()).is_ok());
    }
}

#[test]
fn replies_of_every_type_are_parsed() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        assert_eq!(server.cli(&["GET", "k"]), Value::Nil);
        assert_eq!(server.cli(&["SET", "k", "v\r\n"]), "OK");
        assert_eq!(server.cli(&["GET", "k"]), "v\r\n");
        assert_eq!(server.cli(&["APPEND", "k", "w"]), 4);
        assert_eq!(server.cli(&["MGET", "k", "none"]), Value::Array(vec!["v\r\nw".into(), Value::Nil]));
        assert!(matches!(server.cli(&["INCR", "k"]), Value::Error(text) if text.starts_with("ERR")));
        let mut connection = server.connect();
        // RESP3: a map, and a null that RESP2 does not have.
        let hello = connection.call(&["HELLO", "3"]).unwrap();
        assert!(hello.elements().contains(&Value::Int(3)), "{hello:?}");
        assert_eq!(connection.call(&["GET", "none"]).unwrap(), Value::Nil);
    }
}

#[test]
fn a_restarted_server_keeps_its_port_and_loses_its_data_unless_persistent() {
    for flavour in Flavour::ALL {
        for (builder, kept) in [
            (Server::builder(flavour), Value::Nil),
            (Server::builder(flavour).persistent(), Value::Bulk(b"v".to_vec())),
        ] {
            let mut server = builder.start();
            let (port, pid) = (server.port(), server.pid());
            server.cli(&["SET", "k", "v"]);
            server.kill();
            assert_eq!(server.pid(), None);
            assert_eq!(Connection::open(port).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            server.restart();
            assert_eq!(server.cli(&["GET", "k"]), kept);
            // And once more, from a running server.
            server.restart();
            assert_eq!(server.cli(&["GET", "k"]), kept);
            assert_eq!(server.port(), port);
            assert_ne!(server.pid(), pid);
        }
    }
}

#[test]
fn a_paused_server_keeps_its_connections_and_replies_when_resumed() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let mut connection = server.connect();
        server.pause();
        connection.timeout(Duration::from_millis(50)).unwrap();
        let error = connection.call(&["INCR", "k"]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        server.resume();
        connection.timeout(Connection::TIMEOUT).unwrap();
        assert_eq!(connection.receive().unwrap(), 1);
    }
}

#[test]
fn a_server_applies_its_password_and_configuration() {
    for flavour in Flavour::ALL {
        let server = Server::builder(flavour)
            .password("sesame")
            .config("maxmemory 3mb")
            .config("user ann on >secret ~own:* +get +set")
            .start();
        assert_eq!(server.cli(&["CONFIG", "GET", "maxmemory"]).elements()[1], "3145728");
        assert!(server.url().starts_with("redis://:sesame@127.0.0.1:"));
        let mut stranger = Connection::open(server.port()).unwrap();
        let refused = |reply, code| matches!(reply, Value::Error(text) if text.starts_with(code));
        assert!(refused(stranger.call(&["GET", "k"]).unwrap(), "NOAUTH"));
        assert_eq!(stranger.call(&["AUTH", "ann", "secret"]).unwrap(), "OK");
        assert_eq!(stranger.call(&["GET", "own:k"]).unwrap(), Value::Nil);
        assert!(refused(stranger.call(&["GET", "k"]).unwrap(), "NOPERM"));
        // The server's own methods use the password.
        assert!(server.monitor().take().is_empty());
        assert!(server.subscribe(&["c"]).take().is_empty());
    }
}

#[test]
fn an_invalid_configuration_fails_the_start_of_the_server() {
    for flavour in Flavour::ALL {
        let panic =
            panic::catch_unwind(|| Server::builder(flavour).config("no-such-thing 1").start()).unwrap_err();
        let message = panic.downcast::<String>().unwrap();
        assert!(message.contains("instead of starting"), "{message}");
    }
}

#[test]
fn a_monitor_distinguishes_commands_of_clients_from_commands_of_scripts() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        server.cli(&["GET", "before"]);
        let (mut monitor, mut other) = (server.monitor(), server.monitor());
        server.cli(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"]);
        server.cli(&["GET", "k"]);
        assert_eq!(
            monitor.take_sent(),
            [r#""EVAL" "return redis.call('INCR', KEYS[1])" "1" "k""#, r#""GET" "k""#]
        );
        assert!(monitor.take_sent().is_empty());
        let all = other.take();
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[1].ends_with(r#"[0 lua] "INCR" "k""#), "{all:?}");
    }
}

#[test]
fn a_subscription_records_messages_in_order() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let (mut subscription, mut other) = (server.subscribe(&["a", "b"]), server.subscribe(&["a"]));
        let message = |channel: &str, payload: &str| {
            server.cli(&["PUBLISH", channel, payload]);
            Message { channel: channel.into(), payload: payload.into() }
        };
        let (first, second) = (message("a", "1"), message("b", "2"));
        message("c", "3");
        assert_eq!(subscription.take(), [first.clone(), second]);
        assert_eq!(subscription.take(), []);
        assert_eq!(other.take(), [first]);
        let third = message("b", "4");
        assert_eq!(subscription.wait(), third);
    }
}

/// Whether nothing is left of a server: the port has no listener, and its directory is gone.
fn gone(port: u16, directory: &Path) -> bool {
    Connection::open(port).is_err() && !directory.exists()
}

#[test]
fn a_dropped_server_ends_even_when_paused_or_when_its_owner_panics() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let (port, directory) = (server.port(), server.directory().to_path_buf());
        drop(server);
        assert!(gone(port, &directory));

        let server = Server::start(flavour);
        let (port, directory) = (server.port(), server.directory().to_path_buf());
        server.pause();
        drop(server);
        assert!(gone(port, &directory));

        let server = Server::start(flavour);
        let (port, directory) = (server.port(), server.directory().to_path_buf());
        let owner = std::thread::spawn(move || {
            let _server = server;
            panic::resume_unwind(Box::new("a test fails"));
        });
        assert!(owner.join().is_err());
        assert!(gone(port, &directory));
    }
}

/// Set in the process that owns servers and has to end them.
const OWNER: &str = "LEASEHOLD_KIT_OWNER";

#[test]
fn servers_end_with_the_process_of_their_owner() {
    static SHARED: OnceLock<Server> = OnceLock::new();
    if let Some(ending) = env::var_os(OWNER) {
        // A static value is never dropped.
        let (shared, paused) =
            (SHARED.get_or_init(|| Server::start(Flavour::Redis)), Server::start(Flavour::Valkey));
        paused.pause();
        for server in [shared, &paused] {
            println!("\nserver {} {}", server.port(), server.directory().display());
        }
        if ending == "killed" {
            let _ = io::stdin().read_line(&mut String::new());
        }
        return;
    }
    for ending in ["killed", "returns"] {
        let mut owner = Command::new(env::current_exe().unwrap())
            .args(["--exact", "server::servers_end_with_the_process_of_their_owner", "--nocapture"])
            .env(OWNER, ending)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(owner.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        let servers: Vec<(u16, PathBuf)> = lines
            .filter_map(|line| {
                let (port, directory) = line.strip_prefix("server ")?.split_once(' ')?;
                Some((port.parse().unwrap(), directory.into()))
            })
            .take(2)
            .collect();
        if ending == "killed" {
            for (port, directory) in &servers {
                assert!(Connection::open(*port).is_ok() && directory.exists());
            }
            owner.kill().unwrap();
        }
        assert_eq!(owner.wait().unwrap().success(), ending == "returns");
        for (port, directory) in &servers {
            until("the end of the server", || gone(*port, directory));
        }
    }
}

#[test]
fn a_server_with_tls_listens_in_no_other_way_but_by_its_unix_socket() {
    let certificates = Certificates::new();
    let mut server =
        Server::builder(Flavour::Redis).tls(certificates.of_server(&certificates.server())).start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.port()));
    for _ in 0..2 {
        assert_eq!(server.cli(&["SET", "k", "v"]), "OK");
        let mut plain = Connection::open(server.port()).unwrap();
        assert!(plain.call(&["PING"]).is_err());
        server.restart();
    }
}

#[test]
#[should_panic(expected = "valkey-server was built without TLS")]
fn a_server_that_was_built_without_tls_is_named() {
    let certificates = Certificates::new();
    drop(Server::builder(Flavour::Valkey).tls(certificates.of_server(&certificates.server())).start());
}
