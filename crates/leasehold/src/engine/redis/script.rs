//! The scripts, and what is sent to run one.

use std::fmt::Display;
use std::sync::OnceLock;

use super::net::resp::{self, Words};

/// A script and, once somebody asked, its hash.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }
}

/// A script, behind what it needs.
macro_rules! script {
    ($($file:literal)+) => {
        Script::new(concat!($(include_str!(concat!("scripts/", $file))),+))
    };
}

/// A script that may mint tokens or announce something, and knows how something is kept.
macro_rules! locks {
    ($($file:literal)+) => {
        script!("mint.lua" "announce.lua" $($file)+)
    };
}

/// A script that knows how a fair lock and its queue are kept.
macro_rules! fair {
    ($file:literal) => {
        locks!("lock.lua" "fair_queue.lua" $file)
    };
}

/// A script of permits with a lease, behind what all of them have in common.
macro_rules! leased {
    ($($before:literal)* => $file:literal) => {
        script!($($before)* "announce.lua" "tell.lua" "leased_prelude.lua" $file)
    };
}

pub(crate) static ACQUIRE: Script = locks!("lock.lua" "acquire.lua");
pub(crate) static ACQUIRE_ALL: Script = locks!("acquire_all.lua");
pub(crate) static RELEASE: Script = locks!("lock.lua" "release.lua");
pub(crate) static ABANDON: Script = locks!("lock.lua" "abandon.lua");
pub(crate) static RENEW: Script = script!("renew.lua");
pub(crate) static QUERY: Script = script!("query.lua");
pub(crate) static FAIR_ACQUIRE: Script = fair!("fair_acquire.lua");
pub(crate) static FAIR_RELEASE: Script = fair!("fair_release.lua");
pub(crate) static FAIR_ABANDON: Script = fair!("fair_abandon.lua");
pub(crate) static FAIR_FORCE: Script = fair!("fair_force.lua");
pub(crate) static FAIR_BEAT: Script = fair!("fair_beat.lua");
pub(crate) static QUEUE: Script = script!("queue.lua");
pub(crate) static TOKEN: Script = script!("token.lua");
pub(crate) static FORCE: Script = script!("announce.lua" "force.lua");
pub(crate) static FENCED_WRITE: Script = script!("fenced_write.lua");
pub(crate) static SETNX_ACQUIRE: Script = locks!("setnx_acquire.lua");
pub(crate) static SETNX_RENEW: Script = script!("setnx_renew.lua");
pub(crate) static SETNX_QUERY: Script = script!("setnx_query.lua");
static SETNX_RELEASE: Script = script!("announce.lua" "setnx_release.lua");
pub(crate) static COUNT: Script = script!("count.lua");
pub(crate) static TAKE_PERMITS: Script = script!("semaphore_record.lua" "semaphore_take.lua");
pub(crate) static GIVE_PERMITS: Script = script!("announce.lua" "tell.lua" "semaphore_give.lua");
pub(crate) static KEEP_PERMITS: Script = script!("semaphore_record.lua" "semaphore_keep.lua");
pub(crate) static SEMAPHORE: Script = script!("once.lua" "announce.lua" "tell.lua" "semaphore.lua");
pub(crate) static TAKE_LEASED: Script = leased!(=> "leased_take.lua");
pub(crate) static GIVE_LEASED: Script = leased!(=> "leased_give.lua");
pub(crate) static RENEW_LEASED: Script = leased!(=> "leased_renew.lua");
pub(crate) static COUNT_LEASED: Script = leased!(=> "leased_count.lua");
pub(crate) static LEASED: Script = leased!("once.lua" => "leased.lua");
pub(crate) static LATCH: Script = script!("once.lua" "announce.lua" "latch.lua");

/// A script of the read-write lock, behind what they have in common.
macro_rules! rw_script {
    ($file:literal) => {
        locks!("rw/common.lua" $file)
    };
}

pub(crate) static RW_READ: Script = rw_script!("rw/read.lua");
pub(crate) static RW_WRITE: Script = rw_script!("rw/write.lua");
pub(crate) static RW_LEAVE: Script = rw_script!("rw/leave.lua");
pub(crate) static RW_RENEW: Script = rw_script!("rw/renew.lua");
pub(crate) static RW_QUERY: Script = rw_script!("rw/query.lua");
pub(crate) static RW_FORCE: Script = rw_script!("rw/force.lua");
pub(crate) static RW_UNMARK: Script = script!("announce.lua" "rw/unmark.lua");

/// A script of a group, behind what they have in common.
macro_rules! group_script {
    ($file:literal) => {
        locks!("group/common.lua" $file)
    };
}

pub(crate) static GROUP_ACQUIRE: Script = group_script!("group/acquire.lua");
pub(crate) static GROUP_LEAVE: Script = group_script!("group/leave.lua");
pub(crate) static GROUP_RENEW: Script = group_script!("group/renew.lua");
pub(crate) static GROUP_QUERY: Script = group_script!("group/query.lua");
pub(crate) static GROUP_FORCE: Script = group_script!("group/force.lua");

/// What to run, with its keys and arguments. Names and values are arguments, never script text.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    what: What,
    keys: Words,
    arguments: Words,
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
pub(crate) enum Deletes {
    ByScript,
    /// Redis from 8.4 on.
    Delex,
    /// Valkey from 9 on.
    DelIfEq,
}

/// How a script is named in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// By its hash, which is what a server that knows the script needs.
    Sha,
    /// In full, which makes the server know it.
    Source,
}

impl Call {
    pub(crate) fn new(script: &'static Script) -> Self {
        Self::of(What::Script(script))
    }

    /// A plain command: its key comes first, then its arguments.
    pub(crate) fn command(name: &'static str) -> Self {
        Self::of(What::Command(name))
    }

    /// Deletes a key that has a value, and announces it.
    pub(crate) fn compare_and_delete(key: &str, value: impl Display, channel: impl Display) -> Self {
        Self::of(What::CompareAndDelete).key(key).arg(value).arg(channel)
    }

    fn of(what: What) -> Self {
        Self { what, keys: Words::default(), arguments: Words::default() }
    }

    pub(crate) fn key(mut self, key: &str) -> Self {
        self.keys.push_bytes(key.as_bytes());
        self
    }

    pub(crate) fn arg(mut self, argument: impl Display) -> Self {
        self.arguments.push(argument);
        self
    }

    pub(crate) fn bytes(mut self, argument: &[u8]) -> Self {
        self.arguments.push_bytes(argument);
        self
    }

    /// Writes down what is to be sent.
    pub(crate) fn write(&self, encoding: Encoding, deletes: Deletes, out: &mut Vec<u8>) {
        match (self.what, deletes) {
            (What::Script(script), _) => self.write_script(script, encoding, out),
            (What::CompareAndDelete, Deletes::ByScript) => self.write_script(&SETNX_RELEASE, encoding, out),
            (What::Command(name), _) => {
                resp::begin(out, 1 + self.keys.len() + self.arguments.len());
                resp::word(out, name.as_bytes());
                self.keys.write(out);
                self.arguments.write(out);
            }
            (What::CompareAndDelete, Deletes::Delex) => self.write_delete("DELEX", &["IFEQ"], out),
            (What::CompareAndDelete, Deletes::DelIfEq) => self.write_delete("DELIFEQ", &[], out),
        }
    }

    /// What is to be sent right behind it without anybody waiting for it.
    pub(crate) fn announcement(&self, deletes: Deletes) -> Option<Self> {
        let is_native = matches!(self.what, What::CompareAndDelete) && deletes != Deletes::ByScript;
        let channel = is_native.then(|| self.arguments.iter().nth(1))?;
        Some(Self::command("PUBLISH").bytes(&channel?).arg(0))
    }

    fn write_delete(&self, name: &str, operator: &[&str], out: &mut Vec<u8>) {
        resp::begin(out, 3 + operator.len());
        resp::word(out, name.as_bytes());
        self.keys.write(out);
        for word in operator {
            resp::word(out, word.as_bytes());
        }
        self.arguments.iter().take(1).for_each(|value| resp::word(out, &value));
    }

    fn write_script(&self, script: &'static Script, encoding: Encoding, out: &mut Vec<u8>) {
        resp::begin(out, 3 + self.keys.len() + self.arguments.len());
        let (name, script) = match encoding {
            Encoding::Sha => ("EVALSHA", script.hash()),
            Encoding::Source => ("EVAL", script.text),
        };
        resp::word(out, name.as_bytes());
        resp::word(out, script.as_bytes());
        resp::number(out, self.keys.len());
        self.keys.write(out);
        self.arguments.write(out);
    }

    /// What the server said no to, with what older ones leave out: which command of a script, and which keys there are.
    pub(crate) fn explain(&self, refusal: String) -> String {
        if refusal.contains("can't run this command") {
            let commands = self.commands_at(&refusal).join(" or ");
            return format!("{refusal}; the command is {commands}");
        }
        if refusal.contains("access") && refusal.contains("key") {
            let keys: Vec<_> = self.keys.iter().collect();
            return format!("{refusal}; the keys are {}", String::from_utf8_lossy(&keys.join(&b' ')));
        }
        refusal
    }

    /// The commands in that line of the script which the server names.
    fn commands_at(&self, refusal: &str) -> Vec<&'static str> {
        let What::Script(script) = self.what else { return Vec::new() };
        let told = refusal.rsplit("user_script:").next().unwrap_or_default().trim_start();
        let number: String = told.chars().take_while(char::is_ascii_digit).collect();
        let line = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let line = line.and_then(|line| script.text.lines().nth(line));
        let calls = line.unwrap_or_default().split("call('").skip(1);
        calls.filter_map(|call| call.split('\'').next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::redis::net::resp::{Frame, Value, take};

    /// The words of what is sent.
    fn words(call: &Call, encoding: Encoding, deletes: Deletes) -> Vec<String> {
        let mut out = Vec::new();
        call.write(encoding, deletes, &mut out);
        let mut rest = out.as_slice();
        let Ok(Frame::Answer(Value::Array(words))) = take(&mut rest) else { panic!("{out:?}") };
        assert!(rest.is_empty(), "one command");
        let text = |word: Value| match word {
            Value::Text(word) => String::from_utf8(word).expect("text"),
            other => panic!("{other:?}"),
        };
        words.into_iter().map(text).collect()
    }

    #[test]
    fn a_refusal_that_names_a_line_which_no_script_has_is_told_as_it_is() {
        let call = Call::new(&RENEW);
        for line in ["0", "99999", "18446744073709551615", "99999999999999999999999", "x", ""] {
            let refusal = format!("NOPERM this user can't run this command, on @user_script:{line}.");
            assert!(call.explain(refusal.clone()).starts_with(&refusal), "{line}");
        }
    }

    #[test]
    fn a_key_is_compared_and_deleted_in_the_words_of_the_server() {
        let call = Call::compare_and_delete("n", "me", "channel");
        for (deletes, expected) in
            [(Deletes::Delex, &["DELEX", "n", "IFEQ", "me"][..]), (Deletes::DelIfEq, &["DELIFEQ", "n", "me"])]
        {
            assert_eq!(words(&call, Encoding::Sha, deletes), expected);
            let announcement = call.announcement(deletes).expect("a message");
            assert_eq!(words(&announcement, Encoding::Sha, deletes), ["PUBLISH", "channel", "0"]);
        }
        for (encoding, command) in [(Encoding::Sha, "EVALSHA"), (Encoding::Source, "EVAL")] {
            let sent = words(&call, encoding, Deletes::ByScript);
            let expected = ["1", "n", "me", "channel"].map(String::from);
            assert_eq!((sent[0].as_str(), &sent[2..]), (command, &expected[..]));
            assert!(call.announcement(Deletes::ByScript).is_none());
        }
    }
}
