//! The places between two durable sub-steps of a changing action, where a test may stop it as a crash would.
//! Without the feature `crashpoints` they do nothing.

use super::error::ActionError;
#[cfg(feature = "crashpoints")]
use stepgate_core::lock::locked;

/// A place inside an action, named after the sub-step that has just finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// WRITE_FILE: the temporary file exists, empty.
    WriteTemporaryCreated,
    /// WRITE_FILE: it has its content, not yet durable.
    WriteTemporaryFilled,
    /// WRITE_FILE: its content is durable.
    WriteTemporarySynced,
    /// WRITE_FILE: it has taken the file's place, not yet durably.
    WriteRenamed,
    /// WRITE_FILE: everything is durable, but the effect is not recorded yet.
    WriteDirectorySynced,
    /// DELETE_FILE: the name is gone, not yet durably.
    DeleteUnlinked,
    /// DELETE_FILE: everything is durable, but the effect is not recorded yet.
    DeleteDirectorySynced,
    /// RENAME_FILE: the file has its new name, not yet durably.
    RenameRenamed,
    /// RENAME_FILE: the destination's directory is durable, the source's perhaps not.
    RenameDestinationSynced,
    /// RENAME_FILE: everything is durable, but the effect is not recorded yet.
    RenameSourceSynced,
    /// CREATE_DIRECTORY: one directory exists, not yet durably. Passed for each that is made.
    CreateMade,
    /// CREATE_DIRECTORY: it is durable. Passed for each that is made.
    CreateParentSynced,
}

impl CrashPoint {
    /// Every point.
    pub const ALL: [Self; 12] = [
        Self::WriteTemporaryCreated,
        Self::WriteTemporaryFilled,
        Self::WriteTemporarySynced,
        Self::WriteRenamed,
        Self::WriteDirectorySynced,
        Self::DeleteUnlinked,
        Self::DeleteDirectorySynced,
        Self::RenameRenamed,
        Self::RenameDestinationSynced,
        Self::RenameSourceSynced,
        Self::CreateMade,
        Self::CreateParentSynced,
    ];
}

/// What a hook answers.
#[cfg(feature = "crashpoints")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtCrashPoint {
    /// Continue.
    GoOn,
    /// The action ends here: its changes so far stay, and its effect is unknown.
    Crash,
}

/// Called at every crash point, on the thread that acts.
#[cfg(feature = "crashpoints")]
pub type CrashHook = std::sync::Arc<dyn Fn(CrashPoint) -> AtCrashPoint + Send + Sync>;

/// The hook, if there is one.
#[cfg(feature = "crashpoints")]
#[derive(Default)]
pub(super) struct CrashPoints(std::sync::Mutex<Option<CrashHook>>);

#[cfg(feature = "crashpoints")]
impl CrashPoints {
    pub(super) fn set(&self, hook: Option<CrashHook>) {
        *locked(&self.0) = hook;
    }

    pub(super) fn pass(&self, point: CrashPoint) -> Result<(), ActionError> {
        // Cloned, so that a hook that blocks does not block other threads at their crash points.
        let hook = locked(&self.0).clone();
        match hook.map_or(AtCrashPoint::GoOn, |hook| hook(point)) {
            AtCrashPoint::GoOn => Ok(()),
            AtCrashPoint::Crash => Err(ActionError::Unknown(format!("crash point {point:?}"))),
        }
    }
}

/// Without the feature there is no hook.
#[cfg(not(feature = "crashpoints"))]
#[derive(Default)]
pub(super) struct CrashPoints(());

#[cfg(not(feature = "crashpoints"))]
impl CrashPoints {
    #[expect(clippy::unused_self, reason = "with the feature there is a hook to ask")]
    #[expect(clippy::unnecessary_wraps, reason = "with the feature a hook may stop")]
    pub(super) fn pass(&self, _point: CrashPoint) -> Result<(), ActionError> {
        Ok(())
    }
}
