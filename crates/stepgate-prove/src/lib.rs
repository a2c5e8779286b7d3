//! Proves what policies decide on all calls at once, with an SMT solver.
//!
//! Read `search.rs` first: a question is put to the solver, and what it finds is shown to the engine that decides on
//! real calls. `stepgate_policy::symbolic` makes the questions; the solver is a process, and only `solver.rs`
//! talks with it.

mod search;
mod solver;
mod claim;
mod diff;
mod rules;
mod thread;

pub use claim::{Claim, ClaimKind, OfAction, Proof, Who, prove};
pub use diff::{ActionDiff, Change, ChangeKind, Difference, diff};
pub use rules::{RuleFinding, RuleReport, rules};
pub use search::Prover;
pub use solver::{Solver, SolverError, SolverSettings};
pub use thread::on_thread;

/// Limits of a proof.
pub mod limits {
    /// How often the solver is asked for another example, where the engine does not confirm the one that it gave.
    pub const EXAMPLES_MAX: usize = 8;
}
