//! A sandbox that was put back from a copy: what it was before, for calls that were under way then.
//!
//! A second dispatch tells by the identity of a file whether the first one acted, and a copied file is
//! another file. So whoever puts a copy back says which file became which, and recovery looks for that one.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stepgate_core::json::Value;

use super::pre_state;
use super::resolve::Identity;

/// What a sandbox was before it was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Earlier {
    /// How it called itself.
    pub executor_id: String,
    /// The files that calls under way had to do with.
    pub files: Vec<Moved>,
}

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// What a call recorded.
    pub was: Identity,
    /// What it is now; none where the copy does not have it.
    pub now: Option<Identity>,
}

impl Earlier {
    /// The file that a call recorded, as it is now.
    pub(super) fn now(&self, was: Identity) -> Identity {
        match self.files.iter().find(|moved| moved.was == was) {
            Some(Moved { now: Some(now), .. }) => now.clone(),
            Some(Moved { now: None, .. }) => Identity::none(),
            None => was,
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
    rustix::fs::lstat(path).ok().map(|stat| Identity::of(&stat))
}
