//! Landlock: a process that gives up every right beneath some directories, and on some files.
//!
//! Landlock knows only what is allowed, with everything beneath it. So what is allowed here is every
//! neighbour on the way from the root to a hidden directory, and nothing on the way itself:
//!
//! ```text
//! /            not allowed as a whole
//! ├── usr      allowed
//! └── srv      not allowed as a whole
//!     ├── www  allowed
//!     └── data hidden
//! ```
//!
//! The directories on the way can be passed through, and their files opened, and neither listed nor
//! changed: no new entry can be made directly in `/` or `/srv`. A link is not followed: a neighbour
//! that is a link to the hidden directory allows nothing. What appears on the way after the start is
//! not allowed.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags};

/// The newest rights that are handled, where the kernel knows them. From this one on a socket beneath a
/// hidden directory cannot be connected to either.
const NEWEST: ABI = ABI::V9;

/// Most neighbours that are allowed. Beyond it fewer rights are given, never more.
const NEIGHBOURS_MAX: usize = 65_536;

/// What stands between a tool server and what is hidden from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wall {
    /// The kernel keeps it away.
    Stands,
    /// The kernel cannot.
    Missing,
}

/// Whether the kernel can keep tool servers away from the data directory.
pub fn is_available() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok()
}

/// Gives up every right of this thread, and of what it starts, beneath these directories, and the right
/// to signal anybody outside.
pub(super) fn keep_away_from(hidden: &[&Path]) -> io::Result<Wall> {
    if hidden.is_empty() {
        return Ok(Wall::Stands);
    }
    let hidden = hidden.iter().map(|path| resolved(path)).collect::<io::Result<Vec<_>>>()?;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.scope(Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let mut left = NEIGHBOURS_MAX;
    let mut on_the_way = vec![PathBuf::from("/")];
    while let Some(directory) = on_the_way.pop() {
        for name in names_in(&directory) {
            let path = directory.join(name);
            if hidden.contains(&path) {
                continue;
            }
            if hidden.iter().any(|hidden| hidden.starts_with(&path)) {
                on_the_way.push(path);
                continue;
            }
            if let (Some(remaining), Some((neighbour, rights))) = (left.checked_sub(1), open(&path))
            {
                left = remaining;
                ruleset = allow(ruleset, neighbour, rights)?;
            }
        }
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(Wall::Stands),
        RulesetStatus::NotEnforced => Ok(Wall::Missing),
    }
}

/// Where a path leads. A file that is not there now, such as a secret that is just replaced, is hidden by
/// its name: what appears there later is not allowed.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(resolved(parent)?.join(name))
        }
        (resolved, _, _) => resolved,
    }
}

/// The entries of a directory. One that cannot be listed allows nothing.
fn names_in(directory: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.file_name()).collect()
}

/// A neighbour, itself and not what it links to, with the rights that make sense for it. One that has
/// gone away in the meantime is none.
fn open(path: &Path) -> Option<(OwnedFd, BitFlags<AccessFs>)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let mode = rustix::fs::fstat(&entry).ok()?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Some((entry, AccessFs::from_all(NEWEST))),
        FileType::Symlink => None,
        FileType::RegularFile
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Some((entry, AccessFs::from_file(NEWEST))),
    }
}

fn allow(
    ruleset: RulesetCreated,
    neighbour: OwnedFd,
    rights: BitFlags<AccessFs>,
) -> io::Result<RulesetCreated> {
    ruleset.add_rule(PathBeneath::new(neighbour, rights)).map_err(io::Error::other)
}
