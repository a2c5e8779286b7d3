//! Where PostgreSQL's programs are, and as whom they run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// Where Debian installs each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Users that PostgreSQL may run as where this process is root, best first.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// PostgreSQL's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    directory: PathBuf,
    /// Where a program is that the other directory does not have: some builds have only the server, without `psql`.
    clients: PathBuf,
}

impl Programs {
    /// The path of one of them.
    pub fn path(&self, program: &str) -> PathBuf {
        let path = self.directory.join(program);
        if path.exists() { path } else { self.clients.join(program) }
    }

    /// A command that runs one of them as a user whom PostgreSQL accepts.
    pub fn command(&self, program: &str) -> anyhow::Result<Command> {
        as_server_user(&self.path(program))
    }
}

/// Finds the programs: where `STEPGATE_POSTGRES_BIN` says, Debian's newest, or on the path.
pub fn find() -> anyhow::Result<Programs> {
    let named = env::var_os("STEPGATE_POSTGRES_BIN").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = named.into_iter().chain(debian()).chain(env::split_paths(&path));
    let mut whole = candidates.filter(|directory| is_whole(directory));
    let clients = |directory: PathBuf| Programs { clients: directory.clone(), directory };
    whole.next().map(clients).context(
        "there is no PostgreSQL: `cargo xtask setup` installs it as root on Debian; elsewhere install \
         it by hand, or name the directory of its programs in STEPGATE_POSTGRES_BIN",
    )
}

/// Copies the programs of a version, which are in `bin` of this directory with `lib` and `share` beside it, to a place
/// that the server's user can read. What they lack is that of [`find`].
pub(crate) fn copy(version: &Path, to: &Path) -> anyhow::Result<Programs> {
    let copied = Command::new("cp").arg("-a").args([version, to]).status()?;
    ensure!(copied.success(), "cannot copy `{}`", version.display());
    if is_root() {
        let User { uid, gid } = server_user()?;
        let owner = format!("{uid}:{gid}");
        let given = Command::new("chown").args(["-R", &owner]).arg(to).status()?;
        ensure!(given.success(), "cannot give away `{}`", to.display());
    }
    Ok(Programs { directory: to.join("bin"), clients: find()?.directory })
}

/// A directory that has the programs, and not only some of them.
fn is_whole(directory: &Path) -> bool {
    ["initdb", "postgres", "psql"].iter().all(|program| directory.join(program).is_file())
}

fn debian() -> Vec<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let number = |name: &std::ffi::OsStr| name.to_str()?.parse::<u32>().ok();
    let mut found: Vec<_> =
        versions.filter_map(|entry| Some((number(&entry.file_name())?, entry.path()))).collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, directory)| directory.join("bin")).collect()
}

/// Whether this process is root, whom PostgreSQL refuses.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs a program as a user whom PostgreSQL accepts.
pub(crate) fn as_server_user(program: &Path) -> anyhow::Result<Command> {
    if !is_root() {
        return Ok(Command::new(program));
    }
    let User { uid, gid } = server_user()?;
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
    command.arg("--clear-groups").arg(program);
    Ok(command)
}

/// A user's numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The user that the server runs as where this process is root.
pub(crate) fn server_user() -> anyhow::Result<User> {
    let users = fs::read_to_string("/etc/passwd").context("cannot read `/etc/passwd`")?;
    let numbers = |name: &str| {
        let mut fields = users.lines().map(|line| line.split(':'));
        let mut line = fields.find(|line| line.clone().next() == Some(name))?;
        Some(User { uid: line.nth(2)?.parse().ok()?, gid: line.next()?.parse().ok()? })
    };
    USERS.iter().find_map(|name| numbers(name)).with_context(|| {
        format!("PostgreSQL refuses to run as root, and there is no user of {USERS:?}")
    })
}
