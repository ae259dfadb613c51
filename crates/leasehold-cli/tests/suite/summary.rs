//! The summary of `demo`.

use crate::command::leasehold;

fn demo(arguments: &str) -> String {
    let run = leasehold(&format!("demo {arguments}"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    run.stdout
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn the_demo_summary_reports_the_seats_with_and_without_the_lock() {
    let text = demo("");
    has(&text, &["100 users for 5 seats", "memory:", "too many", "exactly full", "the only difference"]);
    let locked = text.lines().find(|line| line.contains("with the lock ")).expect("a row for the lock");
    let cells: Vec<_> = locked.split_whitespace().collect();
    assert_eq!(cells[3..5], ["5", "95"], "{locked}");
}

#[test]
fn the_demo_summary_does_not_claim_overbooking_where_there_was_none() {
    for (arguments, claim) in [
        ("--users 3 --seats 10", "There was a seat for every user, so there was nothing to overbook."),
        ("--users 3 --seats 3", "There was a seat for every user, so there was nothing to overbook."),
        ("--users 3 --seats 0", "There was no seat at all, so there was nothing to overbook."),
    ] {
        let text = demo(arguments);
        has(&text, &[claim]);
        assert!(!text.contains("too many"), "{text}");
    }
}

#[test]
fn the_demo_summary_is_plain_text_of_80_columns() {
    let text = demo("--users 2000 --seats 1");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}
