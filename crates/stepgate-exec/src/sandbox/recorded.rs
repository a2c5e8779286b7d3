//! The file that was there before a call's first dispatch, for the second dispatch to look for.

use super::error::ActionError;
use super::identity::{Identity, Likeness};
use super::resolve::Dentry;

/// Why recovery cannot continue a call.
pub(super) const IN_DOUBT: &str = "what stands in the sandbox now does not tell whether the call was done: \
                                   look, and say so with `stepgate runs resolve`";

/// What is known about that file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It is this file.
    File(Identity),
    /// It no longer exists: the sandbox was restored without it.
    Gone,
    /// Nothing is known, for this reason.
    Unknown(&'static str),
}

impl Recorded {
    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// Whether the file is at a place. An error means that this cannot be determined: an error that stops
    /// the second dispatch says nothing about what the first one did.
    pub(super) fn at(
        &self,
        place: &Result<Dentry<'_>, ActionError>,
    ) -> Result<Likeness, ActionError> {
        match (self, place) {
            (Self::File(_) | Self::Gone, Err(stop)) if stop.is_absence() => Ok(Likeness::Other),
            (Self::File(_) | Self::Gone, Err(_)) => Err(ActionError::Unknown(IN_DOUBT.into())),
            (Self::Gone, Ok(_)) => Ok(Likeness::Other),
            (Self::File(file), Ok(place)) => match place.file() {
                Ok(Some(now)) => Ok(file.likeness(&now)),
                Ok(None) => Ok(Likeness::Other),
                Err(_) => Err(ActionError::Unknown(IN_DOUBT.into())),
            },
            (Self::Unknown(why), _) => Err(ActionError::Unknown((*why).into())),
        }
    }

    /// Whether the file at a place has the same inode and modification time: see [`Identity::looks_like`].
    pub(super) fn seems_to_be_at(&self, place: &Result<Dentry<'_>, ActionError>) -> bool {
        let (Self::File(file), Ok(place)) = (self, place) else { return false };
        place.file().is_ok_and(|now| now.is_some_and(|now| file.looks_like(&now)))
    }
}
