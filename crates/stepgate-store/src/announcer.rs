//! Announces what a write made durable.

use std::fmt;
use std::sync::Arc;

use stepgate_core::ports::{Announce, Announcement, StoreError};

use crate::Result;
use crate::plan::Write;

/// The receiver of announcements; none by default.
#[derive(Clone, Default)]
pub(crate) struct Announcer(Option<Arc<dyn Announce>>);

impl Announcer {
    pub(crate) fn to(announce: Arc<dyn Announce>) -> Self {
        Self(Some(announce))
    }

    /// The announcement that a write will make.
    pub(crate) fn announcement(write: &Write) -> Announcement {
        write.commit().map_or(Announcement::More, Announcement::of)
    }

    /// Announces a write that had this answer. A write whose answer was lost is announced too: it may be
    /// durable.
    pub(crate) fn tell<T>(&self, announcement: Announcement, written: &Result<T>) {
        let is_written = matches!(written, Ok(_) | Err(StoreError::AnswerLost(_)));
        if let (Some(announce), true) = (&self.0, is_written) {
            announce.announce(announcement);
        }
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Announcer").field(&self.0.is_some()).finish()
    }
}
