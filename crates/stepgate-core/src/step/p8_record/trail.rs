//! The data that a step collects on its way, and how it becomes durable.
//!
//! INVARIANT: reasoning and arrival time can decide nothing. No method gives them to another phase: they are
//! read in [`Trail::record_body`], which only RECORD can call.

use std::sync::Arc;

use serde::Serialize;

use super::super::p3_validate_schema::Readable;
use super::super::p7_execute::Settlement;
use super::super::{Answer, Recorded, Reply, Stop};
use crate::action::CORE_SERVER;
use crate::approval::{Approval, ApprovalStatus};
use crate::budget::{BudgetChange, Charge, OverBudget};
use crate::call::Call;
use crate::digest::Digest;
use crate::erasable::{self, ErasableStored};
use crate::event::payload::{self, Request};
use crate::event::{self, Event, EventType};
use crate::failure::Failure;
use crate::gate::{Fault, Gate};
use crate::idempotency::Binding;
use crate::ids::{ArtifactId, IdempotencyKey, PrincipalId, ProposalId, RunId, SessionId};
use crate::journal::artifact::Guarantee;
use crate::journal::{Artifact, Journal, Reference, StateCode, StateError};
use crate::json::{Map, Value, canonical};
use crate::machine::State;
use crate::ports::{ApprovalChange, Dossier, Hold, KeyChange, Place, StepCommit, StoreError};
use crate::record::{Record, RecordBody, args_summary};
use crate::run::{Arrival, Run, Status};
use crate::stop::CallParties;

/// The first of these has the request that proposed the step.
const TELLS_OF_REQUEST: [EventType; 5] = [
    EventType::ToolCalled,
    EventType::ApprovalRequested,
    EventType::ToolSucceeded,
    EventType::ToolFailed,
    EventType::PolicyViolation,
];
/// These have the request of the person who decides.
const TELLS_OF_DECISION: [EventType; 2] = [EventType::ApprovalGranted, EventType::ApprovalDenied];

/// The data that a step collects on its way.
pub(in crate::step) struct Trail {
    arrival: Arrival,
    /// The fields that could be read from the proposal; the arguments in their stored form.
    read: Readable,
    journal: Journal,
    /// The key's binding, once the journal is open. The commit that opens the run binds it.
    pub(in crate::step) binding: Option<Binding>,
    /// Whether the run's row is durable, and with it everything up to the last commit.
    is_open: bool,
    events: Vec<Event>,
    /// How many of the events are durable.
    events_committed: usize,
    approval: Option<Approval>,
    /// A question or a decision that the next commit makes durable.
    approval_change: Option<ApprovalChange>,
    /// Whether the call is durable, or may be.
    may_be_called: bool,
    /// Keeps other calls away until the effect is committed.
    pub(in crate::step) hold: Option<Hold>,
    /// How often the effect can have happened, as the effect states it.
    guarantee: Option<Guarantee>,
    /// What the call has taken from budgets.
    charges: Vec<Charge>,
    /// What the next commit does to budgets.
    budget_changes: Vec<BudgetChange>,
    /// Whether the effect says that the call certainly did not happen.
    did_not_happen: bool,
    /// The request that proposed the step, until an event tells of it.
    request: Option<Request>,
    /// The tool's error result, which is kept with the run.
    pub(in crate::step) error_said: Option<String>,
    /// The original payload, where some of its arguments are redacted.
    sealed: Option<Arc<[u8]>>,
    /// The erasable arguments.
    erasable: Option<Map<String, Value>>,
}

/// Who asks, and in which session.
pub(in crate::step) struct Asker {
    pub(in crate::step) principal_id: PrincipalId,
    pub(in crate::step) session_id: SessionId,
    pub(in crate::step) step_index: u64,
}

/// The state of a trail before a commit that may be refused.
pub(in crate::step) struct Uncommitted {
    journal: Journal,
    events: usize,
    approval_change: Option<ApprovalChange>,
}

impl Trail {
    /// The trail of a step that has just arrived.
    pub(in crate::step) fn begin(arrival: Arrival, request: Option<Request>) -> Self {
        let journal = Journal::empty(arrival.run_id, arrival.session_id);
        Self {
            arrival,
            read: Readable::default(),
            journal,
            binding: None,
            is_open: false,
            events: Vec::new(),
            events_committed: 0,
            approval: None,
            approval_change: None,
            may_be_called: false,
            hold: None,
            guarantee: None,
            charges: Vec::new(),
            budget_changes: Vec::new(),
            did_not_happen: false,
            request,
            error_said: None,
            sealed: None,
            erasable: None,
        }
    }

    /// The trail of a step that was stopped, from the store's data.
    pub(in crate::step) fn restored(dossier: &Dossier, journal: Journal) -> Self {
        let events: Vec<Event> = dossier.events.iter().map(|linked| linked.event.clone()).collect();
        Self {
            may_be_called: journal.tail().state == Some(State::Executing),
            journal,
            binding: dossier.binding.clone(),
            is_open: true,
            events_committed: events.len(),
            charges: events.iter().filter_map(charged_by).collect(),
            events,
            approval: dossier.approval.clone(),
            ..Self::begin(dossier.run.arrival.clone(), None)
        }
    }

    pub(in crate::step) fn run_id(&self) -> RunId {
        self.arrival.run_id
    }

    /// Who asks, and where.
    pub(in crate::step) fn asker(&self) -> Asker {
        let Arrival { principal_id, session_id, step_index, .. } = &self.arrival;
        Asker {
            principal_id: principal_id.clone(),
            session_id: *session_id,
            step_index: *step_index,
        }
    }

    /// The run and its session.
    pub(in crate::step) fn place(&self) -> Place {
        Place { session_id: self.arrival.session_id, run_id: self.arrival.run_id }
    }

    pub(in crate::step) fn principal_id(&self) -> &PrincipalId {
        &self.arrival.principal_id
    }

    /// The parties to a call of this step.
    pub(in crate::step) fn parties<'a>(&'a self, call: &'a Call) -> CallParties<'a> {
        CallParties {
            principal_id: &self.arrival.principal_id,
            session_id: self.arrival.session_id,
            server: call.tool_server(),
        }
    }

    pub(in crate::step) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Appends to the journal. The record takes its guarantee from the effect.
    pub(in crate::step) fn advance(
        &mut self,
        artifact: Artifact,
        key: Option<IdempotencyKey>,
    ) -> Result<Reference, StateError> {
        if let Artifact::ToolEffect(effect) = &artifact {
            self.guarantee = effect.meta.guarantee;
            self.did_not_happen = effect.did_not_happen();
        }
        self.journal.advance(artifact, key)
    }

    /// Notes the fields that could be read from the proposal, for the record and the response.
    pub(in crate::step) fn note_proposal(&mut self, read: Readable) {
        self.read = read;
    }

    /// Stores the arguments in this redacted form from now on. The original payload is kept apart until the
    /// step is over.
    pub(in crate::step) fn seal(
        &mut self,
        fields: &Map<String, Value>,
        written: &Map<String, Value>,
        erasable: Option<&Map<String, Value>>,
    ) {
        self.erasable = erasable.cloned();
        let args = Value::Object(written.clone());
        let mut fields = fields.clone();
        fields.insert("args".into(), args.clone());
        // Not in canonical form, which spells 1e20 as an integer that PARSE refuses.
        let mut payload = Value::Object(fields).to_string();
        let kept = &mut self.arrival.payload.bytes;
        // The row has the length of the original payload. A stored payload of another length is a redacted
        // one, so the two lengths must differ.
        if payload.len() == kept.len() {
            payload.push(' ');
        }
        self.sealed = Some(std::mem::replace(kept, payload.into_bytes().into()));
        self.read.args = Some(args);
    }

    /// The fields of the proposal as it came.
    pub(in crate::step) fn as_it_came(&self) -> Option<Readable> {
        Readable::of_payload(self.sealed.as_ref().unwrap_or(&self.arrival.payload.bytes))
    }

    /// Whether the run's row is durable.
    pub(in crate::step) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Goes back to the payload as it came. Nothing of the step is durable.
    pub(in crate::step) fn begin_again(&mut self) {
        if let Some(came) = self.sealed.take() {
            self.arrival.payload.bytes = came;
        }
        *self = Self::begin(self.arrival.clone(), self.request.take());
    }

    /// Notes which arguments the store keeps apart. From here on the run is recorded with its arguments.
    pub(in crate::step) fn note_erasable(&mut self, gate: &Gate) {
        if let Some(erasable) = &self.erasable {
            let arguments = erasable.keys().cloned().collect();
            self.note(gate, EventType::ErasableStored, ErasableStored { arguments });
        }
    }

    /// Adds an event; it becomes durable with the next commit.
    pub(in crate::step) fn note(
        &mut self,
        gate: &Gate,
        event_type: EventType,
        payload: impl Serialize,
    ) {
        self.note_as(gate, gate.fresh_id(), event_type, payload);
    }

    /// Adds an event under an id that only one run can have.
    pub(in crate::step) fn note_as(
        &mut self,
        gate: &Gate,
        event_id: ArtifactId,
        event_type: EventType,
        payload: impl Serialize,
    ) {
        let request = if TELLS_OF_REQUEST.contains(&event_type) {
            self.request.take()
        } else if TELLS_OF_DECISION.contains(&event_type) {
            gate.world.request()
        } else {
            None
        };
        self.events.push(Event {
            event_id,
            event_type,
            payload: payload::value_from(payload, request),
            run_id: Some(self.arrival.run_id),
            sequence_number: self.journal.tail().sequence_number,
            session_id: self.arrival.session_id,
            ts: gate.world.now(),
        });
    }

    /// Leaves the hold to recovery, if the call may be durable and its effect is not. The permit of a tool
    /// server is released instead: it protects no data, and a call in doubt can wait for days.
    pub(in crate::step) fn park(&mut self, gate: &Gate) {
        let is_core = self.binding.as_ref().is_some_and(|key| key.tool_server == CORE_SERVER);
        if let (true, true, Some(hold)) = (is_core, self.may_be_called, self.hold.take()) {
            gate.parked.keep(self.arrival.run_id, hold);
        }
    }

    /// The next commit writes this question or decision.
    pub(in crate::step) fn change_approval(&mut self, change: ApprovalChange) {
        let (ApprovalChange::Ask(approval) | ApprovalChange::Decide(approval)) = &change;
        self.approval = Some(approval.clone());
        self.approval_change = Some(change);
    }

    /// The approval that waits for a person.
    pub(in crate::step) fn pending_approval(&self) -> Option<Approval> {
        self.approval.clone().filter(|approval| approval.status == ApprovalStatus::Pending)
    }

    /// Whether a person approved.
    fn was_approved(&self) -> bool {
        self.approval.as_ref().is_some_and(|approval| approval.status == ApprovalStatus::Approved)
    }

    /// The grant that permits the call.
    pub(in crate::step) fn grant_id(&self) -> Option<ArtifactId> {
        let used = self.events.iter().find(|event| event.event_type == EventType::GrantUsed)?;
        used.payload.get("grant_id")?.as_str()?.parse().ok()
    }

    /// What a refused commit must not leave behind.
    pub(in crate::step) fn uncommitted(&self) -> Uncommitted {
        Uncommitted {
            journal: self.journal.clone(),
            events: self.events.len(),
            approval_change: self.approval_change.clone(),
        }
    }

    /// Goes back to before a commit that was refused: nothing was written.
    pub(in crate::step) fn take_back(&mut self, before: Uncommitted) {
        let Uncommitted { journal, events, approval_change } = before;
        self.journal = journal;
        self.events.truncate(events);
        self.approval_change = approval_change;
    }

    /// Whether the call was sent a second time while the result of the first dispatch was unknown.
    pub(in crate::step) fn was_sent_blindly(&self) -> bool {
        self.events.iter().any(|event| {
            let said = |name: &str| event.payload.get(name).and_then(Value::as_str);
            let by_recovery = event.event_type == EventType::ToolRedispatched;
            let by_somebody = event.event_type == EventType::RunResolved
                && said("resolved_as") == Some(Settlement::REDISPATCH)
                && said("query_run_id").is_none();
            by_recovery || by_somebody
        })
    }

    /// How many events are durable.
    pub(in crate::step) fn events_committed(&self) -> usize {
        self.events_committed
    }

    /// Drops the journal of a step that lost the race for its key: another step has bound it.
    pub(in crate::step) fn forget_journal(&mut self) {
        self.journal = Journal::empty(self.arrival.run_id, self.arrival.session_id);
        self.binding = None;
        self.hold = None;
        self.guarantee = None;
        self.error_said = None;
        self.charges.clear();
        self.budget_changes.clear();
        // The step may still end with a record of its own, which keeps its erasable arguments.
        self.events.retain(|event| event.event_type == EventType::ErasableStored);
        self.events_committed = 0;
        self.approval = None;
        self.approval_change = None;
    }

    /// The answer of this step. The arrival time is not part of it.
    pub(in crate::step) fn answer(&self, reply: Reply) -> Answer {
        Answer {
            proposal_id: self.read.id.clone(),
            action: self.read.action.clone(),
            reply,
            run_id: self.arrival.run_id,
            session_id: self.arrival.session_id,
            step_index: self.arrival.step_index,
            replayed: false,
        }
    }
}

/// How the trail becomes durable.
impl Trail {
    /// Makes the call durable, before anything acts, together with what it takes from budgets. The inner error is a
    /// budget that does not allow it: nothing was written.
    pub(in crate::step) async fn commit_call(
        &mut self,
        gate: &Gate,
        charges: Vec<Charge>,
    ) -> Result<Result<(), OverBudget>, Stop> {
        let status = if self.was_approved() { Status::Approved } else { Status::Started };
        for charge in &charges {
            self.note(gate, EventType::BudgetReserved, charge);
            self.budget_changes.push(BudgetChange::Reserve(charge.clone()));
        }
        let committed = self.commit_as(gate, status).await;
        let was_not_written = matches!(
            committed,
            Err(Stop::Fault(Fault::Store(StoreError::Unavailable(_) | StoreError::OverBudget(_))))
        );
        self.may_be_called = !was_not_written;
        match committed {
            Err(Stop::Fault(Fault::Store(StoreError::OverBudget(over)))) => Ok(Err(*over)),
            committed => {
                committed?;
                self.charges = charges;
                Ok(Ok(()))
            }
        }
    }

    /// Makes the events durable before a call is sent again. If the commit does not succeed, the call is not
    /// sent.
    pub(in crate::step) async fn commit_events(&mut self, gate: &Gate) -> Result<(), Stop> {
        let commit = self.next_commit();
        gate.store.commit(commit).await.map_err(|error| self.stopped_by(error))?;
        self.events_committed = self.events.len();
        Ok(())
    }

    /// Makes everything up to here durable, in a run of this status. A run that waits for a person gets a checkpoint.
    pub(in crate::step) async fn commit_as(
        &mut self,
        gate: &Gate,
        status: Status,
    ) -> Result<(), Stop> {
        let mut commit = self.next_commit();
        match &mut commit.open {
            Some(run) => run.status = status,
            None => commit.status = Some(status),
        }
        if status == Status::ApprovalRequired {
            commit.checkpoint = self.journal.checkpoint();
        }
        let committed = match gate.store.commit(commit).await {
            Err(StoreError::AnswerLost(why)) => {
                // Read back before anything else: the journal has our last entry, or not.
                let ours = self.journal.tail().entry_digest;
                match gate.store.load_state(self.run_id()).await {
                    Ok(Some(state)) if state.last_entry_digest == ours => {
                        // The answer that was lost would have told what was added before this commit.
                        let read = gate.consents.read_on(&*gate.store).await;
                        read.map_err(|error| StoreError::AnswerLost(error.to_string()))
                    }
                    Ok(Some(_) | None) => Err(StoreError::Unavailable(why)),
                    Err(_) => Err(StoreError::AnswerLost(why)),
                }
            }
            answer => answer,
        };
        committed.map_err(|error| self.stopped_by(error))?;
        self.is_open = true;
        self.events_committed = self.events.len();
        Ok(())
    }

    /// Everything that is not yet durable, as one commit.
    fn next_commit(&mut self) -> StepCommit {
        let erasable = self.erasable.clone().filter(|_| !self.is_open);
        StepCommit {
            open: (!self.is_open).then(|| self.run()),
            entries: self.journal.take_pending(),
            approval: self.approval_change.take(),
            key: self.binding.clone().filter(|_| !self.is_open).map(KeyChange::Bind),
            budgets: std::mem::take(&mut self.budget_changes),
            events: self.events.iter().skip(self.events_committed).cloned().collect(),
            sealed: self.sealed.clone().filter(|_| !self.is_open),
            erasable: erasable.map(|erasable| erasable::text_of(erasable).into_bytes().into()),
            ..StepCommit::at(self.place())
        }
    }

    fn run(&self) -> Run {
        Run {
            arrival: self.arrival.clone(),
            tool_name: self.read.action.clone(),
            input_json: self.read.args.as_ref().map(canonical::text_of),
            status: Status::Started,
            ending: None,
        }
    }
}

/// Methods that only RECORD can call.
impl Trail {
    /// Gives back what the call took from budgets, where it certainly did not happen.
    pub(super) fn give_back(&mut self, gate: &Gate) {
        if !self.did_not_happen {
            return;
        }
        for charge in std::mem::take(&mut self.charges) {
            self.note(gate, EventType::BudgetReleased, &charge);
            self.budget_changes.push(BudgetChange::Release(charge));
        }
    }

    /// Removes the arguments of a refused proposal; keeps the other fields that could be read, and the
    /// digest of the payload. Where a tool has redacted arguments, the refused arguments may be those under
    /// a misspelled name. What is durable already stays.
    pub(super) fn withhold(&mut self) {
        if self.is_open {
            return;
        }
        self.erasable = None;
        let came = self.sealed.take().unwrap_or_else(|| Arc::clone(&self.arrival.payload.bytes));
        let mut kept = Map::new();
        let read = [
            ("action", self.read.action.as_deref()),
            ("id", self.read.id.as_ref().map(ProposalId::as_str)),
            ("reasoning", self.read.reasoning.as_deref()),
            ("schema_version", self.read.schema_version.as_deref()),
        ];
        for (name, text) in read {
            kept.extend(text.map(|text| (name.to_owned(), Value::from(text))));
        }
        let withheld = serde_json::json!({ "sha256": Digest::of_bytes(&came) });
        kept.insert("withheld".to_owned(), withheld);
        self.arrival.payload.bytes = Value::Object(kept).to_string().into_bytes().into();
        self.read.args = None;
    }

    /// The record of a step that ends now, with this answer.
    pub(super) fn record_body(
        &self,
        gate: &Gate,
        failure: Option<&Failure>,
        recorded: &Recorded,
        response: &str,
    ) -> RecordBody {
        let Arrival { run_id, session_id, principal_id, step_index, received_at, payload } =
            self.arrival.clone();
        let summary_max = gate.limits.summary_string_bytes_max;
        RecordBody {
            action: self.read.action.clone(),
            approval_digest: self.approval.as_ref().map(Approval::digest),
            args_summary: self.read.args.as_ref().map(|args| args_summary(args, summary_max)),
            completed_at: gate.world.now(),
            detail: recorded.detail.clone(),
            error_code: failure.map(|failure| failure.code().to_owned()),
            events_digest: event::digest_of(&self.events),
            guarantee: self.guarantee,
            last_entry_digest: recorded.last_entry_digest,
            outcome: recorded.outcome,
            payload_bytes: payload.length,
            payload_digest: Digest::of_bytes(&payload.bytes),
            phase_failed_at: failure.map(Failure::phase),
            principal_id,
            proposal_id: self.read.id.as_ref().map(|id| id.as_str().to_owned()),
            reasoning: self.read.reasoning.clone(),
            received_at,
            response_digest: Digest::of_bytes(response.as_bytes()),
            run_id,
            schema_version: self.read.schema_version.clone(),
            session_id,
            status: Status::of_ending(failure),
            step_index,
        }
    }

    /// How long the person took to decide, where a person was asked.
    pub(super) fn person_ms(&self) -> u64 {
        match self.approval {
            Some(_) => self.journal.decided_after_ms(),
            None => 0,
        }
    }

    /// The last commit of the step: the record, and with it everything that is not yet durable.
    pub(super) fn last_commit(&mut self, record: Record) -> StepCommit {
        let key = self.binding.as_ref().map(|binding| match self.is_open {
            true => KeyChange::Settle(binding.idempotency_key.clone()),
            false => KeyChange::Bind(Binding { settled: true, ..binding.clone() }),
        });
        let checkpoint = self.journal.checkpoint();
        StepCommit { checkpoint, key, record: Some(record), sealed: None, ..self.next_commit() }
    }

    /// The meaning of a refused commit. Only the holder of a trace's lock appends to it. So an entry that no
    /// longer fits means that another executor took the trace over (decision 10).
    pub(super) fn stopped_by(&self, error: StoreError) -> Stop {
        match (error, &self.binding) {
            (StoreError::State(error), _) if self.is_open && error.code.is_about_the_tail() => {
                let taken_over = StateError::new(StateCode::ConcurrentExecution, error.detail);
                Stop::Fault(taken_over.into())
            }
            (StoreError::KeyTaken, Some(binding)) => {
                Stop::KeyTaken { key: binding.idempotency_key.clone(), asked: binding.asked_digest }
            }
            (error, _) => Stop::Fault(Fault::Store(error)),
        }
    }
}

/// What an event says that the call took from a budget.
fn charged_by(event: &Event) -> Option<Charge> {
    let is_charge = event.event_type == EventType::BudgetReserved;
    is_charge.then(|| serde_json::from_value(event.payload.clone()).ok()).flatten()
}

#[cfg(test)]
mod tests;
