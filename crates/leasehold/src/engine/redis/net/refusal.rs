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
/// Servers before Redis 7 put the error of a command inside a script behind a text of their own: `ERR Error running script (call
/// to f_…): @user_script:1: @user_script: 1: -READONLY …`.
pub(super) fn code(error: &str) -> &str {
    let wrapped = error.strip_prefix("ERR Error running script").and_then(|text| {
        let (_line, error) = text.rsplit("user_script:").next()?.split_once(": ")?;
        Some(error.trim_start_matches('-'))
    });
    wrapped.unwrap_or(error).split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of Redis 6.2 for an error inside a script.
    fn wrapped(error: &str) -> String {
        let hash = "5332031c6b470dc5a0dd9b4bf2030dea6d65de91";
        format!("ERR Error running script (call to f_{hash}): @user_script:1: @user_script: 1: {error}")
    }

    fn meaning(error: &str) -> Option<ServerError> {
        refusal(error, error.into())
    }

    #[test]
    fn an_error_that_passes_is_an_outage_also_inside_a_script() {
        for error in [
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "LOADING Redis is loading the dataset in memory",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "NOREPLICAS Not enough good replicas to write.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ] {
            let after_redis_7 =
                format!("{error} script: 5332031c6b470dc5a0dd9b4bf2030dea6d65de91, on @user_script:1.");
            let code = error.split(' ').next().unwrap();
            for text in [error.into(), wrapped(&format!("-{error}")), wrapped(error), after_redis_7] {
                let Some(ServerError::Unavailable(shown)) = meaning(&text) else { panic!("{text}") };
                assert!(shown.ends_with(&format!("({code})")) && !shown.contains("script:"), "{shown}");
            }
        }
    }

    #[test]
    fn a_denial_is_one_also_inside_a_script() {
        let denial = "The user executing the script can't run this command or subcommand";
        for text in ["NOPERM this user has no permissions".into(), wrapped(denial), wrapped("")] {
            assert_eq!(meaning(&text), Some(ServerError::Denied(text)));
        }
        let other_type = wrapped("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(meaning(&other_type), Some(ServerError::NotALock));
        assert_eq!(meaning("NOSCRIPT No matching script. Please use EVAL."), None);
    }
}
