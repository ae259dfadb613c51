//! The scripts, and what is sent to run one.

use std::sync::OnceLock;

use redis::Cmd;

/// A script and, once somebody asked, its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

/// A script that may mint tokens, and knows how something is kept.
macro_rules! locks {
    ($($file:literal)+) => {
        Script::new(concat!(include_str!("scripts/mint.lua"), $(include_str!(concat!("scripts/", $file))),+))
    };
}

/// A script that knows how a fair lock and its queue are kept.
macro_rules! fair {
    ($file:literal) => {
        locks!("lock.lua" "fair_queue.lua" $file)
    };
}

/// A script of permits with a lease, after what all of them have in common.
macro_rules! leased {
    ($script:literal) => {
        concat!(
            include_str!("scripts/tell.lua"),
            include_str!("scripts/leased_prelude.lua"),
            include_str!($script)
        )
    };
}

pub(super) static ACQUIRE: Script = locks!("lock.lua" "acquire.lua");
pub(super) static ACQUIRE_ALL: Script = locks!("acquire_all.lua");
pub(super) static RELEASE: Script = locks!("lock.lua" "release.lua");
pub(super) static ABANDON: Script = locks!("lock.lua" "abandon.lua");
pub(super) static RENEW: Script = Script::new(include_str!("scripts/renew.lua"));
pub(super) static QUERY: Script = Script::new(include_str!("scripts/query.lua"));
pub(super) static FAIR_ACQUIRE: Script = fair!("fair_acquire.lua");
pub(super) static FAIR_RELEASE: Script = fair!("fair_release.lua");
pub(super) static FAIR_ABANDON: Script = fair!("fair_abandon.lua");
pub(super) static FAIR_FORCE: Script = fair!("fair_force.lua");
pub(super) static FAIR_BEAT: Script = fair!("fair_beat.lua");
pub(super) static QUEUE: Script = Script::new(include_str!("scripts/queue.lua"));
pub(super) static TOKEN: Script = Script::new(include_str!("scripts/token.lua"));
pub(super) static FORCE: Script = Script::new(include_str!("scripts/force.lua"));
pub(super) static FENCED_WRITE: Script = Script::new(include_str!("scripts/fenced_write.lua"));
pub(super) static SETNX_ACQUIRE: Script = locks!("setnx_acquire.lua");
pub(super) static SETNX_RENEW: Script = Script::new(include_str!("scripts/setnx_renew.lua"));
pub(super) static SETNX_QUERY: Script = Script::new(include_str!("scripts/setnx_query.lua"));
static SETNX_RELEASE: Script = Script::new(include_str!("scripts/setnx_release.lua"));
pub(super) static COUNT: Script = Script::new(include_str!("scripts/count.lua"));
pub(super) static TAKE_PERMITS: Script = Script::new(include_str!("scripts/semaphore_take.lua"));
pub(super) static GIVE_PERMITS: Script =
    Script::new(concat!(include_str!("scripts/tell.lua"), include_str!("scripts/semaphore_give.lua")));
pub(super) static KEEP_PERMITS: Script = Script::new(include_str!("scripts/semaphore_keep.lua"));
pub(super) static TAKE_LEASED: Script = Script::new(leased!("scripts/leased_take.lua"));
pub(super) static GIVE_LEASED: Script = Script::new(leased!("scripts/leased_give.lua"));
pub(super) static RENEW_LEASED: Script = Script::new(leased!("scripts/leased_renew.lua"));
pub(super) static COUNT_LEASED: Script = Script::new(leased!("scripts/leased_count.lua"));
pub(super) static LEASED: Script =
    Script::new(concat!(include_str!("scripts/once.lua"), leased!("scripts/leased.lua")));
pub(super) static LATCH: Script =
    Script::new(concat!(include_str!("scripts/once.lua"), include_str!("scripts/latch.lua")));
pub(super) static SEMAPHORE: Script = Script::new(concat!(
    include_str!("scripts/once.lua"),
    include_str!("scripts/tell.lua"),
    include_str!("scripts/semaphore.lua")
));

/// A script of the read-write lock, behind what they have in common.
macro_rules! rw_script {
    ($file:literal) => {
        locks!("rw/common.lua" $file)
    };
}

pub(super) static RW_READ: Script = rw_script!("rw/read.lua");
pub(super) static RW_WRITE: Script = rw_script!("rw/write.lua");
pub(super) static RW_LEAVE: Script = rw_script!("rw/leave.lua");
pub(super) static RW_RENEW: Script = rw_script!("rw/renew.lua");
pub(super) static RW_QUERY: Script = rw_script!("rw/query.lua");
pub(super) static RW_FORCE: Script = rw_script!("rw/force.lua");
pub(super) static RW_UNMARK: Script = Script::new(include_str!("scripts/rw/unmark.lua"));

/// A script of a group, behind what they have in common.
macro_rules! group_script {
    ($file:literal) => {
        locks!("group/common.lua" $file)
    };
}

pub(super) static GROUP_ACQUIRE: Script = group_script!("group/acquire.lua");
pub(super) static GROUP_LEAVE: Script = group_script!("group/leave.lua");
pub(super) static GROUP_RENEW: Script = group_script!("group/renew.lua");
pub(super) static GROUP_QUERY: Script = group_script!("group/query.lua");
pub(super) static GROUP_FORCE: Script = group_script!("group/force.lua");

/// What to run, with its keys and arguments. Names and values are arguments, never script text.
#[derive(Debug)]
pub(super) struct Call {
    what: What,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Script(&'static Script),
    /// A command of the server's own, which needs no script.
    Command(&'static str),
    /// Deletes a key if it has the value of the first argument, and says so on the channel that the second names.
    CompareAndDelete,
}

/// How a server deletes a key only if it has a given value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletes {
    ByScript,
    /// Redis from 8.4 on.
    Delex,
    /// Valkey from 9 on.
    DelIfEq,
}

/// In which words a script is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wording {
    /// By its hash, which is what a server that knows the script needs.
    Hash,
    /// In full, which makes the server know it.
    Text,
}

impl Call {
    pub(super) fn new(script: &'static Script) -> Self {
        Self { what: What::Script(script), keys: Vec::new(), arguments: Vec::new() }
    }

    /// A plain command: its key comes first, then its arguments.
    pub(super) fn command(name: &'static str) -> Self {
        Self { what: What::Command(name), keys: Vec::new(), arguments: Vec::new() }
    }

    /// Deletes a key that has a value, and announces it.
    #[expect(clippy::needless_pass_by_value, reason = "as for the other arguments")]
    pub(super) fn compare_and_delete(key: &str, value: impl ToString, channel: String) -> Self {
        Self {
            what: What::CompareAndDelete,
            keys: vec![key.to_owned()],
            arguments: vec![value.to_string().into(), channel.into()],
        }
    }

    pub(super) fn key(mut self, key: &str) -> Self {
        self.keys.push(key.to_owned());
        self
    }

    #[expect(clippy::needless_pass_by_value, reason = "numbers read better by value")]
    pub(super) fn arg(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string().into());
        self
    }

    pub(super) fn bytes(mut self, argument: &[u8]) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// What is to be sent, and what is to be sent right behind it without anybody waiting for it.
    ///
    /// In full, a call is always a script where it can be one: that works on every server.
    pub(super) fn commands(&self, wording: Wording, deletes: Deletes) -> (Cmd, Option<Cmd>) {
        match (self.what, wording, deletes) {
            (What::Script(script), ..) => (self.script(script, wording), None),
            (What::Command(name), ..) => {
                let mut command = redis::cmd(name);
                command.arg(&self.keys).arg(&self.arguments);
                (command, None)
            }
            (What::CompareAndDelete, Wording::Text, _) | (What::CompareAndDelete, _, Deletes::ByScript) => {
                (self.script(&SETNX_RELEASE, wording), None)
            }
            (What::CompareAndDelete, Wording::Hash, Deletes::Delex) => {
                let mut delete = redis::cmd("DELEX");
                delete.arg(&self.keys).arg("IFEQ").arg(&self.arguments[0]);
                (delete, Some(self.announcement()))
            }
            (What::CompareAndDelete, Wording::Hash, Deletes::DelIfEq) => {
                let mut delete = redis::cmd("DELIFEQ");
                delete.arg(&self.keys).arg(&self.arguments[0]);
                (delete, Some(self.announcement()))
            }
        }
    }

    /// What the server said no to, with what older ones leave out: which command of a script, and which keys there are.
    pub(super) fn explain(&self, refusal: String) -> String {
        if refusal.contains("can't run this command") {
            let commands = self.commands_at(&refusal).join(" or ");
            return format!("{refusal}; the command is {commands}");
        }
        if refusal.contains("access") && refusal.contains("key") {
            return format!("{refusal}; the keys are {}", self.keys.join(" "));
        }
        refusal
    }

    /// The commands in that line of the script which the server names.
    fn commands_at(&self, refusal: &str) -> Vec<&'static str> {
        let What::Script(script) = self.what else { return Vec::new() };
        let told = refusal.rsplit("user_script:").next().unwrap_or_default().trim_start();
        let number: String = told.chars().take_while(char::is_ascii_digit).collect();
        let line = number.parse::<usize>().ok().and_then(|number| script.text.lines().nth(number - 1));
        let calls = line.unwrap_or_default().split("call('").skip(1);
        calls.filter_map(|call| call.split('\'').next()).collect()
    }

    fn announcement(&self) -> Cmd {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.arguments[1]).arg(0);
        publish
    }

    fn script(&self, script: &'static Script, wording: Wording) -> Cmd {
        let mut command = match wording {
            Wording::Hash => redis::cmd("EVALSHA"),
            Wording::Text => redis::cmd("EVAL"),
        };
        command.arg(match wording {
            Wording::Hash => script.hash(),
            Wording::Text => script.text,
        });
        command.arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of what is sent, without the script.
    fn words(command: &Cmd) -> Vec<String> {
        command
            .args_iter()
            .map(|word| match word {
                redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
                _ => unreachable!("nothing here scans"),
            })
            .collect()
    }

    #[test]
    fn a_key_is_compared_and_deleted_in_the_words_of_the_server() {
        let call = Call::compare_and_delete("n", "me", "channel".into());
        let sent = |wording, deletes| {
            let (first, then) = call.commands(wording, deletes);
            (words(&first), then.as_ref().map(words))
        };
        let publish = Some(["PUBLISH", "channel", "0"].map(String::from).to_vec());
        let (first, then) = sent(Wording::Hash, Deletes::Delex);
        assert_eq!(
            (first.as_slice(), &then),
            (&["DELEX", "n", "IFEQ", "me"].map(String::from)[..], &publish)
        );
        let (first, then) = sent(Wording::Hash, Deletes::DelIfEq);
        assert_eq!((first.as_slice(), &then), (&["DELIFEQ", "n", "me"].map(String::from)[..], &publish));
        for (wording, deletes, command) in [
            (Wording::Hash, Deletes::ByScript, "EVALSHA"),
            (Wording::Text, Deletes::ByScript, "EVAL"),
            // What is told in full is always the script, which every server can run.
            (Wording::Text, Deletes::Delex, "EVAL"),
            (Wording::Text, Deletes::DelIfEq, "EVAL"),
        ] {
            let (first, then) = sent(wording, deletes);
            assert_eq!(
                (first[0].as_str(), &first[2..], then),
                (command, &["1", "n", "me", "channel"].map(String::from)[..], None)
            );
        }
    }
}
