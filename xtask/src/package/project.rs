//! A new project outside of the workspace, whose dependencies are the archives and whose programs are those of the documents.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use super::{PROFILE, Package};
use crate::{
    blocks::{self, Block, Use},
    command,
};

/// Where the documentation is built: not where that of the workspace is.
const DOCUMENTATION: &str = "target/package/documentation";

/// Unpacks the archives, runs what the documents say that is run, and builds the documentation of the library.
///
/// # Errors
///
/// When a package does not work by itself.
pub(super) fn run(packages: &[Package]) -> Result<(), String> {
    let folder = folder()?;
    let done = in_folder(&folder, packages);
    let removed = fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()));
    done.and(removed)
}

fn in_folder(folder: &Path, packages: &[Package]) -> Result<(), String> {
    let shown = folder.display();
    for package in packages {
        command::run(&format!("tar -xzf target/package/{}.crate -C {shown}", package.folder()))?;
    }
    let blocks = blocks::all()?;
    let programs = blocks.iter().filter(|block| block.language == "rust");
    for block in programs {
        write(folder, &format!("project/src/bin/{}.rs", block.name()), &block.program())?;
    }
    write(folder, "project/Cargo.toml", &manifest(&blocks, packages)?)?;
    // The versions that the tests use: no release of a dependency breaks a run.
    let lock = fs::read_to_string("Cargo.lock").map_err(|error| format!("Cargo.lock: {error}"))?;
    write(folder, "project/Cargo.lock", &lock)?;
    command::run(&format!(
        "{PROFILE} cargo build --quiet --manifest-path {shown}/project/Cargo.toml --target-dir target"
    ))?;
    command::run("cargo build --quiet -p leasehold-cli")?;
    for (number, block) in blocks.iter().enumerate().filter(|(_, block)| block.use_ == Use::Run) {
        let printed = printed(folder, block)?;
        print!("{}:\n{printed}", block.place);
        match blocks.get(number + 1) {
            Some(output) if output.use_ == Use::Output && !output.matches(&printed) => {
                return Err(format!("{} does not say what is printed:\n{printed}", output.place));
            }
            _ => {}
        }
    }

    let (library, others): (Vec<_>, _) = packages.iter().partition(|package| package.name == "leasehold");
    let library = library.first().ok_or("no `leasehold`")?.folder();
    let patch = |package: &&Package| {
        format!("--config=patch.crates-io.{}.path=\"{shown}/{}\"", package.name, package.folder())
    };
    command::run_with(
        &format!(
            "RUSTDOCFLAGS=-Dwarnings cargo doc --quiet --manifest-path {shown}/{library}/Cargo.toml --all-features --no-deps \
             --target-dir {DOCUMENTATION}"
        ),
        &others.iter().map(patch).collect::<Vec<_>>(),
    )
}

/// What a program, or the lines of a shell, prints. Locks on files are in the folder.
fn printed(folder: &Path, block: &Block) -> Result<String, String> {
    let programs =
        env::current_dir().map_err(|error| format!("no current folder: {error}"))?.join("target/debug");
    let mut command = if block.language == "sh" {
        let mut shell = Command::new("sh");
        shell.args(["-euc", &block.text]);
        shell
    } else {
        Command::new(programs.join(block.name()))
    };
    let mut path = programs.into_os_string();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    command.env("PATH", path).env("HOME", folder).env_remove("XDG_STATE_HOME");
    // The settings of the user are not for these programs.
    command.env_remove("XDG_CONFIG_HOME");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_")) {
        command.env_remove(name);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", block.place))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed: {}\n{error}", block.place, output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The manifest of a user: the lines of the README, and the archives in place of a registry.
fn manifest(blocks: &[Block], packages: &[Package]) -> Result<String, String> {
    let dependencies = blocks.iter().find(|block| block.language == "toml" && block.use_ == Use::Compile);
    let dependencies = &dependencies.ok_or("README.md has no dependencies")?.text;
    let lines = dependencies.lines().map(|line| {
        let package = packages.iter().find(|package| line.starts_with(&format!("{} = ", package.name)));
        package.map_or(line.to_owned(), |package| format!("{} = \"{}\"", package.name, package.version))
    });
    let patch = |package: &Package| format!("{} = {{ path = \"../{}\" }}", package.name, package.folder());
    let mut text: Vec<_> =
        ["[package]", "name = \"new-project\"", "version = \"0.0.0\"", "edition = \"2024\""]
            .map(String::from)
            .into();
    text.extend(lines);
    text.push("[patch.crates-io]".into());
    text.extend(packages.iter().map(patch));
    Ok(text.join("\n"))
}

/// A new folder outside of the workspace. Its name is the same in each run, so that cargo builds the project once.
fn folder() -> Result<PathBuf, String> {
    let here = env::current_dir().map_err(|error| format!("no current folder: {error}"))?;
    let mut hasher = DefaultHasher::new();
    here.hash(&mut hasher);
    let folder = env::temp_dir().join(format!("leasehold-package-{:016x}", hasher.finish()));
    // A run that was ended has left it.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("project/src/bin"))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn write(folder: &Path, file: &str, text: &str) -> Result<(), String> {
    fs::write(folder.join(file), text).map_err(|error| format!("{file}: {error}"))
}
