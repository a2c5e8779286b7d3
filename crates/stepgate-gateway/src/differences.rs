//! Where shadow policies would have decided otherwise: counted and listed, from the events of the runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stepgate_core::digest::Digest;
use stepgate_core::event::payload::{PolicyDiffers, SetDecision};
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::{PrincipalId, RunId};
use stepgate_core::ports::{EventQuery, PolicyAnswer, Store, StoreError};
use stepgate_core::time::Timestamp;

use crate::control::{DifferenceKind, Shadow};

/// Most differences that are read for one answer, the newest ones.
pub const READ_MAX: usize = 10_000;
/// Differences per read of the store.
const PAGE: usize = 1000;

/// Whose differences are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Those of the candidate with this digest.
    Candidate(Digest),
    /// Those of every candidate that there ever was.
    All,
}

/// Recorded differences, in JSON.
#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Differences {
    /// How many decisions differ.
    pub count: u64,
    /// Whether there may be older ones: only so many of the newest are read.
    pub is_cut: bool,
    /// When the first one was recorded.
    pub first_at: Option<Timestamp>,
    /// When the last one was recorded.
    pub last_at: Option<Timestamp>,
    /// How many of each kind, the most frequent first.
    pub by_kind: Vec<KindCount>,
    /// The same for each action or tool.
    pub by_tool: Vec<ToolCount>,
    /// The newest ones, the newest first.
    pub newest: Vec<DifferenceObject>,
}

/// How many decisions differ in this way.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KindCount {
    /// The answer of the set in force.
    pub from: PolicyAnswer,
    /// The answer of the shadow set; the same answer where caps or approvers differ.
    pub to: PolicyAnswer,
    /// How many.
    pub count: u64,
}

/// How many decisions about this tool differ in this way.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ToolCount {
    /// The action or tool.
    pub tool: String,
    /// The answer of the set in force.
    pub from: PolicyAnswer,
    /// The answer of the shadow set; the same answer where caps or approvers differ.
    pub to: PolicyAnswer,
    /// How many.
    pub count: u64,
}

/// One decision that differs, in JSON.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyDifference")]
pub struct DifferenceObject {
    /// The run.
    pub run_id: Option<RunId>,
    /// When it was decided.
    pub ts: Timestamp,
    /// Who asked.
    pub principal_id: PrincipalId,
    /// The action or tool.
    pub tool: String,
    /// What was decided.
    pub in_force: SetDecision,
    /// What the shadow set would have decided.
    pub shadow: SetDecision,
}

/// Reads the newest differences, at most [`READ_MAX`], and counts those that are asked for; `newest_max` of them are
/// listed.
pub async fn read(store: &dyn Store, of: Of, newest_max: usize) -> Result<Differences, StoreError> {
    read_at_most(READ_MAX, store, of, newest_max).await
}

async fn read_at_most(
    read_max: usize,
    store: &dyn Store,
    of: Of,
    newest_max: usize,
) -> Result<Differences, StoreError> {
    let (found, by_tool) = (Differences::default(), BTreeMap::new());
    let mut counting = Counting { of, newest_max, found, by_tool };
    let (mut before, mut left) = (u64::MAX, read_max);
    loop {
        let query = EventQuery {
            back_from: Some(before),
            event_types: vec![EventType::PolicyDiffers],
            limit: PAGE.min(left),
            ..EventQuery::default()
        };
        let page = store.events(query).await?;
        let Some(last) = page.last() else { return Ok(counting.done(left == 0)) };
        before = last.position;
        left = left.saturating_sub(page.len());
        page.iter().for_each(|placed| counting.add(&placed.event));
    }
}

struct Counting {
    of: Of,
    newest_max: usize,
    found: Differences,
    by_tool: BTreeMap<(String, DifferenceKind), u64>,
}

impl Counting {
    /// Counts an event; each is older than the one before.
    fn add(&mut self, event: &Event) {
        let payload = serde_json::from_value(event.payload.clone());
        // A payload that cannot be read was changed in the store: `verify` names it.
        let Ok(PolicyDiffers { in_force, principal_id, shadow, tool }) = payload else { return };
        match self.of {
            Of::All => {}
            Of::Candidate(digest) if digest == shadow.policy_hash => {}
            Of::Candidate(_) => return,
        }
        let kind = DifferenceKind { from: in_force.verdict, to: shadow.verdict };
        let found = &mut self.found;
        found.count += 1;
        found.first_at = Some(event.ts);
        found.last_at.get_or_insert(event.ts);
        *self.by_tool.entry((tool.clone(), kind)).or_default() += 1;
        if found.newest.len() < self.newest_max {
            let (run_id, ts) = (event.run_id, event.ts);
            found.newest.push(DifferenceObject {
                run_id,
                ts,
                principal_id,
                tool,
                in_force,
                shadow,
            });
        }
    }

    fn done(self, is_cut: bool) -> Differences {
        let mut by_kind: BTreeMap<DifferenceKind, u64> = BTreeMap::new();
        for ((_, kind), count) in &self.by_tool {
            *by_kind.entry(*kind).or_default() += count;
        }
        let kinds = by_kind.into_iter();
        let kinds = kinds.map(|(DifferenceKind { from, to }, count)| KindCount { from, to, count });
        let tools = self.by_tool.into_iter().map(|((tool, DifferenceKind { from, to }), count)| {
            ToolCount { tool, from, to, count }
        });
        let (mut by_kind, mut by_tool): (Vec<_>, Vec<_>) = (kinds.collect(), tools.collect());
        by_kind.sort_by_key(|kind| Reverse(kind.count));
        by_tool.sort_by_key(|tool| Reverse(tool.count));
        Differences { is_cut, by_kind, by_tool, ..self.found }
    }
}

/// The shadow policies as they are now, in JSON.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ShadowPolicies")]
pub struct ShadowObject {
    /// Where they are.
    pub directory: String,
    /// Why they are not asked, where they are not.
    pub trouble: Option<String>,
    /// The candidate, where it is asked.
    pub candidate: Option<CandidateObject>,
}

/// A candidate that is asked, in JSON.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ShadowCandidate")]
pub struct CandidateObject {
    /// Digest of the set.
    pub policy_hash: Digest,
    /// How many policies it has.
    pub policies: usize,
    /// Since when this process asks it.
    pub since: Timestamp,
    /// How many decisions of this process it was asked about since.
    pub asked: u64,
    /// How many of those differ.
    pub differing: u64,
}

impl ShadowObject {
    /// The shadow policies of this process.
    pub fn of(shadow: &Shadow) -> Self {
        let (candidate, trouble) = match shadow.candidate() {
            Ok(candidate) => (Some(candidate), None),
            Err(why) => (None, Some(why)),
        };
        let candidate = candidate.map(|candidate| {
            let counts = candidate.counts();
            CandidateObject {
                policy_hash: candidate.set.digest(),
                policies: candidate.set.policies().count(),
                since: candidate.since,
                asked: counts.asked,
                differing: counts.differing.values().sum(),
            }
        });
        Self { directory: shadow.directory.display().to_string(), trouble, candidate }
    }
}

#[cfg(test)]
mod tests;
