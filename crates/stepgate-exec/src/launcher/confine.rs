//! Landlock: a process gives up all rights beneath some directories and on some files.
//!
//! Landlock rules only allow, always with everything beneath. So the rules allow every sibling on the way
//! from the root to a hidden directory, and nothing on the way itself:
//!
//! ```text
//! /            not allowed as a whole
//! ├── usr      allowed
//! └── srv      not allowed as a whole
//!     ├── www  allowed
//!     └── data hidden
//! ```
//!
//! The directories on the way can be traversed, and their files opened, but they can be neither listed nor
//! changed: no new entry can be made directly in `/` or `/srv`. Symbolic links are not followed: a sibling
//! that links to the hidden directory allows nothing. An entry that appears on the way after the start is
//! not allowed.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags};

/// The newest Landlock version whose rights are handled, where the kernel knows them. From this version on,
/// a socket beneath a hidden directory cannot be connected to either.
const NEWEST: ABI = ABI::V9;

/// Limit of the siblings that are allowed. Beyond it fewer rights are given, never more.
const NEIGHBOURS_MAX: usize = 65_536;

/// Whether a tool server is kept away from the hidden paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wall {
    /// The kernel enforces it.
    Stands,
    /// The kernel has no Landlock.
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

/// Gives up every right of this thread, and of the processes that it starts, beneath these directories, and
/// the right to signal processes outside its Landlock domain.
pub(super) fn keep_away_from(hidden: &[PathBuf]) -> io::Result<Wall> {
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
                let rule = PathBeneath::new(neighbour, rights);
                ruleset = ruleset.add_rule(rule).map_err(io::Error::other)?;
            }
        }
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(Wall::Stands),
        RulesetStatus::NotEnforced => Ok(Wall::Missing),
    }
}

/// The resolved path. A file that does not exist now, such as a secret that is being replaced, is hidden by
/// its name: a file that appears there later is not allowed.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(resolved(parent)?.join(name))
        }
        (resolved, _, _) => resolved,
    }
}

/// The entries of a directory. A directory that cannot be listed allows nothing.
fn names_in(directory: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.file_name()).collect()
}

/// Opens a sibling, without following a link, with the rights that apply to its type. None where it no
/// longer exists.
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
