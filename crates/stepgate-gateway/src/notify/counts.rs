//! Counts of this process, for the metrics.

use std::collections::BTreeMap;
use std::sync::Mutex;

use stepgate_core::lock::locked;

/// INVARIANT: it has an entry for each configured receiver, and no other.
static COUNTS: Mutex<BTreeMap<String, Counts>> = Mutex::new(BTreeMap::new());

/// What became of a receiver's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that arrived.
    pub delivered: u64,
    /// Tries that failed.
    pub failed: u64,
    /// Messages that were given up.
    pub skipped: u64,
    /// Whether the last try failed.
    pub is_failing: bool,
}

/// The counts of every receiver, by name.
pub fn counts() -> BTreeMap<String, Counts> {
    locked(&COUNTS).clone()
}

pub(super) fn count(receiver: &str, change: impl FnOnce(&mut Counts)) {
    change(locked(&COUNTS).entry(receiver.to_owned()).or_default());
}
