//! Why an action did not end in a result, and what an error number of the host becomes.

use rustix::io::Errno;
use stepgate_core::failure::ExecutionFailure;

use super::rule;

/// Why an action has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActionError {
    /// A rule says no.
    Refused(&'static str),
    /// It was not done.
    Failed(ExecutionFailure),
    /// It was done or not: only a comparison with the state before can tell.
    Unknown(String),
}

impl ActionError {
    /// What an error means while a path is resolved.
    pub(super) fn resolving(errno: Errno, missing: ExecutionFailure) -> Self {
        match errno {
            Errno::LOOP | Errno::XDEV => Self::Refused(rule::SYMBOLIC_LINK),
            // What a socket, or a device without a driver, answers to an open.
            Errno::NXIO | Errno::NODEV => Self::Refused(rule::SPECIAL_FILE),
            Errno::NOENT => Self::Failed(missing),
            other => Self::from(other),
        }
    }

    /// Whether this says that nothing stands at the path.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Failed(failure) => matches!(
                failure,
                ExecutionFailure::FileNotFound
                    | ExecutionFailure::PathNotFound
                    | ExecutionFailure::NotADirectory
            ),
            Self::Refused(_) | Self::Unknown(_) => false,
        }
    }
}

impl From<Errno> for ActionError {
    /// The one failure that the closed table has for an error; its text stays here.
    fn from(errno: Errno) -> Self {
        Self::Failed(match errno {
            Errno::NOENT => ExecutionFailure::PathNotFound,
            Errno::NOTDIR => ExecutionFailure::NotADirectory,
            Errno::ISDIR => ExecutionFailure::NotAFile,
            Errno::EXIST => ExecutionFailure::AlreadyExists,
            Errno::FBIG => ExecutionFailure::FileTooLarge,
            Errno::NOSPC | Errno::DQUOT => ExecutionFailure::StorageFull,
            // The host has nothing to give at this moment, and the file is as good as before.
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
