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

/// A script that knows how the queue of a fair lock is kept.
macro_rules! fair {
    ($file:literal) => {
        Script::new(concat!(include_str!("scripts/fair_queue.lua"), include_str!(concat!("scripts/", $file))))
    };
}

pub(super) static ACQUIRE: Script = Script::new(include_str!("scripts/acquire.lua"));
pub(super) static RELEASE: Script = Script::new(include_str!("scripts/release.lua"));
pub(super) static ABANDON: Script = Script::new(include_str!("scripts/abandon.lua"));
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

/// A script with its keys and arguments. Names and values are arguments, never script text.
#[derive(Debug)]
pub(super) struct Call {
    script: &'static Script,
    keys: Vec<String>,
    arguments: Vec<String>,
}

impl Call {
    pub(super) fn new(script: &'static Script) -> Self {
        Self { script, keys: Vec::new(), arguments: Vec::new() }
    }

    pub(super) fn key(mut self, key: &str) -> Self {
        self.keys.push(key.to_owned());
        self
    }

    #[expect(clippy::needless_pass_by_value, reason = "numbers read better by value")]
    pub(super) fn arg(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string());
        self
    }

    /// The call by the script's hash, which is what a server that knows the script needs.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", self.script.hash())
    }

    /// The call with the script's text, which makes the server know it.
    pub(super) fn by_text(&self) -> Cmd {
        self.command("EVAL", self.script.text)
    }

    fn command(&self, command: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        cmd
    }
}
