//! What a sandbox was before it was restored from a backup, for calls that were unfinished then.
//!
//! A second dispatch tells by the identity of a file whether the first one acted, and a restored file has a
//! new identity. So the restore records which file became which, and recovery looks for the new one.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stepgate_core::json::Value;

use super::identity::Identity;
use super::pre_state;
use super::recorded::Recorded;
use super::resolve::stat_of;

/// Why recovery cannot continue a call.
const UNKNOWN: &str = "the files of the sandbox were put back from elsewhere, so none of them tells whether \
                       the call was done: look, and say so with `stepgate runs resolve`";

/// What a sandbox was before it was restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Earlier {
    /// Its executor ids, one for each restore.
    pub executor_ids: Vec<String>,
    /// The files that unfinished calls had recorded.
    pub files: Vec<Moved>,
}

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// The identity that a call recorded.
    pub was: Identity,
    /// What became of it.
    pub now: Now,
}

/// What became of a file in a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Now {
    /// It is this file now.
    Is(Identity),
    /// The backup does not have it.
    Gone,
    /// It is unknown which file it is: the files were restored by other means, or the recorded identity fits
    /// another file as well.
    Unknown,
}

impl Earlier {
    /// What became of a file; none where it is not listed, so that it is a file of this sandbox.
    pub fn became(&self, was: &Identity) -> Option<&Now> {
        self.files.iter().find(|moved| moved.was == *was).map(|moved| &moved.now)
    }

    /// The file that a call recorded, as it is now.
    pub(super) fn now(&self, was: Identity) -> Recorded {
        match self.files.iter().find(|moved| moved.was == was) {
            Some(Moved { now: Now::Is(now), .. }) => Recorded::File(now.clone()),
            Some(Moved { now: Now::Gone, .. }) => Recorded::Gone,
            Some(Moved { now: Now::Unknown, .. }) => Recorded::Unknown(UNKNOWN),
            None => Recorded::File(was),
        }
    }
}

/// The file that a call recorded before it acted, where it recorded an identity.
pub fn recorded_file(pre_state: &Value) -> Option<Identity> {
    let at = |key| pre_state::recorded_file(Some(pre_state), key);
    at(None).or_else(|| at(Some("source")))
}

/// The identity of the file at a path; none where there is none.
pub fn file_at(path: &Path) -> Option<Identity> {
    stat_of(rustix::fs::CWD, path).ok().map(|stat| Identity::of(&stat))
}
