//! Everything that needs a person, collected from where it is known; and the loop that tells which parts do.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::attention::{self, Kind, Need, Subject};
use stepgate_core::gate::Fault;
use stepgate_core::ids::{ApprovalId, RunId};
use stepgate_core::parts::Finding;
use stepgate_core::ports::{ApprovalQuery, StoreError, Unreached};
use tracing::warn;

use super::{Service, each_open_approval, sleep_unless_set};
use crate::attention::{Attention, NeedObject};

/// Most approvals in the list, the oldest ones. The counts are of all.
pub const APPROVALS_MAX: usize = 100;
/// Approvals per read: one can be megabytes long.
const APPROVALS_AT_ONCE: usize = 8;
/// How often the parts are looked at. A part that is well again by then is not told.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How much of each kind needs a person.
pub struct Counts {
    /// For every kind, 0 included.
    pub by_kind: BTreeMap<Kind, u64>,
    /// Runs that wait for an executor that no living node reaches.
    pub runs_unreached: u64,
}

/// What is known, before approvals are listed.
struct Known {
    runs: Vec<Need>,
    approvals_open: u64,
    findings: Vec<Finding>,
    runs_unreached: u64,
}

impl Service {
    /// Everything that needs a person, the oldest first.
    pub async fn attention(&self) -> Result<Attention, StoreError> {
        let known = self.known_needs().await?;
        let mut needs = self.parts.needs(&self.gate, &known.findings).await?;
        let approvals = self.decidable(&quarantined(&known.runs), None, APPROVALS_MAX).await?;
        needs.extend(approvals.iter().map(of_approval));
        let counts = known.counts().by_kind;
        needs.extend(known.runs);
        needs.sort_by_key(|need| need.since);
        let name = |(kind, count): (Kind, u64)| (kind.as_str().to_owned(), count);
        Ok(Attention {
            attention: needs.iter().map(NeedObject::of).collect(),
            counts: counts.into_iter().map(name).collect(),
        })
    }

    /// How much needs a person, without the list.
    pub async fn attention_counts(&self) -> Result<Counts, StoreError> {
        Ok(self.known_needs().await?.counts())
    }

    async fn known_needs(&self) -> Result<Known, StoreError> {
        let runs = attention::of(&self.gate).await?;
        let approvals_open = self.decidable_approvals(&quarantined(&runs)).await?;
        let unreached = self.gate.store.unreached().await?;
        let mut findings: Vec<Finding> = unreached.iter().map(of_executor).collect();
        findings.extend(self.control.iter().flat_map(|control| control.findings()));
        let runs_unreached = unreached.iter().map(|waiting| waiting.runs).sum();
        Ok(Known { runs, approvals_open, findings, runs_unreached })
    }

    /// How many approvals a person can decide on. Those of runs that do not verify stay open, and are not counted.
    async fn decidable_approvals(&self, quarantined: &HashSet<RunId>) -> Result<u64, StoreError> {
        let mut open = self.gate.store.open_approvals(None).await?;
        if quarantined.is_empty() {
            return Ok(open);
        }
        let without = |approval: &Approval| {
            if quarantined.contains(&approval.tool_run_id) {
                open = open.saturating_sub(1);
            }
        };
        each_open_approval(&*self.gate.store, without).await?;
        Ok(open)
    }

    /// The oldest approvals that a person can decide on, after this one.
    pub async fn decidable_after(
        &self,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        let runs = attention::of(&self.gate).await?;
        self.decidable(&quarantined(&runs), after, limit).await
    }

    async fn decidable(
        &self,
        quarantined: &HashSet<RunId>,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        let mut query = ApprovalQuery {
            after,
            status: Some(ApprovalStatus::Pending),
            oldest_first: true,
            limit: APPROVALS_AT_ONCE,
            ..ApprovalQuery::default()
        };
        let mut found = Vec::new();
        loop {
            let page = self.gate.store.approvals(query.clone()).await?;
            let is_last = page.len() < APPROVALS_AT_ONCE;
            query.after = page.last().map(|last| last.approval_id);
            let now = self.gate.world.now();
            let is_open =
                |it: &Approval| !quarantined.contains(&it.tool_run_id) && !it.has_expired(now);
            found.extend(page.into_iter().filter(is_open));
            if is_last || found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }

    /// Tells which parts need a person, unless they were told already.
    async fn tell_parts(&self) -> Result<(), Fault> {
        let unreached = self.gate.store.unreached().await?;
        // One node tells for all, so that not every node tells the same.
        let unreached = match unreached.is_empty() || !self.is_first_node().await? {
            true => Vec::new(),
            false => unreached,
        };
        let mut findings: Vec<Finding> = unreached.iter().map(of_executor).collect();
        findings.extend(self.control.iter().flat_map(|control| control.findings()));
        self.parts.tell(&self.gate, &findings).await?;
        Ok(())
    }

    /// Whether no living node is older than this one.
    pub(super) async fn is_first_node(&self) -> Result<bool, StoreError> {
        let nodes = self.gate.store.nodes().await?;
        let first = nodes.iter().find(|node| node.lease_left.is_some());
        Ok(first.is_none_or(|node| node.is_this))
    }
}

impl Known {
    fn counts(&self) -> Counts {
        let mut by_kind: BTreeMap<Kind, u64> = Kind::ALL.map(|kind| (kind, 0)).into();
        let runs = self.runs.iter().map(|need| need.kind);
        for kind in runs.chain(self.findings.iter().map(Finding::kind)) {
            *by_kind.entry(kind).or_default() += 1;
        }
        by_kind.insert(Kind::Approval, self.approvals_open);
        Counts { by_kind, runs_unreached: self.runs_unreached }
    }
}

pub(super) async fn keep_telling(service: Arc<Service>) {
    let mut leaving = service.leaving();
    let mut is_failing = false;
    while sleep_unless_set(LOOK_EVERY, &mut leaving).await {
        let told = service.tell_parts().await;
        let was_failing = std::mem::replace(&mut is_failing, told.is_err());
        if let (Err(fault), false) = (told, was_failing) {
            warn!("which parts need a person is written down later: {fault}");
        }
    }
}

fn quarantined(runs: &[Need]) -> HashSet<RunId> {
    let quarantined = runs.iter().filter(|need| need.kind == Kind::Quarantined);
    quarantined.filter_map(|need| need.subject.run_id()).collect()
}

fn of_approval(approval: &Approval) -> Need {
    let reason = match approval.context.read() {
        Ok(asked) => {
            format!("`{}` asks for `{}`: {}", asked.principal_id, asked.action(), asked.reason)
        }
        Err(_) => "the question cannot be read".to_owned(),
    };
    Need {
        subject: Subject::Approval(approval.approval_id, approval.tool_run_id),
        kind: Kind::Approval,
        reason,
        since: approval.ts_requested,
    }
}

fn of_executor(waiting: &Unreached) -> Finding {
    let Unreached { executor_id, runs, since, last_node_id } = waiting;
    let last = match last_node_id {
        Some(node) => format!("node `{node}` reached it last"),
        None => "no node is known that reached it".to_owned(),
    };
    let reason = format!("{runs} run(s) wait for it, and no living node reaches it; {last}");
    Finding::new(Kind::ExecutorUnreached, executor_id, &reason, Some(*since))
}
