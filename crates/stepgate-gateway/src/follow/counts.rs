//! Counts of this process, for the metrics.

use std::collections::BTreeMap;
use std::sync::Mutex;

use stepgate_core::lock::locked;

/// By the name of the cursor. INVARIANT: it has an entry for each configured receiver and stream, and no other.
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

/// The counts of those whose cursor begins so, by the rest of its name.
pub(crate) fn counts(prefix: &str) -> BTreeMap<String, Counts> {
    let counts = locked(&COUNTS);
    let named =
        counts.iter().filter_map(|(name, counts)| Some((name.strip_prefix(prefix)?, counts)));
    named.map(|(name, counts)| (name.to_owned(), *counts)).collect()
}

pub(super) fn count(cursor: &str, change: impl FnOnce(&mut Counts)) {
    change(locked(&COUNTS).entry(cursor.to_owned()).or_default());
}
