//! `cargo xtask servers`: the servers of another release of Debian, without an installation.
//!
//! The packages are fetched by this machine's own mirror and unpacked into the user's cache directory with every library that
//! they need, the C library and its loader among them. The programs are started by that loader, so they run on any release.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::command;

/// The release, and its name at a mirror.
const RELEASE: (&str, &str) = ("debian-13", "trixie");
/// The packages, each with its program.
const PACKAGES: [(&str, &str); 3] =
    [("redis-server", "redis-server"), ("valkey-server", "valkey-server"), ("etcd-server", "etcd")];
/// Where the tests expect the programs.
const PROGRAMS: &str = "target/tools/debian-13";
/// The keys that the packages of all releases are signed with.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Fetches the servers unless the cache has them, and makes programs that start them.
///
/// # Errors
///
/// When this is not a Debian system, its mirror does not have the release, or the cache cannot be written.
pub(crate) fn run() -> Result<(), String> {
    let unpacked = cache()?.join(RELEASE.0);
    let program_of = |(_, program): &(_, &str)| unpacked.join("usr/bin").join(program);
    // An earlier version of this command may have fetched some of them.
    if !PACKAGES.iter().map(program_of).all(|program| program.is_file()) {
        fetch(&unpacked).map_err(|error| {
            format!("the servers of Debian 13 cannot be fetched: {error}\nThe other tests need none of them")
        })?;
    }
    let loader = loader(&unpacked)?;
    for package in PACKAGES {
        let path = Path::new(PROGRAMS).join(package.1);
        write_program(&path, &loader, &program_of(&package))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        command::run(&format!("{} --version", path.display()))?;
    }
    Ok(())
}

/// The cache directory of the user, and in it our own.
fn cache() -> Result<PathBuf, String> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(cache.ok_or("neither XDG_CACHE_HOME nor HOME is a directory")?.join("leasehold"))
}

/// Fetches the packages and all that they depend on, and unpacks them there.
fn fetch(unpacked: &Path) -> Result<(), String> {
    let mirror = mirror()?;
    let staging = unpacked.with_extension("staging");
    prepare(&staging, &mirror).map_err(|error| format!("cannot write {}: {error}", staging.display()))?;
    let inside = |name: &str| staging.join(name).display().to_string();
    let mut words = vec![format!("--config-file={}", inside("apt.conf"))];
    command::run_with("apt-get --quiet=2 update --error-on=any", &words)?;
    words.extend(PACKAGES.map(|(package, _)| package.into()));
    command::run_with("apt-get --quiet=2 install --yes --no-install-recommends --download-only", &words)?;
    let packages = fs::read_dir(inside("archives")).map_err(|error| error.to_string())?;
    for package in packages.flatten().map(|entry| entry.path()) {
        if package.extension().is_some_and(|extension| extension == "deb") {
            command::run_with("dpkg-deb --extract", &[package.display().to_string(), inside("root")])?;
        }
    }
    // Whole or not at all.
    if unpacked.exists() {
        fs::remove_dir_all(unpacked).map_err(|error| error.to_string())?;
    }
    fs::rename(inside("root"), unpacked).map_err(|error| error.to_string())?;
    fs::remove_dir_all(&staging).map_err(|error| error.to_string())
}

/// Writes a configuration by which apt-get fetches packages without the rights of root, and without a change to the system.
fn prepare(staging: &Path, mirror: &str) -> io::Result<()> {
    // One may be left over from an interrupted run.
    if staging.exists() {
        fs::remove_dir_all(staging)?;
    }
    for directory in ["lists/partial", "archives/partial", "root"] {
        fs::create_dir_all(staging.join(directory))?;
    }
    // No package is installed, so the libraries are fetched, too.
    fs::write(staging.join("status"), "")?;
    fs::write(staging.join("sources.list"), format!("deb [signed-by={KEYS}] {mirror} {} main\n", RELEASE.1))?;
    let path = staging.display();
    let configuration = format!(
        r#"Dir::Etc::SourceList "{path}/sources.list";
Dir::Etc::SourceParts "-";
Dir::State "{path}";
Dir::State::Lists "{path}/lists";
Dir::State::Status "{path}/status";
Dir::Cache "{path}";
Dir::Cache::Archives "{path}/archives";
// The directory may be closed to the user that apt-get becomes otherwise.
APT::Sandbox::User "root";
Acquire::Languages "none";
"#
    );
    fs::write(staging.join("apt.conf"), configuration)
}

/// The mirror of Debian that this machine uses.
fn mirror() -> Result<String, String> {
    let format = ["--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian"];
    let known = command::output_with("apt-get indextargets", &format.map(String::from))?;
    let known = String::from_utf8_lossy(&known);
    let first = known.lines().next().ok_or("apt-get has no list of Debian's packages: run apt-get update")?;
    Ok(first.into())
}

/// The loader of the unpacked C library, beside all libraries.
fn loader(unpacked: &Path) -> Result<PathBuf, String> {
    let inside = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    inside(unpacked.join("usr/lib"))
        .flat_map(|directory| inside(directory.path()))
        .find(|file| file.file_name().to_string_lossy().starts_with("ld-linux"))
        .map(|file| file.path())
        .ok_or_else(|| format!("{} is incomplete: remove it, and try again", unpacked.display()))
}

/// Writes a program that becomes another one, started by its own loader.
fn write_program(path: &Path, loader: &Path, program: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let libraries = loader.parent().unwrap_or(loader);
    let [loader, libraries, program] = [loader, libraries, program].map(|path| path.display());
    fs::write(path, format!("#!/bin/sh\nexec '{loader}' --library-path '{libraries}' '{program}' \"$@\"\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
