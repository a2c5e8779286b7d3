//! A sandbox that was put back from a copy: what it was before, for calls that were under way then.
//!
//! A second dispatch tells by the identity of a file whether the first one acted, and a copied file is
//! another file. So whoever puts a copy back says which file became which, and recovery looks for that one.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stepgate_core::json::Value;

use super::identity::Identity;
use super::pre_state;
use super::recorded::Recorded;
use super::resolve::stat_of;

/// Why nobody can go on with a call.
const UNKNOWN: &str = "the files of the sandbox were put back from elsewhere, so none of them tells whether \
                       the call was done: look, and say so with `stepgate runs resolve`";

/// What a sandbox was before it was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Earlier {
    /// How it called itself, each time.
    pub executor_ids: Vec<String>,
    /// The files that calls under way had to do with.
    pub files: Vec<Moved>,
}

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// What a call recorded.
    pub was: Identity,
    /// What it is now.
    pub now: Now,
}

/// What a file is now that was another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Now {
    /// This one.
    Is(Identity),
    /// The copy does not have it.
    Gone,
    /// Nobody knows which file it is: somebody else put the files back, or what was recorded fits another
    /// file as well.
    Unknown,
}

impl Earlier {
    /// What became of a file; none where nothing was said of it, so that it is a file of this sandbox.
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

/// The file that a call recorded before it acted, where it is one that is known by its identity.
pub fn recorded_file(pre_state: &Value) -> Option<Identity> {
    let at = |key| pre_state::recorded_file(Some(pre_state), key);
    at(None).or_else(|| at(Some("source")))
}

/// Which file stands at a path; none where there is none.
pub fn file_at(path: &Path) -> Option<Identity> {
    stat_of(rustix::fs::CWD, path).ok().map(|stat| Identity::of(&stat))
}
