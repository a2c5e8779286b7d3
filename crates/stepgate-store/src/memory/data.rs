//! The rows in memory: a dossier for each run, and the few indexes that find it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::Account;
use stepgate_core::decimal::Decimal;
use stepgate_core::event::{Event, EventType};
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{
    ApprovalId, ArtifactId, IdPrefix, IdempotencyKey, PrincipalId, RunId, SessionId,
};
use stepgate_core::journal::{ExecutionState, StateCode, Tail};
use stepgate_core::ports::{
    ApprovalChange, ApprovalQuery, Counts, Dossier, EndedQuery, EndedRun, ErasableArgs, EventQuery,
    KeptRun, KeyChange, LinkedEvent, OriginalPayload, Place, PlacedEvent, Recollection, RunQuery,
    SessionQuery, TurnQuery, Unfinished,
};
use stepgate_core::record::Record;
use stepgate_core::run::{Run, Status};
use stepgate_core::session::{Head, Link, Session, SessionKind};

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
    order: Vec<RunId>,
    approvals: HashMap<ApprovalId, RunId>,
    /// Runs with an approval, in the order of the requests.
    asked: Vec<RunId>,
    keys: HashMap<IdempotencyKey, RunId>,
    /// The place of each event in the history.
    events: HashMap<ArtifactId, usize>,
    /// Every event in the order of its arrival: the n-th has the position n.
    pub(super) history: Vec<Event>,
    /// Those that belong to no run, with their positions.
    pub(super) loose: Vec<(u64, LinkedEvent)>,
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
    number: usize,
}

impl Data {
    /// Plans a write and applies it, or refuses all of it.
    pub(super) fn write(&mut self, write: &Write) -> Result<Option<Session>> {
        let rows = plan(write, &mut Looking(self))?;
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
            None => self.loose.push((position, linked)),
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

    /// Runs that are over, in the order of their ids.
    pub(super) fn ended(&self, query: &EndedQuery) -> Vec<EndedRun> {
        let position =
            |event_id: &ArtifactId| self.events.get(event_id).map_or(0, |place| number(*place) + 1);
        let is_asked_for = |dossier: &&Dossier| {
            let arrival = &dossier.run.arrival;
            dossier.run.status.is_final()
                && query.after.is_none_or(|after| arrival.run_id > after)
                && arrival.received_at < query.until
                && self.order.last() != Some(&arrival.run_id)
                && self.asked.last() != Some(&arrival.run_id)
        };
        let ended = |dossier: &Dossier| EndedRun {
            run_id: dossier.run.arrival.run_id,
            received_at: dossier.run.arrival.received_at,
            tool_name: dossier.run.tool_name.clone(),
            status: dossier.run.status,
            last_event: dossier.events.last().map_or(0, |it| position(&it.event.event_id)),
        };
        let mut found: Vec<_> = self.runs.values().filter(is_asked_for).map(ended).collect();
        found.sort_by_key(|run| run.run_id);
        found.truncate(query.limit);
        found
    }

    /// The events of these ids, in the order of their arrival.
    pub(super) fn events_by_id(&self, event_ids: &[ArtifactId]) -> Vec<Event> {
        let places = event_ids.iter().filter_map(|event_id| self.events.get(event_id));
        let places: BTreeSet<usize> = places.copied().collect();
        places.into_iter().filter_map(|place| self.history.get(place)).cloned().collect()
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

    pub(super) fn state(&self, run_id: RunId) -> Option<ExecutionState> {
        let trace = self.trace(run_id)?;
        ExecutionState::of(run_id, trace.session_id, &trace.tail)
    }

    pub(super) fn recall(&self, run_id: RunId) -> Option<Recollection> {
        let Dossier { run, entries, record, .. } = self.runs.get(&run_id)?;
        Some(Recollection {
            run: run.clone(),
            last_sequence_number: entries.last().map_or(0, |row| row.entry.sequence_number),
            record: record.as_ref().map(|(record, _)| record.clone()),
        })
    }

    pub(super) fn session(&self, session_id: SessionId) -> Option<Session> {
        let seat = self.sessions.get(&session_id)?;
        Some(seat.session.clone())
    }

    pub(super) fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Option<Session> {
        let is_theirs =
            |seat: &&Seat| seat.session.principal_id == *principal_id && seat.session.kind == kind;
        let first = self.sessions.values().filter(is_theirs).min_by_key(|seat| seat.number)?;
        Some(first.session.clone())
    }

    pub(super) fn binding(&self, key: &IdempotencyKey) -> Option<Binding> {
        let run_id = self.keys.get(key)?;
        match self.runs.get(run_id) {
            Some(dossier) => dossier.binding.clone(),
            None => self.archived.iter().find(|kept| kept.run.run_id == *run_id)?.binding.clone(),
        }
    }

    pub(super) fn approval(&self, approval_id: ApprovalId) -> Option<Approval> {
        let run_id = self.approvals.get(&approval_id)?;
        self.runs.get(run_id)?.approval.clone()
    }

    pub(super) fn runs(&self, query: &RunQuery) -> Vec<Run> {
        let older = older(&self.order, query.before, |run_id| *run_id);
        let is_asked_for = |run: &&Run| {
            let session_id = run.arrival.session_id;
            let session = query.session_id.is_none_or(|id| session_id == id)
                && self.is_in_session_of(query.principal_id.as_ref(), session_id);
            let status = query.status.is_none_or(|status| run.status == status);
            let came = run.arrival.received_at;
            let time = query.since.is_none_or(|since| came >= since)
                && query.until.is_none_or(|until| came < until);
            let text = query.text.as_ref().is_none_or(|text| text.matches(run));
            let name = query.tool_name.is_none() || query.tool_name == run.tool_name;
            session && status && name && time && text
        };
        let newest_first =
            later(older, query.after).iter().rev().filter_map(|run_id| self.runs.get(run_id));
        let asked_for = newest_first.map(|dossier| &dossier.run).filter(is_asked_for);
        asked_for.take(query.limit).cloned().collect()
    }

    pub(super) fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> u64 {
        let asked = self.asked.iter().filter_map(|run_id| self.runs.get(run_id));
        let theirs = asked
            .filter(|dossier| self.is_in_session_of(principal_id, dossier.run.arrival.session_id));
        let approvals = theirs.filter_map(|dossier| dossier.approval.as_ref());
        let open = approvals.filter(|approval| approval.status == ApprovalStatus::Pending);
        u64::try_from(open.count()).unwrap_or(u64::MAX)
    }

    pub(super) fn approvals(&self, query: &ApprovalQuery) -> Vec<Approval> {
        let place = |id: ApprovalId| {
            let run_id = self.approvals.get(&id);
            self.asked.iter().position(|asked| Some(asked) == run_id)
        };
        let end = query.before.map_or(self.asked.len(), |id| place(id).unwrap_or(0));
        let start = query.after.map_or(0, |id| place(id).map_or(self.asked.len(), |at| at + 1));
        let asked = self.asked.get(start..end).unwrap_or_default();
        let in_order: Box<dyn Iterator<Item = &RunId>> = match query.oldest_first {
            true => Box::new(asked.iter()),
            false => Box::new(asked.iter().rev()),
        };
        let in_order = in_order.filter_map(|run_id| self.runs.get(run_id));
        let of_principal = in_order.filter(|dossier| {
            let session_id = dossier.run.arrival.session_id;
            self.is_in_session_of(query.principal_id.as_ref(), session_id)
        });
        let approvals = of_principal.filter_map(|dossier| dossier.approval.as_ref());
        let is_asked_for = |approval: &&Approval| {
            query.status.is_none_or(|status| approval.status == status)
                && fits(query.id_prefix.as_ref(), &approval.approval_id)
        };
        approvals.filter(is_asked_for).take(query.limit).cloned().collect()
    }

    pub(super) fn session_page(&self, query: &SessionQuery) -> Vec<Session> {
        let mut seats: Vec<&Seat> = self.sessions.values().collect();
        seats.sort_by_key(|seat| seat.number);
        let older = older(&seats, query.before, |seat| seat.session.session_id);
        let principal_id = query.principal_id.as_ref();
        let is_asked_for = |session: &&Session| {
            principal_id.is_none_or(|id| session.principal_id == *id)
                && fits(query.id_prefix.as_ref(), &session.session_id)
        };
        let sessions = older.iter().rev().map(|seat| &seat.session).filter(is_asked_for);
        sessions.take(query.limit).cloned().collect()
    }

    pub(super) fn opened_turns(&self, query: &TurnQuery) -> Vec<Event> {
        let older = older(&self.history, query.before, |event| event.event_id);
        let is_asked_for = |event: &&Event| {
            event.event_type == EventType::TurnOpened
                && fits(query.id_prefix.as_ref(), &event.event_id)
                && query.session_id.is_none_or(|id| event.session_id == id)
                && self.is_in_session_of(query.principal_id.as_ref(), event.session_id)
        };
        older.iter().rev().filter(is_asked_for).take(query.limit).cloned().collect()
    }

    pub(super) fn events(&self, query: &EventQuery) -> Vec<PlacedEvent> {
        let is_asked_for = |placed: &(u64, &Event)| {
            let (position, event) = *placed;
            let types = &query.event_types;
            position > query.after
                && self.events.contains_key(&event.event_id)
                && query.back_from.is_none_or(|before| position < before)
                && (types.is_empty() || types.contains(&event.event_type))
                && (!query.loose_only || event.run_id.is_none())
                && self.is_in_session_of(query.principal_id.as_ref(), event.session_id)
        };
        let asked_for = (1..).zip(&self.history).filter(is_asked_for);
        let found: Vec<(u64, &Event)> = match query.back_from {
            None => asked_for.take(query.limit).collect(),
            Some(_) => {
                let oldest_first: Vec<_> = asked_for.collect();
                oldest_first.into_iter().rev().take(query.limit).collect()
            }
        };
        let placed =
            |(position, event): (u64, &Event)| PlacedEvent { position, event: event.clone() };
        found.into_iter().map(placed).collect()
    }

    /// Whether a session belongs to this principal; true where no principal is given.
    fn is_in_session_of(&self, principal_id: Option<&PrincipalId>, session_id: SessionId) -> bool {
        principal_id.is_none_or(|principal_id| {
            let seat = self.sessions.get(&session_id);
            seat.is_some_and(|seat| seat.session.principal_id == *principal_id)
        })
    }

    pub(super) fn unfinished(&self) -> Vec<Unfinished> {
        let dossiers = self.order.iter().filter_map(|run_id| self.runs.get(run_id));
        let unfinished = dossiers.filter(|dossier| !dossier.run.status.is_final());
        let is_pending = |approval: &Approval| approval.status == ApprovalStatus::Pending;
        unfinished
            .map(|Dossier { run, approval, .. }| Unfinished {
                run_id: run.arrival.run_id,
                tool_name: run.tool_name.clone(),
                is_waiting: run.status == Status::ApprovalRequired
                    && approval.as_ref().is_some_and(is_pending),
            })
            .collect()
    }

    pub(super) fn shared_keys(&self, limit: usize) -> Vec<IdempotencyKey> {
        let bindings = self.runs.values().filter_map(|dossier| dossier.binding.as_ref());
        let mut traces: BTreeMap<&IdempotencyKey, usize> = BTreeMap::new();
        for binding in bindings {
            *traces.entry(&binding.idempotency_key).or_default() += 1;
        }
        let shared = traces.into_iter().filter(|(_, traces)| *traces > 1);
        shared.map(|(key, _)| key.clone()).take(limit).collect()
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts {
            runs: number(self.runs.len()),
            events: number(self.events.len()),
            approvals: number(self.approvals.len()),
            bindings: number(self.archived.iter().filter(|kept| kept.binding.is_some()).count()),
            sessions: number(self.sessions.len()),
            ..Counts::default()
        };
        for dossier in self.runs.values() {
            counts.entries += number(dossier.entries.len());
            counts.checkpoints += number(dossier.checkpoints.len());
            counts.records += u64::from(dossier.record.is_some());
        }
        counts
    }

    fn trace(&self, run_id: RunId) -> Option<Trace> {
        let dossier = self.runs.get(&run_id)?;
        let tail = dossier.entries.last().map_or(Tail::EMPTY, |last| Tail {
            state: Some(last.entry.to_state),
            sequence_number: last.entry.sequence_number,
            entry_digest: last.entry.entry_digest,
        });
        Some(Trace {
            session_id: dossier.run.arrival.session_id,
            status: dossier.run.status,
            tail,
            is_sealed: dossier.sealed.is_some(),
            has_own_key: dossier.binding.is_some(),
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

fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The rows as a plan sees them.
struct Looking<'a>(&'a Data);

impl View for Looking<'_> {
    fn trace(&mut self, run_id: RunId) -> Result<Option<Trace>> {
        Ok(self.0.trace(run_id))
    }

    fn chain(&mut self, session_id: SessionId) -> Result<Option<Chain>> {
        let seat = self.0.sessions.get(&session_id);
        Ok(seat.map(|Seat { session: Session { head, last_step_index, .. }, .. }| Chain {
            head: *head,
            last_step_index: *last_step_index,
        }))
    }

    fn session(&mut self, session_id: SessionId) -> Result<Option<Session>> {
        Ok(self.0.session(session_id))
    }

    fn only_session_like(&mut self, asked: &Session) -> Result<Option<Session>> {
        let mut there = self.0.sessions.values().map(|seat| &seat.session);
        Ok(there.find(|there| is_only_one(there, asked)).cloned())
    }

    fn run(&mut self, run_id: RunId) -> Result<Option<Run>> {
        Ok(self.0.runs.get(&run_id).map(|dossier| dossier.run.clone()))
    }

    fn binding(&mut self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        Ok(self.0.binding(key))
    }

    fn has_key(&mut self, run_id: RunId) -> Result<bool> {
        Ok(self.0.runs.get(&run_id).is_some_and(|dossier| dossier.binding.is_some()))
    }

    fn approval(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        Ok(self.0.approval(approval_id))
    }

    fn has_approval(&mut self, run_id: RunId) -> Result<bool> {
        Ok(self.0.runs.get(&run_id).is_some_and(|dossier| dossier.approval.is_some()))
    }

    fn used(&mut self, account: &Account) -> Result<Option<Decimal>> {
        Ok(self.0.accounts.get(account).copied())
    }

    fn has_checkpoint(&mut self, run_id: RunId, number: u64) -> Result<bool> {
        let checkpoints = self.0.runs.get(&run_id).map_or(&[][..], |dossier| &dossier.checkpoints);
        Ok(checkpoints.iter().any(|there| there.checkpoint_sequence_number == number))
    }

    fn changed_run(&mut self, runs: &[ArchivedRun]) -> Result<Option<RunId>> {
        let is_same = |run: &&ArchivedRun| {
            let dossier = self.0.runs.get(&run.run_id);
            dossier.is_some_and(|dossier| {
                dossier.run.status.is_final() && number(dossier.events.len()) == run.events
            })
        };
        Ok(runs.iter().find(|run| !is_same(run)).map(|run| run.run_id))
    }
}

/// The rows before the one with this id: all where no id is given, none where it is unknown.
fn older<T, I: PartialEq>(rows: &[T], before: Option<I>, id: impl Fn(&T) -> I) -> &[T] {
    let Some(before) = before else { return rows };
    let at = rows.iter().position(|row| id(row) == before);
    rows.get(..at.unwrap_or(0)).unwrap_or_default()
}

/// The runs after this one.
fn later(run_ids: &[RunId], after: Option<RunId>) -> &[RunId] {
    let Some(after) = after else { return run_ids };
    // From the newest: a reader asks for what is new.
    let at = run_ids.iter().rposition(|run_id| *run_id == after);
    at.and_then(|at| run_ids.get(at + 1..)).unwrap_or_default()
}

/// Whether an id begins with the prefix, where one is asked for.
fn fits(prefix: Option<&IdPrefix>, id: &impl ToString) -> bool {
    prefix.is_none_or(|prefix| prefix.fits(id))
}
