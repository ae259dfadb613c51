//! Help, and invalid options.

use crate::command::{Finished, finish, leasehold, leasehold_at, leasehold_command};

/// The error message of a run that could not begin.
fn refused(run: &Finished) -> &str {
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    &run.stderr
}

#[test]
fn the_memory_engine_with_several_processes_is_refused() {
    for url in ["memory:", "memory:party"] {
        let run = leasehold_at(url, "demo --processes 4");
        let text = refused(&run);
        assert!(text.starts_with("leasehold: `memory:` lives inside one process"), "{text}");
        assert!(text.contains("4 child processes would each have seats and a lock of their own"), "{text}");
        assert!(
            text.contains(
                "Leave --url out to show it over processes of this machine, or give --url redis://host:port"
            ),
            "{text}"
        );
    }
    assert_eq!(leasehold("demo --processes 1 --users 1").code, Some(0));
}

/// A script with `--url "$URL"` or a line `LEASEHOLD_URL=` in a file of settings: a variable that should have a value.
#[test]
fn an_empty_url_is_refused_and_not_taken_for_none() {
    for subcommand in ["run", "demo"] {
        let rest: &[&str] = if subcommand == "run" { &["x", "--", "echo", "ran"] } else { &[] };
        let run = finish(leasehold_command().env("LEASEHOLD_URL", "").arg(subcommand).args(rest));
        let what =
            "leasehold: LEASEHOLD_URL is empty: unset it to lock on this machine only, or set it to a URL\n";
        assert_eq!(refused(&run), what);
        let run = finish(leasehold_command().args([subcommand, "--url", ""]).args(rest));
        let what = "leasehold: --url is empty: leave it out to lock on this machine only, or give a URL\n";
        assert_eq!(refused(&run), what);
    }
}

#[test]
fn the_error_for_an_unknown_url_lists_the_known_schemes() {
    for (url, known) in [
        ("nonsense://me:secret@host", "known are `redis://"),
        ("nonsense", "the URL has no scheme: write `redis://"),
        ("memory://host", "a memory engine has no host and no path: write `memory:` or "),
    ] {
        for arguments in ["demo", "demo --json", "demo --processes 4"] {
            let run = leasehold_at(url, arguments);
            let text = refused(&run);
            assert!(text.starts_with("leasehold: "), "{text}");
            assert!(text.contains(known) && text.contains("`memory:NAME`"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for arguments in [
        "--users 0",
        "--users 100001",
        "--users many",
        "--users -1",
        "--seats -1",
        "--seats 100001",
        "--seats 1.5",
        "--processes 0",
        "--processes 257",
    ] {
        let run = leasehold(&format!("demo {arguments}"));
        assert!(refused(&run).starts_with("error: "), "{run:?}");
    }
}

#[test]
fn a_call_without_a_subcommand_prints_the_help() {
    for run in [leasehold(""), leasehold_at("memory:", "")] {
        assert!(refused(&run).contains("Usage: leasehold <COMMAND>"), "{run:?}");
    }
}

#[test]
fn the_help_has_examples_and_fits_into_80_columns() {
    for arguments in ["--help", "-h", "demo --help", "demo -h", "run --help", "run -h"] {
        let run = leasehold(arguments);
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("Example") && run.stdout.contains("  leasehold "), "{}", run.stdout);
        for hidden in ["worker", "__exec", "__warden"] {
            assert!(!run.stdout.contains(hidden), "a hidden command is shown: {}", run.stdout);
        }
        for line in run.stdout.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn the_help_does_not_show_the_password_from_the_environment() {
    for command in ["demo", "run"] {
        let run = leasehold_at("redis://me:secret@host", &format!("{command} --help"));
        assert!(run.stdout.contains("LEASEHOLD_URL") && !run.stdout.contains("secret"), "{}", run.stdout);
    }
}

#[test]
fn the_printed_version_is_that_of_the_package() {
    assert_eq!(leasehold("--version").stdout, concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n"));
}
