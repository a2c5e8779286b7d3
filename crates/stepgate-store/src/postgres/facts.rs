//! The facts that plans are based on: read from the database before, or cached.
//!
//! A plan asks for facts while it is made, and each read from PostgreSQL is a round trip. So the needs of a
//! batch are collected first, and everything that is not cached is read in one round trip.

use std::collections::{BTreeSet, HashMap, HashSet};

use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, BudgetChange};
use stepgate_core::decimal::Decimal;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::lease::Ownership;
use stepgate_core::ports::{ApprovalChange, KeyChange};
use stepgate_core::run::{Run, Status};
use stepgate_core::session::{Session, SessionKind, Uniqueness};
use tokio_postgres::Row;

use super::cells::all;
use super::link::Query;
use super::read::{self, incomplete, trace_from, traces};
use crate::Result;
use crate::chunk::checkpoint_numbers_from;
use crate::plan::{Chain, Rows, Trace, View, Write, is_only_one};
use crate::rows::{approval_from, balance_from, binding_from, run_from, session_from};
use crate::select::{self, Engine};
use crate::tables::{APPROVALS, BINDINGS, BUDGET_ACCOUNTS, CHUNKS, SESSIONS, TOOL_RUNS};

/// Limit of the cached open traces, and of the cached sessions. Beyond it the cache is cleared and filled
/// again.
const REMEMBERED_MAX: usize = 65_536;

/// Whether the cache is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// It is, and rows that must not exist are assumed absent: the database refuses a batch that is wrong.
    Trusting,
    /// It is not: everything is read, with locks on the rows that will change.
    Doubting,
}

/// The facts for a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    traces: HashMap<RunId, (Trace, Ownership)>,
    /// The state of the sessions.
    pub(super) chains: HashMap<SessionId, Chain>,
    sessions: HashMap<SessionId, Session>,
    runs: HashMap<RunId, Run>,
    bindings: HashMap<IdempotencyKey, Binding>,
    approvals: HashMap<ApprovalId, Approval>,
    checkpoints: HashSet<(RunId, u64)>,
    /// What is used of accounts. Other nodes charge them too, so this is never cached: where it is not read under locks,
    /// it is what the batch itself has added, and the statement has the condition.
    used: HashMap<Account, Decimal>,
}

impl Facts {
    pub(super) fn ownership(&self, run_id: RunId) -> Option<Ownership> {
        self.traces.get(&run_id).map(|(_, ownership)| *ownership)
    }

    pub(super) fn status(&self, run_id: RunId) -> Option<Status> {
        self.traces.get(&run_id).map(|(trace, _)| trace.status)
    }

    /// Notes what a plan changes, for the later plans of the batch.
    pub(super) fn note(&mut self, rows: &Rows<'_>, after: Option<Ownership>) {
        if let (Some((run_id, trace)), Some(after)) = (rows.trace, after) {
            self.traces.insert(run_id, (trace, after));
        }
        if let Some(session) = rows.session {
            self.sessions.insert(session.session_id, session.clone());
            self.chains.insert(session.session_id, Chain::EMPTY);
        }
        self.chains.extend(rows.chain);
        if let Some(new) = rows.run {
            self.runs.insert(new.run.arrival.run_id, new.run.clone());
        }
        match rows.key {
            Some(KeyChange::Bind(binding)) => {
                self.bindings.insert(binding.idempotency_key.clone(), binding.clone());
            }
            Some(KeyChange::Settle(key)) => {
                if let Some(binding) = self.bindings.get_mut(key) {
                    binding.settled = true;
                }
            }
            None => {}
        }
        match rows.approval {
            Some(ApprovalChange::Ask(approval) | ApprovalChange::Decide(approval)) => {
                self.approvals.insert(approval.approval_id, approval.clone());
            }
            None => {}
        }
        for change in &rows.accounts {
            self.used.insert(change.account.clone(), change.after);
        }
        if let Some(checkpoint) = rows.checkpoint {
            let number = checkpoint.checkpoint_sequence_number;
            self.checkpoints.insert((checkpoint.trace_id, number));
        }
    }

    /// Keeps the facts of a committed batch that later batches will need: the state of open traces and
    /// sessions, and the keys of effects in flight. A run that is over is not needed any more.
    pub(super) fn absorb(&mut self, batch: Self) {
        if self.traces.len() > REMEMBERED_MAX {
            self.traces.clear();
            self.bindings.clear();
        }
        if self.chains.len() > REMEMBERED_MAX {
            self.chains.clear();
        }
        for (run_id, (trace, ownership)) in batch.traces {
            match trace.status.is_final() || ownership.owner.is_none() {
                true => drop(self.traces.remove(&run_id)),
                false => drop(self.traces.insert(run_id, (trace, ownership))),
            }
        }
        self.chains.extend(batch.chains);
        for (key, binding) in batch.bindings {
            match self.traces.contains_key(&binding.trace_id) && !binding.settled {
                true => drop(self.bindings.insert(key, binding)),
                false => drop(self.bindings.remove(&key)),
            }
        }
    }

    /// The cached facts about these writes.
    pub(super) fn about<'a>(&self, writes: impl Iterator<Item = &'a Write>) -> Self {
        let mut known = Self::default();
        for write in writes {
            let (session_id, run_id) = match write {
                Write::Step(step) => {
                    let commit = step.commit();
                    if let Some(KeyChange::Settle(key)) = &commit.key
                        && let Some(binding) = self.bindings.get(key)
                    {
                        known.bindings.insert(key.clone(), binding.clone());
                    }
                    (commit.place.session_id, Some(commit.place.run_id))
                }
                Write::Event(event) | Write::Session(_, event) => (event.session_id, event.run_id),
                Write::Archive(commit) => (commit.event.session_id, None),
                Write::Erase(commit) => (commit.event.session_id, None),
            };
            if let Some(chain) = self.chains.get(&session_id) {
                known.chains.insert(session_id, *chain);
            }
            if let Some((run_id, trace)) = run_id.and_then(|id| Some((id, self.traces.get(&id)?))) {
                known.traces.insert(run_id, *trace);
            }
        }
        known
    }

    /// Adds the rows that [`Needs::queries`] read.
    pub(super) fn learn(&mut self, rows: &[Vec<Row>]) -> Result<()> {
        let [sessions, traces, runs, bindings, approvals, checkpoints, accounts] = rows else {
            return Err(incomplete());
        };
        for session in all(sessions, SESSIONS, session_from)? {
            let Session { session_id, head, last_step_index, .. } = session;
            self.chains.insert(session_id, Chain { head, last_step_index });
            self.sessions.insert(session_id, session);
        }
        let traces = all(traces, TOOL_RUNS, |cells| {
            let owner = cells.maybe_number("owner")?;
            let ownership = Ownership {
                owner: owner.and_then(|owner| i64::try_from(owner).ok()),
                epoch: i64::try_from(cells.number("epoch")?).unwrap_or(i64::MAX),
            };
            Ok((cells.parsed("tool_run_id")?, (trace_from(cells)?, ownership)))
        })?;
        self.traces.extend(traces);
        for run in all(runs, TOOL_RUNS, run_from)? {
            self.runs.insert(run.arrival.run_id, run);
        }
        for binding in all(bindings, BINDINGS, binding_from)? {
            self.bindings.insert(binding.idempotency_key.clone(), binding);
        }
        for approval in all(approvals, APPROVALS, approval_from)? {
            self.approvals.insert(approval.approval_id, approval);
        }
        let marked = all(checkpoints, CHUNKS, |cells| {
            Ok((cells.parsed::<RunId>("trace_id")?, checkpoint_numbers_from(cells)?))
        })?;
        for (run_id, numbers) in marked {
            self.checkpoints.extend(numbers.into_iter().map(|number| (run_id, number)));
        }
        for balance in all(accounts, BUDGET_ACCOUNTS, balance_from)? {
            self.used.insert(balance.account, balance.used);
        }
        Ok(())
    }
}

impl View for Facts {
    fn trace(&mut self, run_id: RunId) -> Result<Option<Trace>> {
        Ok(self.traces.get(&run_id).map(|(trace, _)| *trace))
    }

    fn chain(&mut self, session_id: SessionId) -> Result<Option<Chain>> {
        Ok(self.chains.get(&session_id).copied())
    }

    fn session(&mut self, session_id: SessionId) -> Result<Option<Session>> {
        Ok(self.sessions.get(&session_id).cloned())
    }

    fn only_session_like(&mut self, asked: &Session) -> Result<Option<Session>> {
        let mut there = self.sessions.values();
        Ok(there.find(|there| is_only_one(there, asked)).cloned())
    }

    fn run(&mut self, run_id: RunId) -> Result<Option<Run>> {
        Ok(self.runs.get(&run_id).cloned())
    }

    fn binding(&mut self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        Ok(self.bindings.get(key).cloned())
    }

    fn has_key(&mut self, run_id: RunId) -> Result<bool> {
        Ok(self.bindings.values().any(|binding| binding.trace_id == run_id))
    }

    fn approval(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        Ok(self.approvals.get(&approval_id).cloned())
    }

    fn has_approval(&mut self, run_id: RunId) -> Result<bool> {
        Ok(self.approvals.values().any(|approval| approval.tool_run_id == run_id))
    }

    fn used(&mut self, account: &Account) -> Result<Option<Decimal>> {
        Ok(self.used.get(account).copied())
    }

    fn has_checkpoint(&mut self, run_id: RunId, number: u64) -> Result<bool> {
        Ok(self.checkpoints.contains(&(run_id, number)))
    }

    /// Only with the rows of all sessions, which are read under locks: then nothing is added to their runs before the
    /// commit, and the statements themselves find whether a run has changed.
    fn changed_run(&mut self, runs: &[ArchivedRun]) -> Result<Option<RunId>> {
        let unlocked = runs.iter().find(|run| !self.sessions.contains_key(&run.session_id));
        Ok(unlocked.map(|run| run.run_id))
    }
}

/// The facts that must be read before plans are made.
#[derive(Debug, Default)]
pub(super) struct Needs {
    sessions: BTreeSet<SessionId>,
    /// Principals with the kinds of sessions that are unique for each of them.
    only: BTreeSet<(String, &'static str)>,
    traces: BTreeSet<RunId>,
    /// Runs whose full rows are needed.
    runs: BTreeSet<RunId>,
    keys: BTreeSet<String>,
    approvals: BTreeSet<ApprovalId>,
    accounts: BTreeSet<Account>,
}

impl Needs {
    /// The facts that these writes need and the cache does not have.
    pub(super) fn of<'a>(
        writes: impl Iterator<Item = &'a Write>,
        known: &Facts,
        care: Care,
    ) -> Self {
        let mut needs = Self::default();
        for write in writes {
            needs.add(write, known, care);
        }
        needs
    }

    fn add(&mut self, write: &Write, known: &Facts, care: Care) {
        let is_doubting = care == Care::Doubting;
        let mut add_session = |session_id: SessionId| {
            if is_doubting || !known.chains.contains_key(&session_id) {
                self.sessions.insert(session_id);
            }
        };
        match write {
            Write::Session(session, event) => {
                add_session(session.session_id);
                add_session(event.session_id);
                self.add_only(&session.principal_id, session.kind);
            }
            Write::Event(event) => {
                add_session(event.session_id);
                if let Some(run_id) = event.run_id
                    && !known.traces.contains_key(&run_id)
                {
                    self.traces.insert(run_id);
                }
            }
            Write::Archive(commit) => {
                add_session(commit.event.session_id);
                if is_doubting {
                    commit.runs.iter().for_each(|run| add_session(run.session_id));
                }
            }
            Write::Erase(commit) => add_session(commit.event.session_id),
            Write::Step(step) => {
                let commit = step.commit();
                let run_id = commit.place.run_id;
                add_session(commit.place.session_id);
                let is_known = commit.open.is_some() || known.traces.contains_key(&run_id);
                // A checkpoint of an entry that is there already may be there already, too.
                let is_later = commit.checkpoint.as_ref().is_some_and(|checkpoint| {
                    let number = checkpoint.checkpoint_sequence_number;
                    commit.entries.iter().all(|it| it.entry.sequence_number != number)
                });
                if is_doubting || !is_known || is_later {
                    self.traces.insert(run_id);
                }
                if commit.open.is_none() && step.has_genesis() {
                    self.runs.insert(run_id);
                }
                if is_doubting {
                    let charges = commit.budgets.iter().map(|change| match change {
                        BudgetChange::Reserve(charge) | BudgetChange::Release(charge) => charge,
                    });
                    self.accounts.extend(charges.map(|charge| charge.account()));
                }
                match &commit.key {
                    Some(KeyChange::Bind(binding)) if is_doubting => {
                        self.keys.insert(binding.idempotency_key.as_str().to_owned());
                    }
                    Some(KeyChange::Settle(key)) if !known.bindings.contains_key(key) => {
                        self.keys.insert(key.as_str().to_owned());
                    }
                    Some(KeyChange::Bind(_) | KeyChange::Settle(_)) | None => {}
                }
                match &commit.approval {
                    Some(ApprovalChange::Ask(approval)) if is_doubting => {
                        self.approvals.insert(approval.approval_id);
                    }
                    Some(ApprovalChange::Decide(approval)) => {
                        self.approvals.insert(approval.approval_id);
                    }
                    Some(ApprovalChange::Ask(_)) | None => {}
                }
            }
        }
    }

    fn add_only(&mut self, principal_id: &PrincipalId, kind: SessionKind) {
        match kind.uniqueness() {
            Uniqueness::None => {}
            Uniqueness::InStore | Uniqueness::ForPrincipal => {
                self.only.insert((principal_id.as_str().to_owned(), kind.as_str()));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { sessions, only, traces, runs, keys, approvals, accounts } = self;
        sessions.is_empty()
            && only.is_empty()
            && traces.is_empty()
            && runs.is_empty()
            && keys.is_empty()
            && approvals.is_empty()
            && accounts.is_empty()
    }

    /// The queries whose rows [`Facts::learn`] takes. Sessions, runs and accounts are locked in the order of
    /// their ids, so that two nodes that lock the same rows cannot deadlock.
    pub(super) fn queries(&self, care: Care) -> Vec<Query> {
        let texts = |ids: Vec<String>| Box::new(ids) as _;
        let strings = |ids: &BTreeSet<RunId>| ids.iter().map(ToString::to_string).collect();
        let (sessions, runs) = match care {
            Care::Trusting => ("", ""),
            Care::Doubting => (" FOR UPDATE", " FOR UPDATE OF run"),
        };
        let accounts = read::accounts(self.accounts.iter(), sessions);
        // A kind that is unique in the store is found for any principal.
        let sessions = format!(
            "{} WHERE session_id IN
             (SELECT unnest($1::text[])
              UNION SELECT there.session_id
                FROM unnest($2::text[], $3::text[]) AS asked (principal, of_kind)
                JOIN sessions AS there ON there.principal_id = principal AND there.kind = of_kind
              UNION SELECT session_id FROM sessions WHERE kind = 'system' AND 'system' = ANY($3))
             ORDER BY session_id{sessions}",
            SESSIONS.select()
        );
        let traces = traces("run.tool_run_id = ANY($1) ORDER BY run.tool_run_id") + runs;
        let bindings = select::bindings(
            Engine::Postgres,
            // Not `idempotency_key IS NOT NULL`: for that, PostgreSQL reads the whole index of keys.
            "idempotency_key = ANY($1) OR (tool_run_id = ANY($2) AND settled IS NOT NULL)",
            "idempotency_key = ANY($1) OR trace_id = ANY($2)",
        );
        let approvals =
            APPROVALS.select() + " WHERE approval_id = ANY($1) OR tool_run_id = ANY($2)";
        let checkpoints = CHUNKS.select() + " WHERE trace_id = ANY($1) AND checkpoints > 0";
        let session_ids = self.sessions.iter().map(ToString::to_string).collect();
        let principals = self.only.iter().map(|(principal, _)| principal.clone()).collect();
        let kinds = self.only.iter().map(|(_, kind)| (*kind).to_owned()).collect();
        let run_ids: Vec<String> = strings(&self.traces);
        let approval_ids = self.approvals.iter().map(ToString::to_string).collect();
        vec![
            Query::new(sessions, vec![texts(session_ids), texts(principals), texts(kinds)]),
            Query::new(traces, vec![texts(run_ids.clone())]),
            Query::new(
                TOOL_RUNS.select() + " WHERE tool_run_id = ANY($1)",
                vec![texts(strings(&self.runs))],
            ),
            Query::new(
                bindings,
                vec![texts(self.keys.iter().cloned().collect()), texts(run_ids.clone())],
            ),
            Query::new(approvals, vec![texts(approval_ids), texts(run_ids.clone())]),
            Query::new(checkpoints, vec![texts(run_ids)]),
            accounts,
        ]
    }
}
