//! A script, run by one process alone, and the keys and messages that each of its steps leaves.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_testkit::peer::{Answer, Peer, Pending};
use tokio::time::sleep;

use super::dump::{Names, dump};
use crate::published::Published;
use crate::setup::{Setup, until};

/// The name in all scripts. Both languages use it, one after the other.
const NAME: &str = "same";

/// The threads, of a client whose watchdog time is ten minutes: the scripts have no time that passes while they run.
const CLIENT: &str = "600000/same";

/// A step, and the keys and messages that it leaves.
pub(super) struct Step {
    pub(super) command: String,
    pub(super) lines: Vec<String>,
}

/// Runs all steps; `None` if this Redisson does not have the primitive.
pub(super) async fn run(setup: &Setup, peer: &Peer, script: &str) -> Option<Vec<Step>> {
    let mut names = Names::default();
    for thread in ["a", "b", "c"] {
        names.learn(&peer.ask(&format!("{CLIENT}-{thread}"), "owner").await, &thread.to_uppercase());
    }
    let mut published = Published::on(&setup.server);
    let mut begun: HashMap<&str, Pending> = HashMap::new();
    let mut steps = Vec::new();
    let mut commands = script.lines().peekable();
    while let Some(command) = commands.next() {
        let (thread, words) = command.split_once(' ').unwrap_or((command, ""));
        let said = names.with_ids(&words.replace("NAME", NAME));
        let told = |thread: &str| peer.tell(&format!("{CLIENT}-{thread}"), &said);
        let answer = if let Some(thread) = thread.strip_suffix('>') {
            // No earlier waiter is subscribed any more, and then there is one subscription more than before.
            until("others have gone", || listeners(setup) == begun.len()).await;
            begun.insert(thread, told(thread));
            until("somebody more waits", || listeners(setup) == begun.len()).await;
            None
        } else if let Some(thread) = thread.strip_suffix('<') {
            Some(begun.remove(thread).expect("it was begun").answer().await)
        } else {
            Some(told(thread).answer().await)
        };
        let mut lines = Vec::new();
        match answer {
            Some(Answer::Unsupported(_)) => return None,
            Some(Answer::Ok(result)) => lines.push(format!("answer {}", names.answer(&result))),
            Some(Answer::Refused(_)) => lines.push("answer refused".into()),
            Some(Answer::Error(error)) => panic!("{command}: {error}"),
            None => {}
        }
        // A waiter that is woken by this step acquires at an unknown moment: the state is recorded after that.
        if commands.peek().is_some_and(|next| next.ends_with('<')) {
            steps.push(Step { command: command.into(), lines });
            continue;
        }
        lines.extend(settled(setup, &names).await);
        for (channel, payload) in published.take() {
            let line = format!("message {} {payload}", names.text(&channel));
            // A front waiter that has not retried yet is notified again with the heartbeats of our waiters, at unknown
            // moments.
            let told_again = channel.contains("}:") && lines.contains(&line);
            if channel.contains(NAME) && !told_again {
                lines.push(line);
            }
        }
        steps.push(Step { command: command.into(), lines });
    }
    let left = setup.server.cli(&["KEYS", &format!("*{NAME}*")]);
    for key in left.elements() {
        setup.server.cli(&["DEL", key.as_str().expect("names are text")]);
    }
    Some(steps)
}

/// How many channels of the name have subscribers.
fn listeners(setup: &Setup) -> usize {
    setup.server.cli(&["PUBSUB", "CHANNELS", &format!("*{NAME}*")]).elements().len()
}

/// The keys when they no longer change: some notes are removed a moment after the reply.
async fn settled(setup: &Setup, names: &Names) -> Vec<String> {
    let mut last = dump(&setup.server, NAME, names);
    loop {
        sleep(Duration::from_millis(20)).await;
        let now = dump(&setup.server, NAME, names);
        if now == last {
            return now;
        }
        last = now;
    }
}
