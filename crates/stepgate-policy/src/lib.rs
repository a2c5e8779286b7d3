//! Asks Cedar whether a call is permitted, refused, or a person's to decide.
//!
//! Read `set.rs` first: a directory of policies becomes a set that cannot change, and the set
//! decides. `live.rs` is what the gateway holds: it swaps one set for another, never a good one for
//! a bad one.

mod set;
mod question;
mod answer;
mod explain;
mod live;
mod check;
mod compile;
mod directory;
mod nesting;
mod rule;
mod subject;
mod reads;
mod cap;
mod validate;
mod literal;
mod schema;
mod shape;
mod view;
mod unseen;
mod cause;
mod case;
mod finding;
pub mod limits;

use stepgate_core::digest::Digest;

pub use answer::Verdict;
pub use check::{Checked, check};
pub use explain::{ExplainedPolicy, ExplainedRequest, Explanation, Outcome};
pub use finding::{Finding, LoadError, Severity};
pub use live::{LivePolicy, Reloaded};
pub use rule::Effect;
pub use set::PolicySet;
pub use shape::ToolShape;
pub use unseen::ExplainedUnseen;

/// Name and text of the files that a data directory begins with: core actions and tools that only look
/// are allowed, tools that change the world need a person, everything else is denied.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("10-core.cedar", include_str!("../../../policies/10-core.cedar")),
    ("20-tools.cedar", include_str!("../../../policies/20-tools.cedar")),
    ("defaults.cases.toml", include_str!("../../../policies/defaults.cases.toml")),
];

/// The digest of a set that is the default one.
pub fn defaults_digest() -> Digest {
    directory::digest_of(DEFAULTS.iter().copied())
}
