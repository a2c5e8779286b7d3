//! Asks Cedar whether a call is permitted, denied, or needs a person's decision.
//!
//! Read `set.rs` first: a directory of policies becomes an immutable set, and the set decides. `live.rs` is
//! what the gateway holds: it replaces one set by another, but never a valid one by an invalid one.

mod set;
mod question;
mod answer;
mod evaluate;
mod explain;
mod live;
mod compile;
mod directory;
mod nesting;
mod rule;
mod subject;
mod who;
mod reads;
mod cap;
mod erasable;
mod budget;
mod budget_file;
mod validate;
mod literal;
mod advice;
mod schema;
mod vocabulary;
mod shape;
mod view;
mod unseen;
mod cause;
mod case;
mod finding;
pub mod symbolic;
pub mod limits;

use stepgate_core::digest::Digest;

pub use answer::Verdict;
pub use budget::{Budget, ExplainedBudget};
pub use compile::{Checked, Nameable, check};
pub use directory::mentions_erasable;
pub use evaluate::Outcome;
pub use explain::{ExplainedPolicy, ExplainedRequest, Explanation};
pub use finding::{Finding, LoadError, Severity};
pub use live::{LivePolicy, Reloaded};
pub use rule::Effect;
pub use set::{PolicySet, ShownRule};
pub use shape::ToolShape;
pub use unseen::ExplainedUnseen;

/// Name and text of the files in a new data directory: core actions and read-only tools are allowed, tools
/// that change something need a person, everything else is denied.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("10-core.cedar", include_str!("../../../policies/10-core.cedar")),
    ("20-tools.cedar", include_str!("../../../policies/20-tools.cedar")),
    ("defaults.cases.toml", include_str!("../../../policies/defaults.cases.toml")),
];

/// Name and text of the files that `stepgate policy init` writes: core actions are allowed, and tools by what they are
/// and by what the session has read.
pub const FIRST: &[(&str, &str)] = &[
    ("10-core.cedar", include_str!("../../../policies/10-core.cedar")),
    ("30-flow.cedar", include_str!("../../../policies/examples/flow/policies/30-flow.cedar")),
    ("defaults.cases.toml", include_str!("../../../policies/defaults.cases.toml")),
];

/// The digest of the default set.
pub fn defaults_digest() -> Digest {
    directory::digest_of(DEFAULTS.iter().copied())
}
