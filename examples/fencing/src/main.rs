//! A holder is stopped past its lease and then writes: an update is lost. With a fencing token the write is refused.
//!
//!     cargo run -p fencing
//!     cargo run -p fencing -- redis://127.0.0.1
//!
//! The account is a row in `SQLite` with a column for the greatest token that has written it. The check is part of the
//! statement that writes, so nothing can come between the two. It holds only if every writer takes a token from the
//! same lock, and commits before it releases.

use std::error::Error;
use std::time::Duration;

use leasehold::{Client, FencedGuard};
use rusqlite::{Connection, params};

/// How long each holder has the lock at most.
const LEASE: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(url).block()?;

    println!("Without the fence:");
    let balance = two_deposits(&client, write_anyway)?;
    println!("  balance {balance}: 50 of 150 deposited are gone\n");

    println!("With the fence:");
    let balance = two_deposits(&client, write_fenced)?;
    println!("  balance {balance}: nothing is lost, and Ann knows that she has to start again");
    Ok(())
}

/// Writes a balance with a token; false if it was refused.
type Write = fn(&Connection, token: u64, balance: i64) -> rusqlite::Result<bool>;

/// Ann deposits 100 and is stopped in the middle; Bob deposits 50 meanwhile. Returns the resulting balance.
fn two_deposits(client: &Client, write: Write) -> Result<i64, Box<dyn Error>> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
         INSERT INTO account VALUES (7, 0, 0);",
    )?;
    let lock = client.fenced_lock("account:7");
    let take = || lock.acquire().lease(LEASE).block();

    let ann = take()?;
    let seen_by_ann = balance(&database)?;
    report("Ann", &ann, &format!("reads {seen_by_ann}"));
    // Anything may stop a process here: a garbage collector, a suspended machine, a debugger. The check was a moment ago.
    assert!(ann.is_held());
    std::thread::sleep(LEASE * 2);

    let bob = take()?;
    let seen_by_bob = balance(&database)?;
    report("Bob", &bob, &format!("reads {seen_by_bob}"));
    deposit(&database, write, "Bob", &bob, seen_by_bob + 50)?;
    bob.release().block()?;

    deposit(&database, write, "Ann", &ann, seen_by_ann + 100)?;
    Ok(balance(&database)?)
}

fn deposit(
    database: &Connection,
    write: Write,
    who: &str,
    guard: &FencedGuard,
    balance: i64,
) -> rusqlite::Result<()> {
    let written = write(database, guard.token(), balance)?;
    let outcome = if written { "writes" } else { "is refused" };
    report(who, guard, &format!("{outcome} {balance}"));
    Ok(())
}

/// As most programs write: the last writer wins.
fn write_anyway(database: &Connection, _token: u64, balance: i64) -> rusqlite::Result<bool> {
    database.execute("UPDATE account SET balance = ?1 WHERE id = 7", params![balance]).map(|rows| rows == 1)
}

/// The row stores the greatest token, and refuses smaller ones.
fn write_fenced(database: &Connection, token: u64, balance: i64) -> rusqlite::Result<bool> {
    let token = i64::try_from(token).expect("tokens count from one");
    let statement = "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 7 AND fence <= ?2";
    database.execute(statement, params![balance, token]).map(|rows| rows == 1)
}

fn balance(database: &Connection) -> rusqlite::Result<i64> {
    database.query_row("SELECT balance FROM account WHERE id = 7", [], |row| row.get(0))
}

fn report(who: &str, guard: &FencedGuard, does: &str) {
    println!("  {who}, token {}, {does}", guard.token());
}
