//! What it costs a server that its clients tell who they are.
//!
//! `LEASEHOLD_CLIENTS=10000 LEASEHOLD_CLIENTS_FOR=150` registers that many clients and watches them for that many seconds; each
//! of them needs a file descriptor here and one in the server, and a thread.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::env;
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{SECOND, alone, strings, until};

on_both! {
    own_485_a_client_registers_by_one_command_and_again_once_a_minute_at_most
}

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

async fn own_485_a_client_registers_by_one_command_and_again_once_a_minute_at_most(flavour: Flavour) {
    let _alone = alone().await;
    let (count, seconds) = (number("LEASEHOLD_CLIENTS", 200), number("LEASEHOLD_CLIENTS_FOR", 2));
    let server = Server::start(flavour);
    assert_eq!(server.cli(&["CONFIG", "SET", "maxclients", &(count + 100).to_string()]), "OK");
    let (before, begun) = (processed(&server), cpu(&server));
    let mut clients = Vec::new();
    while (clients.len() as u64) < count {
        let mut connecting = JoinSet::new();
        for _ in 0..(count - clients.len() as u64).min(50) {
            connecting.spawn(Client::connect(server.url()).response_timeout(60 * SECOND).into_future());
        }
        clients.extend(connecting.join_all().await.into_iter().map(Result::unwrap));
    }
    until("all are registered", || calls(&server, "set").0 >= count).await;
    let (connected, took) = (processed(&server), calls(&server, "set"));
    println!(
        "{flavour:?}: {count} clients: {} commands, {} µs of CPU for each; {took:?} µs for SET",
        connected - before,
        (cpu(&server) - begun) * 1e6 / count as f64,
    );
    assert_eq!(took.0, count, "one key for each client, written once");
    assert_eq!(strings(&server.cli(&["KEYS", "leasehold:client:*"])).len() as u64, count);

    let (before, begun) = (processed(&server), cpu(&server));
    sleep(Duration::from_secs(seconds)).await;
    let (again, all) = (calls(&server, "set").0 - count, processed(&server) - before);
    println!(
        "{flavour:?}: in {seconds} s: {again} SET of {all} commands, {:.3} % of one CPU",
        (cpu(&server) - begun) * 100.0 / seconds as f64
    );
    // What was connected early may begin its second period while the last ones connect.
    let periods = seconds.div_ceil(SHORTEST_PERIOD);
    assert!(again <= count * periods, "{again} in {seconds} s");
    // The INFO of this test are among them.
    assert!(all <= again + 10, "an idle client sends nothing else: {all} commands, {again} SET");

    drop(clients);
    until("all keys are deleted", || calls(&server, "del").0 >= count).await;
    assert_eq!(strings(&server.cli(&["KEYS", "leasehold:client:*"])), [""; 0]);
}
