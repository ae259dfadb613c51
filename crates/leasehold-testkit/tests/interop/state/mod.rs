//! The same steps by Java alone and by Rust alone leave the same keys and messages.
//!
//! They are kept in `interop/golden`, one file for each primitive: after each step the keys on the server and the messages
//! that were published. A line that only Redisson leaves begins with `-`, one that only we leave with `+`; each of these is
//! expected by a difference in `interop/differences.toml`, whose id follows. `LEASEHOLD_GOLDEN=write` writes the files anew.

mod differences;
mod dump;
mod run;

use std::path::{Path, PathBuf};
use std::{env, fs};

use differences::Differences;
use run::{Step, run};

use crate::setup::setup;

/// The steps of each primitive. No lock that is renewed is entered with a lease: which of the two leases shows depends on
/// timing.
///
/// `a lock plain NAME` is done by the thread `a`; `a> …` is begun, and `a<` waits for it.
const SCRIPTS: &[(&str, &str)] = &[
    ("plain", include_str!("scripts/plain.txt")),
    ("spin", include_str!("scripts/spin.txt")),
    ("fenced", include_str!("scripts/fenced.txt")),
    ("non-reentrant", include_str!("scripts/non-reentrant.txt")),
    ("fair", include_str!("scripts/fair.txt")),
    ("non-reentrant-fair", include_str!("scripts/non-reentrant-fair.txt")),
    ("read-write", include_str!("scripts/read-write.txt")),
    ("multi", include_str!("scripts/multi.txt")),
    ("group", include_str!("scripts/group.txt")),
    ("semaphore", include_str!("scripts/semaphore.txt")),
    ("permits", include_str!("scripts/permits.txt")),
    ("latch", include_str!("scripts/latch.txt")),
];

fn golden(primitive: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/golden");
    folder.join(primitive).with_extension("txt")
}

#[tokio::test]
async fn own_234_the_same_steps_leave_the_same_state_except_for_the_listed_differences() {
    let setup = setup().await;
    let mut differences = Differences::read();
    let mut wrong = Vec::new();
    for (primitive, script) in SCRIPTS {
        let Some(java) = run(&setup, &setup.java[0], script).await else {
            println!("state, {primitive}: Redisson {} does not have it", setup.version);
            differences.leave_out(primitive);
            continue;
        };
        let rust = run(&setup, &setup.rust[0], script).await.expect("we have it");
        let merged = merge(primitive, &java, &rust, &mut differences);
        let path = golden(primitive);
        if env::var("LEASEHOLD_GOLDEN").as_deref() == Ok("write") {
            fs::write(&path, &merged).expect("the file can be written");
        }
        if fs::read_to_string(&path).unwrap_or_default() != merged {
            wrong.push(format!("{} is not what is left now, which is\n{merged}", path.display()));
        }
        let shown = merged.lines().filter(|line| line.trim_start().starts_with(['-', '+'])).count();
        println!("state, {primitive}: {} steps, {shown} lines differ", java.len());
    }
    wrong.extend(differences.complaints());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Both records as one text, with `-` or `+` at the lines that only one of them has.
fn merge(primitive: &str, java: &[Step], rust: &[Step], differences: &mut Differences) -> String {
    let mut text = Vec::new();
    for (java, rust) in java.iter().zip(rust) {
        text.push(java.command.clone());
        let mut ours = rust.lines.clone();
        for line in &java.lines {
            if let Some(index) = ours.iter().position(|own| own == line) {
                ours.remove(index);
                text.push(format!("    {line}"));
            } else {
                text.push(format!("  - {line}   {}", differences.expects(primitive, '-', line)));
            }
        }
        for line in ours {
            text.push(format!("  + {line}   {}", differences.expects(primitive, '+', &line)));
        }
    }
    text.join("\n") + "\n"
}
