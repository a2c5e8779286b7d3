//! The rows in memory: a dossier for each run, and the few indexes that find it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::Account;
use stepgate_core::decimal::Decimal;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{StateCode, Tail};
use stepgate_core::ports::{
    ApprovalChange, Dossier, ErasableArgs, KeptRun, KeyChange, LinkedEvent, OriginalPayload, Place,
    Recollection,
};
use stepgate_core::record::Record;
use stepgate_core::run::Run;
use stepgate_core::session::{Head, Link, Session};

use crate::Result;
use crate::plan::{
    Chain, NewRun, Rows, RunChange, SealedChange, Trace, View, Write, is_only_one, plan, refusal,
};

/// Every row.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) sessions: BTreeMap<SessionId, Seat>,
    pub(super) runs: HashMap<RunId, Dossier>,
    /// Runs in the order of their arrival.
    pub(super) order: Vec<RunId>,
    pub(super) approvals: HashMap<ApprovalId, RunId>,
    /// Runs with an approval, in the order of the requests.
    pub(super) asked: Vec<RunId>,
    pub(super) keys: HashMap<IdempotencyKey, RunId>,
    /// The place of each event in the history.
    pub(super) events: HashMap<ArtifactId, usize>,
    /// Every event in the order of its arrival: the n-th has the position n.
    pub(super) history: Vec<Event>,
    /// Those that belong to no run.
    pub(super) loose: Vec<LinkedEvent>,
    /// What is kept of archived runs, in the order of their commits.
    pub(super) archived: Vec<KeptRun>,
    /// Arguments that are kept apart until they are erased.
    pub(super) erasable: BTreeMap<RunId, ErasableArgs>,
    /// How much of each account of a budget is used.
    pub(super) accounts: BTreeMap<Account, Decimal>,
}

/// A session, with the further columns of its row.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) session: Session,
    pub(super) number: usize,
}

impl Data {
    /// Plans a write and applies it, or refuses all of it.
    pub(super) fn write(&mut self, write: &Write) -> Result<Option<Session>> {
        let rows = plan(write, self)?;
        self.refuse_repeated_events(&rows)?;
        let answer = rows.answer.clone();
        self.apply(rows);
        Ok(answer)
    }

    /// The check that a unique index on event ids makes in the SQL engines.
    fn refuse_repeated_events(&self, rows: &Rows<'_>) -> Result<()> {
        let mut fresh = HashSet::new();
        for (event, _) in &rows.events {
            if self.events.contains_key(&event.event_id) || !fresh.insert(event.event_id) {
                let detail = format!("there is an event {} already", event.event_id);
                return Err(refusal(StateCode::InvalidTransition, detail));
            }
        }
        Ok(())
    }

    fn apply(&mut self, rows: Rows<'_>) {
        if let Some(session) = rows.session {
            let session = Session { head: Head::EMPTY, last_step_index: 0, ..session.clone() };
            let seat = Seat { session: session.clone(), number: self.sessions.len() };
            self.sessions.insert(session.session_id, seat);
        }
        if let Some(new) = rows.run {
            self.open(new);
        }
        for (event, link) in &rows.events {
            self.append_event(event, *link);
        }
        for run in rows.archived {
            self.take_out(run);
        }
        if let Some((Place { run_id, session_id }, arguments)) = rows.erasable {
            let args = Ok(OriginalPayload::Known(Arc::from(arguments)));
            self.erasable.insert(run_id, ErasableArgs { run_id, session_id, args });
        }
        for run_id in rows.erased {
            self.erasable.remove(run_id);
        }
        for change in &rows.accounts {
            self.accounts.insert(change.account.clone(), change.after);
        }
        self.index(&rows);
        if let Some((run_id, _)) = rows.trace
            && let Some(dossier) = self.runs.get_mut(&run_id)
        {
            apply_to(dossier, &rows);
        }
        if let Some((session_id, chain)) = rows.chain
            && let Some(seat) = self.sessions.get_mut(&session_id)
        {
            seat.session.head = chain.head;
            seat.session.last_step_index = chain.last_step_index;
        }
    }

    fn open(&mut self, new: NewRun<'_>) {
        let run = Run { status: new.status, ending: new.ending.cloned(), ..new.run.clone() };
        let run_id = run.arrival.run_id;
        let dossier = Dossier {
            run,
            entries: Vec::new(),
            open_link: None,
            checkpoints: Vec::new(),
            approval: None,
            binding: None,
            events: Vec::new(),
            sealed: None,
            record: None,
        };
        self.runs.insert(run_id, dossier);
        self.order.push(run_id);
    }

    fn append_event(&mut self, event: &Event, link: Option<Link>) {
        self.events.insert(event.event_id, self.history.len());
        self.history.push(event.clone());
        let position = number(self.history.len());
        let linked = LinkedEvent { position, event: event.clone(), link };
        match event.run_id.and_then(|run_id| self.runs.get_mut(&run_id)) {
            Some(dossier) => dossier.events.push(linked),
            None => self.loose.push(linked),
        }
    }

    /// Removes a run. Its place in the order stays, so that lists go on from it.
    fn take_out(&mut self, run: &ArchivedRun) {
        let Some(dossier) = self.runs.remove(&run.run_id) else { return };
        if let Some(approval) = &dossier.approval {
            self.approvals.remove(&approval.approval_id);
        }
        for linked in &dossier.events {
            self.events.remove(&linked.event.event_id);
        }
        let position = number(self.archived.len()) + 1;
        self.archived.push(KeptRun { position, run: run.clone(), binding: dossier.binding });
    }

    fn index(&mut self, rows: &Rows<'_>) {
        match rows.approval {
            Some(ApprovalChange::Ask(approval)) => {
                let (approval_id, run_id) = (approval.approval_id, approval.tool_run_id);
                self.approvals.insert(approval_id, run_id);
                self.asked.push(run_id);
            }
            Some(ApprovalChange::Decide(_)) | None => {}
        }
        match rows.key {
            Some(KeyChange::Bind(binding)) => {
                let key = binding.idempotency_key.clone();
                self.keys.insert(key, binding.trace_id);
            }
            Some(KeyChange::Settle(_)) | None => {}
        }
    }

    pub(super) fn recall(&self, run_id: RunId) -> Option<Recollection> {
        let Dossier { run, entries, record, .. } = self.runs.get(&run_id)?;
        Some(Recollection {
            run: run.clone(),
            last_sequence_number: entries.last().map_or(0, |row| row.entry.sequence_number),
            record: record.as_ref().map(|(record, _)| record.clone()),
        })
    }

    /// Whether a session belongs to this principal; true where no principal is given.
    pub(super) fn is_in_session_of(
        &self,
        principal_id: Option<&PrincipalId>,
        session_id: SessionId,
    ) -> bool {
        principal_id.is_none_or(|principal_id| {
            let seat = self.sessions.get(&session_id);
            seat.is_some_and(|seat| seat.session.principal_id == *principal_id)
        })
    }
}

/// Applies the rows of a run to its dossier.
fn apply_to(dossier: &mut Dossier, rows: &Rows<'_>) {
    for (appended, link) in &rows.entries {
        dossier.entries.push((*appended).clone());
        dossier.open_link = dossier.open_link.or(*link);
    }
    if let Some(checkpoint) = rows.checkpoint {
        dossier.checkpoints.push(checkpoint.clone());
        dossier.checkpoints.sort_by_key(|checkpoint| checkpoint.checkpoint_sequence_number);
    }
    match rows.approval {
        Some(ApprovalChange::Ask(approval) | ApprovalChange::Decide(approval)) => {
            dossier.approval = Some(approval.clone());
        }
        None => {}
    }
    match rows.key {
        Some(KeyChange::Bind(binding)) => dossier.binding = Some(binding.clone()),
        Some(KeyChange::Settle(_)) => {
            if let Some(binding) = &mut dossier.binding {
                binding.settled = true;
            }
        }
        None => {}
    }
    match rows.change {
        Some(RunChange::Status(_, status)) => dossier.run.status = status,
        Some(RunChange::End(Record { status, ending, .. })) => {
            dossier.run.status = *status;
            dossier.run.ending = Some(ending.clone());
        }
        None => {}
    }
    match rows.sealed {
        Some(SealedChange::Keep(_, payload)) => {
            dossier.sealed = Some(OriginalPayload::Known(Arc::from(payload)));
        }
        Some(SealedChange::Erase(_)) => dossier.sealed = None,
        None => {}
    }
    if let Some((record, link)) = rows.record {
        dossier.record = Some((record.clone(), link));
    }
}

pub(super) fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl View for Data {
    fn trace(&mut self, run_id: RunId) -> Result<Option<Trace>> {
        let Some(dossier) = self.runs.get(&run_id) else { return Ok(None) };
        let tail = dossier.entries.last().map_or(Tail::EMPTY, |last| Tail {
            state: Some(last.entry.to_state),
            sequence_number: last.entry.sequence_number,
            entry_digest: last.entry.entry_digest,
        });
        Ok(Some(Trace {
            session_id: dossier.run.arrival.session_id,
            status: dossier.run.status,
            tail,
            is_sealed: dossier.sealed.is_some(),
            has_own_key: dossier.binding.is_some(),
        }))
    }

    fn chain(&mut self, session_id: SessionId) -> Result<Option<Chain>> {
        let seat = self.sessions.get(&session_id);
        Ok(seat.map(|Seat { session: Session { head, last_step_index, .. }, .. }| Chain {
            head: *head,
            last_step_index: *last_step_index,
        }))
    }

    fn session(&mut self, session_id: SessionId) -> Result<Option<Session>> {
        Ok(self.sessions.get(&session_id).map(|seat| seat.session.clone()))
    }

    fn only_session_like(&mut self, asked: &Session) -> Result<Option<Session>> {
        let mut there = self.sessions.values().map(|seat| &seat.session);
        Ok(there.find(|there| is_only_one(there, asked)).cloned())
    }

    fn run(&mut self, run_id: RunId) -> Result<Option<Run>> {
        Ok(self.runs.get(&run_id).map(|dossier| dossier.run.clone()))
    }

    fn binding(&mut self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        let Some(run_id) = self.keys.get(key) else { return Ok(None) };
        Ok(match self.runs.get(run_id) {
            Some(dossier) => dossier.binding.clone(),
            None => {
                let kept = self.archived.iter().find(|kept| kept.run.run_id == *run_id);
                kept.and_then(|kept| kept.binding.clone())
            }
        })
    }

    fn has_key(&mut self, run_id: RunId) -> Result<bool> {
        Ok(self.runs.get(&run_id).is_some_and(|dossier| dossier.binding.is_some()))
    }

    fn approval(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        let run = self.approvals.get(&approval_id).and_then(|run_id| self.runs.get(run_id));
        Ok(run.and_then(|dossier| dossier.approval.clone()))
    }

    fn has_approval(&mut self, run_id: RunId) -> Result<bool> {
        Ok(self.runs.get(&run_id).is_some_and(|dossier| dossier.approval.is_some()))
    }

    fn used(&mut self, account: &Account) -> Result<Option<Decimal>> {
        Ok(self.accounts.get(account).copied())
    }

    fn has_checkpoint(&mut self, run_id: RunId, number: u64) -> Result<bool> {
        let checkpoints = self.runs.get(&run_id).map_or(&[][..], |dossier| &dossier.checkpoints);
        Ok(checkpoints.iter().any(|there| there.checkpoint_sequence_number == number))
    }

    fn changed_run(&mut self, runs: &[ArchivedRun]) -> Result<Option<RunId>> {
        let is_same = |run: &&ArchivedRun| {
            let dossier = self.runs.get(&run.run_id);
            dossier.is_some_and(|dossier| {
                dossier.run.status.is_final() && number(dossier.events.len()) == run.events
            })
        };
        Ok(runs.iter().find(|run| !is_same(run)).map(|run| run.run_id))
    }
}
