//! From a path's text to a handle, beneath the root, at the moment of use.
//!
//! Mount points beneath the root are crossed (`NO_XDEV` is not set): only who administers the host
//! can mount, and a volume mounted into the sandbox is how containers give it one.

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

/// How every path is resolved: never above the handle, and over no link of any kind.
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A directory to look from. Needs no right to read it.
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory to read, or to change and make durable.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// With whatever access a file is opened: a fifo does not block, a terminal does not become ours.
const FILE: OFlags =
    OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// How often a file is opened that keeps changing under the open. A write of ours that comes between
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

    /// Opens a file of ours in the root itself, making it where it is not there yet.
    pub(super) fn own_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Opens a directory by its path relative to the root, to read it.
    pub(super) fn open_directory(&self, beneath: &str) -> Result<OwnedFd, Errno> {
        open_beneath(&self.handle, beneath, DIRECTORY)
    }

    /// Opens whatever stands at a path relative to the root, to read it.
    pub(super) fn open_file(&self, beneath: &str) -> Result<OwnedFd, Errno> {
        open_beneath(&self.handle, beneath, OFlags::RDONLY | FILE)
    }

    /// Where the path's last component stands, to look at it. An absent parent is `missing`.
    pub(super) fn place_to_look<'a>(
        &self,
        path: &'a SandboxPath,
        missing: ExecutionFailure,
    ) -> Result<Dentry<'a>, ActionError> {
        self.place(path, LOOK, missing)
    }

    /// Where the path's last component stands, to change it. An absent parent is `missing`.
    pub(super) fn place_to_change<'a>(
        &self,
        path: &'a SandboxPath,
        missing: ExecutionFailure,
    ) -> Result<Dentry<'a>, ActionError> {
        self.place(path, DIRECTORY, missing)
    }

    fn place<'a>(
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

    /// A place where a test may stop the action as a crash would; nothing without the feature.
    pub(super) fn crash_point(&self, point: CrashPoint) -> Result<(), ActionError> {
        self.crash_points.pass(point)
    }
}

/// The empty path is the handle's own directory.
fn open_beneath(handle: &OwnedFd, beneath: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let beneath = if beneath.is_empty() { "." } else { beneath };
    rustix::fs::openat2(handle, beneath, flags, Mode::empty(), RESOLVE)
}

/// One name in one open directory. Everything that changes goes through the directory's handle, so
/// whatever happens to the path meanwhile, the change lands where the judgement was.
pub(super) struct Dentry<'a> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'a str,
}

impl Dentry<'_> {
    /// What stands there, judged.
    pub(super) fn look(&self) -> Result<Seen, ActionError> {
        self.stat()?.map_or(Ok(Seen::Nothing), |stat| judge(&stat))
    }

    /// How large it is, where there is something.
    pub(super) fn size(&self) -> Result<Option<u64>, ActionError> {
        Ok(self.stat()?.map(|stat| stat.stx_size))
    }

    /// The regular file there, whatever the rules say about it.
    pub(super) fn file(&self) -> Result<Option<Identity>, ActionError> {
        let is_file = |stat: &Statx| kind(stat) == FileType::RegularFile;
        Ok(self.stat()?.filter(is_file).map(|stat| Identity::of(&stat)))
    }

    /// What stands there, as the host tells it; none where there is nothing.
    pub(super) fn stat(&self) -> Result<Option<Statx>, ActionError> {
        match stat_of(&self.directory, self.name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the file there, and judges what was really opened. The look before the open spares a
    /// device the open, which could already do something to it.
    pub(super) fn open_file(&self, access: OFlags) -> Result<(OwnedFd, Statx), ActionError> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            match self.look()? {
                Seen::Nothing => return Err(ActionError::Failed(ExecutionFailure::FileNotFound)),
                Seen::Directory => return Err(ActionError::Failed(ExecutionFailure::NotAFile)),
                Seen::File => {}
            }
            let file = open_beneath(&self.directory, self.name, FILE | access)
                .map_err(|errno| ActionError::resolving(errno, ExecutionFailure::FileNotFound))?;
            let stat = stat_of_open(&file)?;
            if matches!(judge(&stat)?, Seen::File) && self.has_only_this_name(&stat)? {
                return Ok((file, stat));
            }
        }
        Err(ActionError::Failed(ExecutionFailure::Io))
    }

    /// Whether the open file's one name is the name here. While a name is being taken away, a file
    /// with a second one elsewhere already counts one name and is still found under this one. So
    /// whoever is changing the directory is waited for, and then the file must stand here
    /// unchanged: a name that went and came again shows in its change time.
    fn has_only_this_name(&self, opened: &Statx) -> Result<bool, ActionError> {
        // To rename a thing to itself does nothing, and does it when nobody else is at it. Where
        // it fails, the file system is read-only or the name is gone, which the look will tell.
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
        open_beneath(&self.directory, self.name, DIRECTORY)
    }

    /// Makes what changed in the directory durable. If that fails after a change, nobody knows
    /// whether the change survives, so recovery decides.
    pub(super) fn sync(&self) -> Result<(), ActionError> {
        match rustix::fs::fsync(&self.directory) {
            // A file system that knows no such thing as a directory's fsync says so.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(_) => Err(ActionError::Unknown("a directory could not be made durable".into())),
        }
    }
}

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing.
    Nothing,
    /// A regular file with one name.
    File,
    /// A directory.
    Directory,
}

/// The rules on what stands at a path.
pub(super) fn judge(stat: &Statx) -> Result<Seen, ActionError> {
    match kind(stat) {
        FileType::Directory => Ok(Seen::Directory),
        FileType::RegularFile if stat.stx_nlink > 1 => Err(ActionError::Refused(rule::HARD_LINK)),
        FileType::RegularFile => Ok(Seen::File),
        FileType::Symlink => Err(ActionError::Refused(rule::SYMBOLIC_LINK)),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(ActionError::Refused(rule::SPECIAL_FILE)),
    }
}

/// What the host says about a name in a directory, over no link.
pub(super) fn stat_of(directory: impl AsFd, name: impl Arg) -> Result<Statx, Errno> {
    rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, ASKED)
}

/// What the host says about something open.
pub(super) fn stat_of_open(open: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH, ASKED)
}

/// What kind of thing it is.
pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// What an entry of a directory is. Some file systems do not say until they are asked.
pub(super) fn kind_of(reader: &Dir, entry: &DirEntry) -> Result<FileType, Errno> {
    let told = entry.file_type();
    if told != FileType::Unknown {
        return Ok(told);
    }
    let stat = rustix::fs::statat(reader.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
