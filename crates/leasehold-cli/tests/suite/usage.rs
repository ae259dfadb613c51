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
        assert!(refused(&run).starts_with("leasehold: "), "{run:?}");
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
    for arguments in [
        "--help",
        "-h",
        "demo --help",
        "demo -h",
        "run --help",
        "run -h",
        "ls --help",
        "ls -h",
        "inspect --help",
        "inspect -h",
        "watch --help",
        "watch -h",
        "wait --help",
        "wait -h",
        "unlock --help",
        "unlock -h",
        "doctor --help",
        "doctor -h",
        "completions -h",
        "man -h",
    ] {
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
    for command in ["demo", "run", "ls", "inspect", "watch", "wait", "unlock"] {
        let run = leasehold_at("redis://me:secret@host", &format!("{command} --help"));
        assert!(run.stdout.contains("LEASEHOLD_URL") && !run.stdout.contains("secret"), "{}", run.stdout);
    }
}

#[test]
fn the_version_names_the_engines_and_urls_that_work() {
    let short = concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(leasehold("-V").stdout, short);
    let long = leasehold("--version").stdout;
    assert!(long.starts_with(short) && long.lines().all(|line| line.len() <= 80), "{long}");
    let (_, urls) = long.split_once("URLs:").expect("a list of URLs");
    let schemes: Vec<_> = urls.split_whitespace().collect();
    assert!(schemes.contains(&"memory") && schemes.contains(&"rediss"), "{long}");
    for scheme in schemes {
        // Refused before a connection is made, if at all.
        let failed = leasehold::Client::connect(format!("{scheme}://?nonsense=")).block();
        let text = failed.map(drop).expect_err("a malformed URL").to_string();
        assert!(!text.contains("is not known;") && !text.contains("not supported"), "{scheme}: {text}");
    }
}

#[test]
fn completions_are_valid_for_their_shell_and_have_every_visible_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = leasehold(&format!("completions {shell}")).stdout;
        for word in [
            "demo",
            "run",
            "ls",
            "inspect",
            "watch",
            "wait",
            "unlock",
            "doctor",
            "completions",
            "man",
            "--if-busy",
            "--permits",
            "outage-limit",
            "--interval",
        ] {
            assert!(text.contains(word.trim_start_matches('-')), "{shell}: {word}");
        }
        assert!(
            !text.contains("__exec") && !text.contains("__warden") && !text.contains("worker"),
            "{shell}"
        );
    }
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("completions.bash");
    std::fs::write(&file, leasehold("completions bash").stdout).expect("a file in the target directory");
    let check = finish(std::process::Command::new("bash").arg("-n").arg(&file));
    assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""));
    assert!(refused(&leasehold("completions csh")).contains("possible values: bash"));
}

#[test]
fn there_is_a_manual_page_of_every_visible_command() {
    let own = leasehold("man").stdout;
    for command in ["demo", "run", "ls", "inspect", "watch", "wait", "unlock", "doctor", "completions", "man"]
    {
        assert!(own.contains(&format!("leasehold\\-{command}(1)")), "{command}: {own}");
        let page = leasehold(&format!("man {command}")).stdout;
        assert!(page.contains(&format!(".TH LEASEHOLD-{} 1", command.to_uppercase())), "{page}");
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(leasehold("man run").stdout.contains("75   the lock is busy"), "the exit codes");
    assert!(!own.contains("worker") && !own.contains("__"), "a hidden command is shown: {own}");
    let none = leasehold("man __exec");
    assert!(
        refused(&none).starts_with("leasehold: there is no manual page of \"__exec\": there is one of"),
        "{none:?}"
    );
}

#[test]
fn every_usage_error_begins_as_other_errors_do() {
    for arguments in
        ["nonsense", "run", "run x --nonsense y", "demo --users x", "completions", "run x --wait y true"]
    {
        let run = leasehold(arguments);
        assert!(refused(&run).starts_with("leasehold: "), "{arguments}: {run:?}");
        assert!(!run.stderr.contains("error:"), "{arguments}: {run:?}");
    }
}
