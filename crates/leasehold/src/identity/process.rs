//! What a process knows of itself.

use std::sync::LazyLock;

use super::ClientInfo;

/// Host, process, program and version.
pub(super) fn of_this_process() -> ClientInfo {
    static PROGRAM: LazyLock<Option<String>> = LazyLock::new(program);
    ClientInfo {
        host: host(),
        // Read anew: a fork has another one.
        pid: Some(std::process::id()),
        program: PROGRAM.clone(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        ..ClientInfo::default()
    }
}

/// The name of this machine.
fn host() -> Option<String> {
    #[cfg(unix)]
    let host = Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").ok();
    host.filter(|host| !host.is_empty())
}

/// The file name of the program.
fn program() -> Option<String> {
    let path = std::env::current_exe().ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}
