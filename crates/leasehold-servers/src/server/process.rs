//! A server's process, which does not outlive its owner.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
};

use super::{LOOK_EVERY, LOOKS};

/// Becomes the server, `$0` with the configuration `$1` and the argument `$3`, if it is not empty, after starting a guard process.
///
/// The guard waits at a pipe that the owner holds. A line means that the owner cleans up itself. The end of the pipe means that
/// the owner has ended; then the guard ends the server and removes the directory `$2`.
const GUARDED: &str = r#"
exec 3<&0 </dev/null
(read -r line <&3 || { kill -9 $$; rm -rf "$2"; }) &
exec "$0" "$1" $3 3<&-
"#;

/// A server's process; it ends when this is dropped, and when the process that holds this ends for any reason.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
}

impl Process {
    pub(super) fn start(program: &Path, configuration: &Path, directory: &Path, argument: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", GUARDED])
            .args([program, configuration, directory])
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        Self { child }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended by itself, if it did.
    pub(super) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    pub(super) fn pause(&self) {
        self.signal("STOP");
        // The signal may still be pending when the command that sent it has ended.
        for _ in 0..LOOKS {
            let state = fs::read_to_string(format!("/proc/{}/stat", self.id()));
            // The state follows the name, which is in parentheses. Without /proc the state cannot be checked.
            if state.map_or(true, |state| state.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")))
            {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("process {} does not stop", self.id());
    }

    pub(super) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill` exists everywhere; the program of that name does not.
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.id())]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no {name} for process {}", self.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Before the process is reaped, so that the guard does not kill the next process with its id.
        if let Some(mut guard) = self.child.stdin.take() {
            let _ = guard.write_all(b"\n");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
