//! Two numbers that notice two holders at once.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use tokio::time::sleep;

/// Two equal numbers, each in a file, that a writer raises one after the other. Two holders at once find them unequal, or lose an
/// increment. A log has a line for each increment: by which program, what it has found, and its token. `interop/go/turn.go` does the
/// same.
pub(super) struct Pair(PathBuf);

const MEANWHILE: Duration = Duration::from_millis(1);

impl Pair {
    pub(super) fn new(port: u16) -> Self {
        let pair = Self(std::env::temp_dir().join(format!("leasehold-pair-{}-{port}", process::id())));
        for file in [".a", ".b"] {
            fs::write(pair.file(file), "0").unwrap();
        }
        fs::write(pair.file(".log"), "").unwrap();
        pair
    }

    /// What the paths of all files begin with.
    pub(super) fn path(&self) -> std::path::Display<'_> {
        self.0.display()
    }

    fn file(&self, which: &str) -> String {
        format!("{}{which}", self.path())
    }

    fn read(&self, which: &str) -> usize {
        let text = fs::read_to_string(self.file(which)).unwrap();
        text.trim().parse().unwrap_or_else(|_| panic!("two held the lock at once: {which} is {text:?}"))
    }

    /// Reads both numbers, one after the other.
    pub(super) async fn look(&self) {
        let a = self.read(".a");
        sleep(MEANWHILE).await;
        assert_eq!(a, self.read(".b"), "a reader and a writer held the lock at once");
    }

    /// Raises both numbers, one after the other.
    pub(super) async fn raise(&self, program: &str, token: u64) {
        let [a, b] = [".a", ".b"].map(|which| self.read(which));
        assert_eq!(a, b, "two held the lock at once");
        fs::write(self.file(".a"), (a + 1).to_string()).unwrap();
        sleep(MEANWHILE).await;
        fs::write(self.file(".b"), (a + 1).to_string()).unwrap();
        let mut log = OpenOptions::new().append(true).open(self.file(".log")).unwrap();
        log.write_all(format!("{program} {a} {token}\n").as_bytes()).unwrap();
    }

    /// The same for a shell that runs under `etcdctl lock`.
    pub(super) fn raise_in_a_shell(&self, program: &str) -> String {
        let [a, b, log] = [".a", ".b", ".log"].map(|which| self.file(which));
        format!(
            "a=$(cat {a}) b=$(cat {b}); [ \"$a\" = \"$b\" ] || a=torn; echo $((a + 1)) > {a}; echo $((a + 1)) > {b}; \
             echo {program} $a $ETCD_LOCK_REV >> {log}"
        )
    }

    /// Checks that each of the programs has raised the numbers so often, that no increment is lost, and that tokens rose.
    pub(super) fn check(&self, programs: &[&str], turns: usize, have_tokens: bool) {
        let text = fs::read_to_string(self.file(".log")).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        for (number, line) in lines.iter().enumerate() {
            assert_eq!(line[1], number.to_string(), "turn {number}, two held the lock at once: {line:?}");
        }
        if have_tokens {
            let tokens: Vec<u64> = lines.iter().map(|line| line[2].parse().unwrap()).collect();
            let wrong = tokens.windows(2).position(|two| two[0] >= two[1]);
            assert!(wrong.is_none(), "the token did not rise after turn {wrong:?}: {text}");
        }
        for program in programs {
            assert_eq!(lines.iter().filter(|line| line[0] == *program).count(), turns, "{program}");
        }
        let all = programs.len() * turns;
        assert_eq!([self.read(".a"), self.read(".b"), lines.len()], [all; 3]);
        let passed = lines.windows(2).filter(|two| two[0][0] != two[1][0]).count();
        println!("{programs:?}: {turns} turns each, passed between programs {passed} times");
        assert!(passed > turns / 20, "they were hardly there together: {passed}");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for file in [".a", ".b", ".log"] {
            let _ = fs::remove_file(self.file(file));
        }
    }
}
