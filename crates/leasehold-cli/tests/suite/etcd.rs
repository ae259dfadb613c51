//! The command on etcd.

use leasehold_testkit::server::Etcd;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{finish, leasehold_at, leasehold_command};
use crate::look::{holding, json, text, timeless};
use crate::patience::eventually;
use crate::runner::{Runner, run};

#[test]
fn own_624_locks_on_etcd_are_run_under_looked_at_and_freed() {
    let server = Etcd::start();
    let at = |arguments: &str| leasehold_at(&server.url(), arguments);
    assert_eq!(at("ls").stdout, "no lock is held\n");
    let runner = Runner::start(&mut run(&server.url(), "stock:7 --fenced", "echo held; exec sleep 60"));
    runner.says("held");
    let reader = holding(&server.url(), "prices --shared");
    let theirs = server.lock("theirs");
    let [key] = server.keys("theirs/").try_into().unwrap();
    let lease = key.strip_prefix("theirs/").unwrap();

    let list = json(&at("ls --json"));
    let client = |field: &str| text(&list, &format!("/locks/1/holder/client/{field}")).to_owned();
    let pid = |number: usize| list["locks"][number]["holder"]["client"]["pid"].to_string();
    let holders = [
        format!("leasehold-run (host {}, pid {})", client("host"), pid(0)),
        format!("leasehold-run (host {}, pid {})", client("host"), pid(1)),
        format!("another program, under lease {lease}"),
    ];
    let width = holders.iter().map(|holder| holder.chars().count()).max().unwrap();
    let expected = [
        format!("NAME     KIND  {:width$}  LEASE LEFT", "HOLDER"),
        format!("prices   read  {:width$}  TIME", holders[0]),
        format!("stock:7  lock  {:width$}  TIME", holders[1]),
        format!("theirs   lock  {:width$}  TIME", holders[2]),
    ];
    assert_eq!(timeless(&at("ls").stdout), expected.join("\n"));
    let expected = format!(
        "\"stock:7\" is held\n  kind: lock\n  holder: {}\n  owner: {}\n  program: leasehold, leasehold {}\n  \
         client: made TIME ago, by the clocks of both machines\n  lease id: {}\n  \
         lease: ends in TIME unless renewed\n  waiters: none known",
        holders[1],
        text(&list, "/locks/1/holder/owner"),
        env!("CARGO_PKG_VERSION"),
        client("lease"),
    );
    let held = at("inspect stock:7");
    assert_eq!((held.code, timeless(&held.stdout)), (Some(0), expected), "{held:?}");

    let busy = finish(&mut run(&server.url(), "theirs --wait 0", "true"));
    assert_eq!(busy.code, Some(75), "{busy:?}");
    assert!(
        busy.stderr.contains("held (its lease ends in ") && busy.stderr.contains("by another "),
        "{busy:?}"
    );
    let unasked = at("unlock theirs");
    let said = format!("leasehold: the lock \"theirs\" is held by {}, and its lease ends in ", holders[2]);
    assert!(unasked.code == Some(2) && unasked.stderr.starts_with(&said), "{unasked:?}");
    let waiting =
        Runner::start(leasehold_command().env("LEASEHOLD_URL", server.url()).args(["wait", "theirs"]));
    theirs.release();
    assert_eq!(waiting.finish().code, Some(0));

    assert_eq!(at("unlock stock:7 --yes").stdout, "\"stock:7\" was freed\n");
    assert_eq!(runner.finish().code, Some(76), "its holder notices");
    assert_eq!(at("unlock prices --yes").stdout, "\"prices\" was freed\n");
    eventually("all are free", || at("ls").stdout == "no lock is held\n");
    drop(reader);
}

#[test]
fn own_625_watch_prints_each_change_of_locks_on_etcd() {
    let server = Etcd::start();
    let mut command = leasehold_command();
    command.env("LEASEHOLD_URL", server.url()).args(["watch", "--interval", "100ms"]);
    let watch = Runner::start(&mut command);
    let theirs = server.lock("a");
    let [key] = server.keys("a/").try_into().unwrap();
    let lease = key.strip_prefix("a/").unwrap();
    watch.says(&format!("acquired lock \"a\" another program, under lease {lease}"));
    theirs.release();
    watch.says(&format!("released lock \"a\" another program, under lease {lease}"));
    watch.signal(Signal::SIGINT);
    assert_eq!(watch.finish().code, Some(130));
}

#[test]
fn own_626_doctor_tells_what_is_at_a_url_of_etcd_by_text_json_and_exit_code() {
    let one = Etcd::start_with("");
    let run = leasehold_at(&one.url(), "doctor");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.starts_with(&format!("{} (etcd)\n", one.url())), "{run:?}");
    assert!(run.stdout.contains("\nWARNING [single-member]\n"), "{run:?}");
    assert!(run.stdout.ends_with("\n\nNothing endangers locks by itself.\n"), "{run:?}");
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{run:?}");

    let members = Etcd::cluster::<3>();
    let url = members[0].url();
    let run = leasehold_at(&url, "doctor --json");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["engine"], &report["server"]), (&"etcd".into(), &url.into()));
    // A hole that only old servers have.
    let is_old = report["facts"].to_string().contains("etcd 3.4.2");
    let findings: Vec<_> = report["findings"].as_array().unwrap().iter().collect();
    let shown: Vec<_> = findings.iter().map(|one| (text(one, "/severity"), text(one, "/code"))).collect();
    assert_eq!(shown, if is_old { vec![("danger", "lease-revocation")] } else { vec![] });
    assert_eq!(run.code, Some(i32::from(is_old)), "{run:?}");
}
