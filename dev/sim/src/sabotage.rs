//! Guards that a simulation can take away, one at a time, to see that it would notice.

use std::fmt;
use std::str::FromStr;

/// A guard that is missing. Only this crate knows them: nothing of it is in the shipped program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Commits are taken from nodes that lost the run (the fence).
    SkipFence,
    /// The effect's transition and its record are two commits.
    SplitCommit,
    /// A key is not marked while its call is in flight.
    DropInFlight,
    /// What was written last is gone after a crash of the store (fsync).
    SkipFsync,
    /// The store answers before it has written.
    AnswerEarly,
    /// A call is sent whatever the lease says (the dispatch margin).
    SkipMargin,
    /// A lease that has lapsed is renewed instead of being another one.
    RenewLapsed,
    /// A run is claimed without a look at a renewal that is not committed yet, and an answer that came too
    /// late is believed.
    RenewUnseen,
    /// A call is sent for a run whose owner the node was never told.
    TrustUnclaimed,
    /// Runs are taken over from nodes that are alive.
    TakeOverLiving,
    /// Two nodes may decide on one approval (compare-and-set, and the lock around it).
    DecideTwice,
    /// Recovery sends a call again although only a person may (`ask`).
    ResendAsk,
    /// A second dispatch in the sandbox does not look at what the first one did.
    ForgetPreState,
    /// A second node does not wait for a path that another one changes.
    IgnorePathLocks,
    /// A commit does not ask whether its call is within the budget: the gate relies on what it read before.
    TrustReading,
    /// What a call took from a budget is given back although the call may have been done.
    ReleaseInDoubt,
}

impl Sabotage {
    /// Every sabotage.
    pub const ALL: [Self; 16] = [
        Self::SkipFence,
        Self::SplitCommit,
        Self::DropInFlight,
        Self::SkipFsync,
        Self::AnswerEarly,
        Self::SkipMargin,
        Self::RenewLapsed,
        Self::RenewUnseen,
        Self::TrustUnclaimed,
        Self::TakeOverLiving,
        Self::DecideTwice,
        Self::ResendAsk,
        Self::ForgetPreState,
        Self::IgnorePathLocks,
        Self::TrustReading,
        Self::ReleaseInDoubt,
    ];

    /// How the command line and the documentation spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SkipFence => "skip-fence",
            Self::SplitCommit => "split-commit",
            Self::DropInFlight => "drop-in-flight",
            Self::SkipFsync => "skip-fsync",
            Self::AnswerEarly => "answer-early",
            Self::SkipMargin => "skip-margin",
            Self::RenewLapsed => "renew-lapsed",
            Self::RenewUnseen => "renew-unseen",
            Self::TrustUnclaimed => "trust-unclaimed",
            Self::TakeOverLiving => "take-over-living",
            Self::DecideTwice => "decide-twice",
            Self::ResendAsk => "resend-ask",
            Self::ForgetPreState => "forget-pre-state",
            Self::IgnorePathLocks => "ignore-path-locks",
            Self::TrustReading => "trust-reading",
            Self::ReleaseInDoubt => "release-in-doubt",
        }
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Sabotage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL
            .into_iter()
            .find(|sabotage| sabotage.as_str() == text)
            .ok_or_else(|| format!("there is no sabotage `{text}`; there are {}", known()))
    }
}
