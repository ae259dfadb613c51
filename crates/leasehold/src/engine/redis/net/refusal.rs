//! The errors of a server: whether a retry can help, what each means, and what to do about it.

use crate::error::ServerError;

/// What an error of the server means to a caller, with `shown` as its text if it is not known here; none if the server does
/// not have the script.
///
/// The code of the server stays at the end, because its documentation and its log use it.
pub(super) fn refusal(error: &str, shown: String) -> Option<ServerError> {
    let code = code(error);
    if code == "NOSCRIPT" {
        return None;
    }
    if let Some(meaning) = for_now(code) {
        return Some(ServerError::Unavailable(format!("{meaning} ({code})")));
    }
    if error.contains("WRONGTYPE") {
        return Some(ServerError::NotALock);
    }
    Some(ServerError::Denied(for_good(code).map_or(shown, |meaning| format!("{meaning} ({code})"))))
}

/// The errors of servers that will accept the request later.
fn for_now(code: &str) -> Option<&'static str> {
    Some(match code {
        "LOADING" => "it is loading its data after a start, and replies when that is done",
        "BUSY" => "it has been running a script for too long: see its log, or end the script by SCRIPT KILL",
        "READONLY" => "it is a replica, which accepts no locks: connect to its primary",
        "MASTERDOWN" => "it is a replica that has lost its primary: connect to the primary",
        "MISCONF" => "it accepts no writes, because it cannot save its data to its disk: see its log",
        "OOM" => "it is out of memory: raise its `maxmemory`, or make room",
        "NOREPLICAS" => "it has fewer replicas than its `min-replicas-to-write` demands",
        "CLUSTERDOWN" => "its cluster does not serve the slot of this key: see CLUSTER INFO",
        "TRYAGAIN" => "its cluster is moving the slot of this key",
        _ => return None,
    })
}

/// Whether a text is one of ours, and so repeats nothing that the server said but its code.
pub(super) fn is_known(text: &str) -> bool {
    let code = text.rsplit_once('(').and_then(|(_, code)| code.strip_suffix(')'));
    code.is_some_and(|code| {
        for_good(code).is_some_and(|meaning| {
            text.strip_prefix(meaning).is_some_and(|rest| rest == format!(" ({code})"))
        })
    })
}

/// The errors that a retry does not mend.
fn for_good(code: &str) -> Option<&'static str> {
    Some(match code {
        "NOAUTH" => {
            "it wants a password: write redis://:PASSWORD@HOST:PORT or redis://USER:PASSWORD@HOST:PORT"
        }
        "WRONGPASS" => "the user or the password is wrong, or the user is disabled: check both in the URL",
        "MOVED" | "ASK" | "CROSSSLOT" => {
            "it is a node of a cluster, which is not supported yet: connect to a server whose `cluster-enabled` is `no`"
        }
        _ => return None,
    })
}

/// The first word of an error, which is its code.
///
/// Servers before Redis 7 put the error of a command inside a script behind the line of the script, and that behind a text of
/// their own unless the script returns the error: `ERR Error running script (call to f_…): @user_script:1: @user_script: 1:
/// -READONLY …`.
pub(super) fn code(error: &str) -> &str {
    let is_wrapped = error.starts_with("ERR Error running script") || error.starts_with("@user_script:");
    let inside = || error.rsplit("user_script:").next()?.split_once(": ").map(|(_line, error)| error);
    let error = is_wrapped.then(inside).flatten().map_or(error, |error| error.trim_start_matches('-'));
    error.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "eed1cbe89353c705794ebf02658098b6fd09360f";

    /// The text of Redis 6.2 for an error that ends a script.
    fn wrapped(error: &str) -> String {
        format!("ERR Error running script (call to f_{HASH}): @user_script:1: {error}")
    }

    fn meaning(error: &str) -> Option<ServerError> {
        refusal(error, error.into())
    }

    /// The texts of a command inside a script that each server was seen to reply with: Redis 6.2.14, of which some end the script
    /// and some are returned by it, Redis 7.0.15 and 8.0.2 and Valkey 8.1.1, which say the same, and Valkey 9.1.2.
    fn seen(error: &str) -> [String; 5] {
        [
            error.into(),
            wrapped(&format!("@user_script: 1: -{error}")),
            format!("@user_script: 2: -{error}"),
            format!("{error} script: {HASH}, on @user_script:1."),
            format!("{error} script: on @user_script:1."),
        ]
    }

    #[test]
    fn an_error_that_passes_is_an_outage_also_inside_a_script() {
        for error in [
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "NOREPLICAS Not enough good replicas to write.",
            "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
            "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Valkey logs for details about the RDB error.",
            // Servers reply with these to the whole script.
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "LOADING Redis is loading the dataset in memory",
        ] {
            let expected = error.split(' ').next().unwrap();
            for text in seen(error) {
                assert_eq!(code(&text), expected, "{text}");
                let Some(ServerError::Unavailable(shown)) = meaning(&text) else { panic!("{text}") };
                assert!(shown.ends_with(&format!("({expected})")) && !shown.contains("script:"), "{shown}");
            }
        }
    }

    #[test]
    fn a_denial_is_one_also_inside_a_script() {
        let denial = "The user executing the script can't run this command or subcommand";
        for text in [
            // Redis 6.2.14
            wrapped(&format!("@user_script: 1: {denial}")),
            format!("@user_script: 2: {denial}"),
            "NOPERM this user has no permissions to access one of the keys used as arguments".into(),
            "NOPERM this user has no permissions to run the 'eval' command or its subcommand".into(),
            // Redis 7.0.15
            format!("ERR {denial} script: {HASH}, on @user_script:1."),
            // Valkey 9.1.2
            "ERR ACL failure in script: User w has no permissions to run the 'hincrby' command script: on @user_script:1.".into(),
            "NOPERM No permissions to access a key".into(),
            // None of them.
            wrapped(""),
            wrapped("@user_script"),
            "@user_script:".into(),
            "ERR Error running script".into(),
        ] {
            assert_eq!(meaning(&text), Some(ServerError::Denied(text)));
        }
        let no_password = Some(ServerError::Denied(format!("{} (NOAUTH)", for_good("NOAUTH").unwrap())));
        assert_eq!(meaning("NOAUTH Authentication required."), no_password);
    }

    #[test]
    fn a_key_of_another_type_is_no_lock_and_a_missing_script_is_no_error() {
        let error = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for text in [wrapped(error), format!("{error} script: {HASH}, on @user_script:1.")] {
            assert_eq!(meaning(&text), Some(ServerError::NotALock), "{text}");
        }
        for text in ["NOSCRIPT No matching script. Please use EVAL.", "NOSCRIPT No matching script."] {
            assert_eq!(meaning(text), None);
        }
    }
}
