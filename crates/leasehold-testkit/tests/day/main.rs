//! The log of a day, at INFO and above: contention, every cause of a loss, an outage and a shutdown leave exactly the lines of
//! `golden`, on each engine those of what it can do. `LEASEHOLD_GOLDEN=write` writes the files anew.
//!
//! There is one log for the whole process, hence a test program of its own.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod recorder;
mod script;

use std::path::Path;
use std::{env, fs};

use leasehold_testkit::bench::{Etcd, Files, Memory};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::server::{Flavour, Server};

use crate::script::Place;

#[tokio::test]
async fn own_480_a_scripted_day_leaves_exactly_the_lines_of_its_golden_file() {
    recorder::install();
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let (memory, files, etcd) = (Memory::new(), Files::new(), Etcd::shared());
    let places = [
        ("memory", Place::local(&memory)),
        ("file", Place::local(&files)),
        ("etcd", Place::local(&etcd)),
        ("redis", Place::behind(&proxy, &server)),
    ];
    let mut wrong = Vec::new();
    for (engine, place) in places {
        recorder::clear();
        script::play(&place).await;
        let text = recorder::text();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/day/golden/{engine}.txt"));
        if env::var("LEASEHOLD_GOLDEN").as_deref() == Ok("write") {
            fs::write(&path, &text).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        if golden != text {
            wrong.push(format!("{} is not what is logged now, which is\n{text}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
