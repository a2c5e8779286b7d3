//! Why an action has no result, and how error numbers of the host are mapped.

use rustix::io::Errno;
use stepgate_core::failure::ExecutionFailure;

use super::rule;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActionError {
    /// A sandbox rule refuses it.
    Refused(&'static str),
    /// It was not done.
    Failed(ExecutionFailure),
    /// It was done or not: only a comparison with the state before the call can tell.
    Unknown(String),
}

impl ActionError {
    /// The meaning of an error while a path is resolved.
    pub(super) fn resolving(errno: Errno, missing: ExecutionFailure) -> Self {
        match errno {
            Errno::LOOP | Errno::XDEV => Self::Refused(rule::SYMBOLIC_LINK),
            // The error of opening a socket, or a device without a driver.
            Errno::NXIO | Errno::NODEV => Self::Refused(rule::SPECIAL_FILE),
            Errno::NOENT => Self::Failed(missing),
            other => Self::from(other),
        }
    }

    /// The meaning of an error of a call that deletes or renames a file.
    pub(super) fn acting_on_file(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Failed(ExecutionFailure::FileNotFound),
            other => Self::from(other),
        }
    }

    /// Whether this means that there is nothing at the path.
    pub(super) fn is_absence(&self) -> bool {
        use ExecutionFailure::{FileNotFound, NotADirectory, PathNotFound};
        matches!(self, Self::Failed(FileNotFound | PathNotFound | NotADirectory))
    }
}

impl From<Errno> for ActionError {
    /// The failure of the closed table for an error number; the host's error text is not passed on.
    fn from(errno: Errno) -> Self {
        Self::Failed(match errno {
            Errno::NOENT => ExecutionFailure::PathNotFound,
            Errno::NOTDIR => ExecutionFailure::NotADirectory,
            Errno::ISDIR => ExecutionFailure::NotAFile,
            Errno::EXIST => ExecutionFailure::AlreadyExists,
            Errno::FBIG => ExecutionFailure::FileTooLarge,
            Errno::NOSPC | Errno::DQUOT => ExecutionFailure::StorageFull,
            // The host is out of resources at this moment; the file is unaffected.
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => ExecutionFailure::Unavailable,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => ExecutionFailure::PermissionDenied,
            _ => ExecutionFailure::Io,
        })
    }
}

impl From<std::io::Error> for ActionError {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::from(errno),
            None => Self::Failed(ExecutionFailure::Io),
        }
    }
}

#[cfg(test)]
mod tests;
