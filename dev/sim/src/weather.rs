//! What a seed is like: how many nodes and agents, and which faults how often. Most seeds have only some
//! kinds of faults, so that each kind is also seen without the others in its way.

use crate::chance::Chance;
use crate::schedule::Instant;

/// A millisecond of the simulated clock.
pub(crate) const MS: Instant = 1000;
/// A second of the simulated clock.
pub(crate) const SECOND: Instant = 1000 * MS;

/// How long a node's lease is good.
pub(crate) const LEASE: Instant = 6 * SECOND;
/// How much of it must be left for a call to be sent.
pub(crate) const MARGIN: Instant = 2 * SECOND;
/// How long a caller waits for a trace's lock.
pub(crate) const LOCK_WAIT: Instant = 5 * SECOND;
/// How long a call may be on its way to a tool server. The margin is for this.
pub(crate) const WAY_MAX: Instant = SECOND;
/// The timeout of a call to a tool.
pub(crate) const TOOL_TIMEOUT: Instant = 4 * SECOND;
/// How long a renewal may be on its way to its commit.
pub(crate) const STALL_MAX: Instant = 7 * SECOND;
/// How long a person has to decide.
pub(crate) const APPROVAL_TTL_MS: u64 = 15_000;
/// How long everything may take after the last fault.
pub(crate) const CALM_MAX: Instant = 240 * SECOND;

/// What becomes of one call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing special.
    Calm,
    /// It is refused, and nothing is written.
    Refused,
    /// It is lost on its way.
    LostBefore,
    /// It is done, and the answer is lost.
    LostAfter,
    /// The answer is lost, and it is done a while later.
    Late,
    /// The node dies before it is sent.
    CrashBefore,
    /// The node dies when it is done.
    CrashAfter,
    /// The store tells that it cannot go on, and the node exits.
    Broken,
    /// The node is stopped before it is sent.
    PauseBefore,
    /// The node is stopped when it is done.
    PauseAfter,
}

/// What becomes of one call to a tool server, or of one act in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolFate {
    /// It acts and answers.
    Calm,
    /// The call never arrives.
    Lost,
    /// It says that it failed, and did nothing.
    Fails,
    /// It dies before it acts.
    CrashBefore,
    /// It acts and dies.
    CrashAfter,
    /// It acts, and its answer is not one.
    Wrong,
    /// It acts after the timeout.
    Slow,
}

/// The weather of one seed.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) nodes: usize,
    pub(crate) agents: u64,
    pub(crate) proposals: u64,
    /// When the last fault happens.
    pub(crate) calm_from: Instant,
    store: Vec<(Fate, u64)>,
    tools: Vec<(ToolFate, u64)>,
    /// How often in a thousand an act of the sandbox stops half-way.
    pub(crate) sandbox_stops: u64,
    /// How often in a thousand the whole store dies when it is written to.
    pub(crate) outages: u64,
    /// How long the store takes at most.
    pub(crate) store_delay_max: Instant,
    /// How often in a thousand a renewal is done and not committed for a while.
    pub(crate) renewal_stalls: u64,
    /// How long a node is stopped at most.
    pub(crate) pause_max: Instant,
    /// How often in a thousand a proposal is sent to two nodes at once.
    pub(crate) twice: u64,
    /// How often in a thousand an id is used for something else.
    pub(crate) reused: u64,
    /// How often the policies change, in a thousand seconds.
    pub(crate) policy_changes: u64,
    /// The most that all calls of tools together may ask for (their argument `n`), where there is a budget.
    pub(crate) budget: Option<u64>,
    /// Whether one node, once dead, stays so.
    pub(crate) one_stays_away: bool,
}

const FATES: [Fate; 9] = [
    Fate::Refused,
    Fate::LostBefore,
    Fate::LostAfter,
    Fate::Late,
    Fate::CrashBefore,
    Fate::CrashAfter,
    Fate::Broken,
    Fate::PauseBefore,
    Fate::PauseAfter,
];

const TOOL_FATES: [ToolFate; 6] = [
    ToolFate::Lost,
    ToolFate::Fails,
    ToolFate::CrashBefore,
    ToolFate::CrashAfter,
    ToolFate::Wrong,
    ToolFate::Slow,
];

impl Weather {
    pub(crate) fn of(chance: &mut Chance) -> Self {
        let mut aside = chance.aside();
        let renewal_stalls = aside.pick(&[0, 0, 0, 0, 60, 250], 0);
        let budget = aside.pick(&[None, None, None, Some(60), Some(120), Some(250)], None);
        let mut kinds = |often: &[u64]| chance.pick(often, 0);
        let store = FATES.map(|fate| (fate, kinds(&[0, 0, 0, 4, 15, 40, 100]))).to_vec();
        let tools = TOOL_FATES.map(|fate| (fate, kinds(&[0, 0, 30, 150]))).to_vec();
        Self {
            nodes: usize::try_from(chance.between(2, 4)).unwrap_or(2),
            agents: chance.between(1, 4),
            proposals: chance.between(2, 5),
            calm_from: chance.between(5, 30) * SECOND,
            store,
            tools,
            sandbox_stops: chance.pick(&[0, 0, 60], 0),
            outages: chance.pick(&[0, 0, 8, 25], 0),
            store_delay_max: chance.pick(&[2 * MS, 20 * MS, 400 * MS], MS),
            renewal_stalls,
            pause_max: chance.pick(&[2 * SECOND, 15 * SECOND], SECOND),
            twice: chance.pick(&[0, 200, 600], 0),
            reused: chance.pick(&[0, 0, 150], 0),
            policy_changes: chance.pick(&[0, 0, 200], 0),
            budget,
            one_stays_away: chance.happens(200),
        }
    }

    /// What becomes of a call to the store.
    pub(crate) fn fate(&self, chance: &mut Chance) -> Fate {
        drawn(&self.store, chance).unwrap_or(Fate::Calm)
    }

    /// What becomes of a call to a tool.
    pub(crate) fn tool_fate(&self, chance: &mut Chance) -> ToolFate {
        drawn(&self.tools, chance).unwrap_or(ToolFate::Calm)
    }
}

/// At most one of these, each so often in a thousand.
fn drawn<T: Copy>(among: &[(T, u64)], chance: &mut Chance) -> Option<T> {
    let mut at = chance.below(1000);
    for (fate, often) in among {
        match at.checked_sub(*often) {
            None => return Some(*fate),
            Some(left) => at = left,
        }
    }
    None
}
