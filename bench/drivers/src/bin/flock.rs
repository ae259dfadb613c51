//! The bare system calls: `open`, `flock` and `close`, on a plain thread. One name is one file.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;

use bench_drivers::{Args, BlockingContender, Error, drive_blocking};

struct Flock {
    directory: PathBuf,
    /// Whether another process may have the lock.
    waits: bool,
}

impl BlockingContender for Flock {
    type Lock = PathBuf;
    type Held = File;

    fn lock(&self, name: &str) -> PathBuf {
        // As long as the file name of the library for the same name.
        self.directory.join(format!("{}.lock", name.replace(':', "-3A")))
    }

    /// The library of Rust calls `flock` for both on Linux, with `LOCK_NB` for `try_lock`.
    fn acquire(&self, path: &PathBuf) -> Result<File, Error> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if self.waits {
            file.lock()?;
        } else {
            file.try_lock()?;
        }
        Ok(file)
    }

    fn release(&self, file: File) -> Result<(), Error> {
        drop(file);
        Ok(())
    }
}

fn connect(args: &Args) -> Result<Flock, Error> {
    let url = args.need("url")?;
    let directory = url.strip_prefix("file://").ok_or_else(|| format!("{url} is not a directory"))?;
    Ok(Flock { directory: directory.into(), waits: args.need("job")? == "contend" })
}

fn main() -> ExitCode {
    drive_blocking(connect)
}
