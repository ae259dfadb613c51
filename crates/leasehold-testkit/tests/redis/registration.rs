//! What it costs a server that its clients tell who they are.
//!
//! `LEASEHOLD_CLIENTS=10000 LEASEHOLD_CLIENTS_FOR=150` registers that many clients and watches them for that many seconds. A
//! client needs four file descriptors and a thread, so they are in several processes; the server needs one descriptor for each.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, stdin};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};

use crate::process::URL;
use crate::{SECOND, alone, strings, until};

on_both! {
    own_485_a_client_registers_by_one_command_and_again_once_a_minute_at_most
}

/// How many clients one process has.
const MOST: u64 = 2000;
/// In any minute a client writes its key once at most.
const SHORTEST_PERIOD: u64 = 60;

fn number(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |number| number.parse().expect("a number"))
}

/// How often a command was called, and the microseconds that all its calls took.
fn calls(server: &Server, command: &str) -> (u64, u64) {
    let stats = server.cli(&["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:");
    let line = stats.as_str().unwrap().lines().find_map(|line| line.strip_prefix(&start));
    let field = |name: &str| {
        let value = line?.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        Some(value?.parse::<f64>().unwrap())
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they are counts")]
    let whole = |value: Option<f64>| value.unwrap_or_default() as u64;
    (whole(field("calls")), whole(field("usec")))
}

/// All commands that were processed.
fn processed(server: &Server) -> u64 {
    info(server, "stats", "total_commands_processed").parse().unwrap()
}

/// The seconds for which the server has computed.
fn cpu(server: &Server) -> f64 {
    let seconds = |field| info(server, "cpu", field).parse::<f64>().unwrap();
    seconds("used_cpu_user") + seconds("used_cpu_sys")
}

fn info(server: &Server, section: &str, field: &str) -> String {
    let text = server.cli(&["INFO", section]);
    let start = format!("{field}:");
    text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(&start)).expect("it is there").to_owned()
}

/// The clients of one process, until its standard input is closed.
async fn stay(url: &str, count: usize) {
    let mut clients = Vec::new();
    while clients.len() < count {
        let mut connecting = JoinSet::new();
        for _ in 0..(count - clients.len()).min(50) {
            connecting.spawn(Client::connect(url).response_timeout(60 * SECOND).into_future());
        }
        clients.extend(connecting.join_all().await.into_iter().map(Result::unwrap));
    }
    println!("\nconnected");
    spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
}

/// Starts this binary again for so many clients, and waits until they are connected.
fn process(flavour: Flavour, server: &Server, count: u64) -> Child {
    let test = format!("registration::{}::{NAME}", format!("{flavour:?}").to_lowercase());
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .envs([(URL, server.url()), ("LEASEHOLD_CLIENTS", count.to_string())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "connected"));
    child
}

const NAME: &str = "own_485_a_client_registers_by_one_command_and_again_once_a_minute_at_most";

async fn own_485_a_client_registers_by_one_command_and_again_once_a_minute_at_most(flavour: Flavour) {
    let (count, seconds) = (number("LEASEHOLD_CLIENTS", 200), number("LEASEHOLD_CLIENTS_FOR", 2));
    if let Ok(url) = env::var(URL) {
        return stay(&url, usize::try_from(count).unwrap()).await;
    }
    let _alone = alone().await;
    let server = Server::start(flavour);
    assert_eq!(server.cli(&["CONFIG", "SET", "maxclients", &(count + 100).to_string()]), "OK");
    let (before, begun, started) = (processed(&server), cpu(&server), Instant::now());
    let mut processes = Vec::new();
    let mut left = count;
    while left > 0 {
        let some = left.min(MOST);
        processes.push(process(flavour, &server, some));
        left -= some;
    }
    until("all are registered", || calls(&server, "set").0 >= count).await;
    let (connected, took, used) = (processed(&server), calls(&server, "set"), cpu(&server) - begun);
    println!(
        "{flavour:?}, {count} clients: {} commands, {used:.3} s of CPU, SET {took:?} µs",
        connected - before
    );
    assert_eq!(took.0, count, "one key for each client, written once");
    assert_eq!(strings(&server.cli(&["KEYS", "leasehold:client:*"])).len() as u64, count);

    let (before, begun, sets) = (processed(&server), cpu(&server), calls(&server, "set"));
    sleep(Duration::from_secs(seconds)).await;
    let (all, used, after) = (processed(&server) - before, cpu(&server) - begun, calls(&server, "set"));
    let (again, micros) = (after.0 - sets.0, after.1 - sets.1);
    println!(
        "{flavour:?}, {seconds} s: {again} SET of {all} commands, {micros} µs for them, {used:.3} s of CPU"
    );
    let periods = started.elapsed().as_secs() / SHORTEST_PERIOD;
    assert!(again <= count * periods, "{again} in {seconds} s");
    // The INFO of this test are among them.
    assert!(all <= again + 10, "an idle client sends nothing else: {all} commands, {again} SET");

    // Their input ends with this, and they with it.
    for mut child in processes {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
