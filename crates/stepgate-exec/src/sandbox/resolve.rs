//! From the text of a path to a handle beneath the root, at the moment of use.
//!
//! Mount points beneath the root are crossed (`NO_XDEV` is not set): only an administrator of the host can
//! mount, and containers provide the sandbox as a mounted volume.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use rustix::path::Arg;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::SandboxPath;

use super::crash::{CrashPoint, CrashPoints};
use super::error::ActionError;
use super::identity::{ASKED, Identity};
use super::{SandboxError, SandboxLimits, rule};

/// Flags for resolving every path: never above the handle, and never over a link of any kind.
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens a directory only as a starting point, to read the state in it. Needs no right to read it.
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory to read it, or to change it and sync it.
pub(super) const CHANGE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Flags for every open of a file: a fifo does not block, and a terminal does not become the controlling
/// one.
const FILE: OFlags =
    OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Limit of the attempts to open a file that keeps changing. A write by another call of ours in between
/// costs one more attempt.
const OPEN_ATTEMPTS_MAX: usize = 16;

/// The sandbox's own directory.
pub(super) struct Root {
    handle: OwnedFd,
    pub(super) limits: SandboxLimits,
    pub(super) crash_points: CrashPoints,
}

impl Root {
    pub(super) fn open(directory: &Path, limits: SandboxLimits) -> Result<Self, SandboxError> {
        let failed = |errno: Errno| SandboxError::Open {
            directory: directory.to_owned(),
            source: errno.into(),
        };
        let handle = rustix::fs::openat(CWD, directory, LOOK, Mode::empty()).map_err(failed)?;
        match open_beneath(&handle, "", LOOK) {
            Ok(_) => Ok(Self { handle, limits, crash_points: CrashPoints::default() }),
            Err(Errno::NOSYS | Errno::PERM) => Err(SandboxError::Unsupported),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Opens one of Stepgate's own files in the root, and creates it where it does not exist.
    pub(super) fn own_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Opens a directory by its path relative to the root, to read it.
    pub(super) fn open_directory(&self, beneath: &str) -> Result<OwnedFd, Errno> {
        open_beneath(&self.handle, beneath, CHANGE)
    }

    /// Opens whatever is at a path relative to the root, to read it.
    pub(super) fn open_file(&self, beneath: &str) -> Result<OwnedFd, Errno> {
        open_beneath(&self.handle, beneath, OFlags::RDONLY | FILE)
    }

    /// The place of the path's last component, to [`LOOK`] at it or to [`CHANGE`] it. An absent parent is
    /// `missing`.
    pub(super) fn place<'a>(
        &self,
        path: &'a SandboxPath,
        access: OFlags,
        missing: ExecutionFailure,
    ) -> Result<Dentry<'a>, ActionError> {
        let (parent, name) = path.beneath().rsplit_once('/').unwrap_or(("", path.beneath()));
        let directory = open_beneath(&self.handle, parent, access)
            .map_err(|errno| ActionError::resolving(errno, missing))?;
        Ok(Dentry { directory, name })
    }

    /// A place where a test may stop the action as a crash would; it does nothing without the feature.
    pub(super) fn crash_point(&self, point: CrashPoint) -> Result<(), ActionError> {
        self.crash_points.pass(point)
    }
}

/// The empty path is the handle's own directory.
fn open_beneath(handle: &OwnedFd, beneath: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let beneath = if beneath.is_empty() { "." } else { beneath };
    rustix::fs::openat2(handle, beneath, flags, Mode::empty(), RESOLVE)
}

/// The path of a name in a directory beneath the root, whose own path is empty.
pub(super) fn joined(beneath: &str, name: &str) -> String {
    if beneath.is_empty() { name.to_owned() } else { format!("{beneath}/{name}") }
}

/// One name in one open directory. Every change goes through the directory's handle, so it happens in the
/// directory that was checked, whatever happens to the path meanwhile.
pub(super) struct Dentry<'a> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'a str,
}

impl Dentry<'_> {
    /// What is there, after the rules were checked.
    pub(super) fn look(&self) -> Result<Seen, ActionError> {
        self.stat()?.map_or(Ok(Seen::Nothing), |stat| judge(&stat))
    }

    /// Fails where there is no regular file.
    pub(super) fn expect_file(&self) -> Result<(), ActionError> {
        match self.look()? {
            Seen::Nothing => Err(ActionError::Failed(ExecutionFailure::FileNotFound)),
            Seen::Directory => Err(ActionError::Failed(ExecutionFailure::NotAFile)),
            Seen::File(_) => Ok(()),
        }
    }

    /// The regular file there, without checking the rules.
    pub(super) fn file(&self) -> Result<Option<Identity>, ActionError> {
        let is_file = |stat: &Statx| kind(stat) == FileType::RegularFile;
        Ok(self.stat()?.filter(is_file).map(|stat| Identity::of(&stat)))
    }

    /// The attributes of what is there; none where there is nothing.
    pub(super) fn stat(&self) -> Result<Option<Statx>, ActionError> {
        match stat_of(&self.directory, self.name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the file there, and checks what was really opened. The check before the open avoids opening a
    /// device, which could already have an effect on it.
    pub(super) fn open_file(&self, access: OFlags) -> Result<(OwnedFd, Statx), ActionError> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            self.expect_file()?;
            let file = open_beneath(&self.directory, self.name, FILE | access)
                .map_err(|errno| ActionError::resolving(errno, ExecutionFailure::FileNotFound))?;
            let stat = stat_of_open(&file)?;
            if matches!(judge(&stat)?, Seen::File(_)) && self.has_only_this_name(&stat)? {
                return Ok((file, stat));
            }
        }
        Err(ActionError::Failed(ExecutionFailure::Io))
    }

    /// Whether the open file's only name is the name here. While another process removes one of two names,
    /// the link count may already be one although the file is still found under this name. So this waits
    /// until that change of the directory is finished. Then the file must still be here unchanged: a name
    /// that was removed and added again shows in its change time.
    fn has_only_this_name(&self, opened: &Statx) -> Result<bool, ActionError> {
        // Renaming a file to itself has no effect, but waits for any other change of the directory. If it
        // fails, the file system is read-only or the name is gone, which the `stat` below will show.
        let _ = rustix::fs::renameat(&self.directory, self.name, &self.directory, self.name);
        let as_it_is = |stat: &Statx| {
            let changed = stat.stx_ctime;
            let device = (stat.stx_dev_major, stat.stx_dev_minor);
            (device, stat.stx_ino, stat.stx_nlink, changed.tv_sec, changed.tv_nsec)
        };
        Ok(self.stat()?.is_some_and(|now| as_it_is(&now) == as_it_is(opened)))
    }

    /// Opens the directory there, to read or change it.
    pub(super) fn open_directory(&self) -> Result<OwnedFd, Errno> {
        open_beneath(&self.directory, self.name, CHANGE)
    }

    /// Makes the changes in the directory durable. If that fails after a change, it is unknown whether the
    /// change survives, so recovery decides.
    pub(super) fn sync(&self) -> Result<(), ActionError> {
        match rustix::fs::fsync(&self.directory) {
            // A file system that does not support fsync on directories returns this error.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(_) => Err(ActionError::Unknown("a directory could not be made durable".into())),
        }
    }
}

pub(super) enum Seen {
    Nothing,
    /// A regular file with one name.
    File(Box<Statx>),
    Directory,
}

/// The rules about what may be at a path.
fn judge(stat: &Statx) -> Result<Seen, ActionError> {
    match kind(stat) {
        FileType::Directory => Ok(Seen::Directory),
        FileType::RegularFile if stat.stx_nlink > 1 => Err(ActionError::Refused(rule::HARD_LINK)),
        FileType::RegularFile => Ok(Seen::File(Box::new(*stat))),
        FileType::Symlink => Err(ActionError::Refused(rule::SYMBOLIC_LINK)),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(ActionError::Refused(rule::SPECIAL_FILE)),
    }
}

/// The attributes of a name in a directory, without following a link.
pub(super) fn stat_of(directory: impl AsFd, name: impl Arg) -> Result<Statx, Errno> {
    rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, ASKED)
}

pub(super) fn stat_of_open(open: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH, ASKED)
}

pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// The type of a directory entry. Some file systems do not report it while listing.
pub(super) fn kind_of(reader: &Dir, entry: &DirEntry) -> Result<FileType, Errno> {
    let told = entry.file_type();
    if told != FileType::Unknown {
        return Ok(told);
    }
    let stat = rustix::fs::statat(reader.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
