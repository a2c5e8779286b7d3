//! RECORD: the last transaction of a step. Effect, transition, record, link and events together.
//!
//! The [`Trail`] lives here because what is in it is for the audit alone: its readers are private to
//! this file, so no other phase can let reasoning or arrival time decide anything.

use std::sync::Arc;

use super::p3_validate_schema::Readable;
use super::p7_execute::{ExecutionResult, Settlement};
use super::{Answer, ErrorBody, Recorded, Reply, Stop};
use crate::action::CORE_SERVER;
use crate::approval::{Approval, ApprovalStatus};
use crate::digest::Digest;
use crate::event::{self, Event, EventType};
use crate::failure::{Failure, Outcome};
use crate::gate::{Fault, Gate};
use crate::idempotency::Binding;
use crate::ids::{PrincipalId, ProposalId, RunId};
use crate::journal::artifact::Guarantee;
use crate::journal::{Journal, StateCode, StateError};
use crate::json::{Map, Value, canonical};
use crate::machine::State;
use crate::ports::{ApprovalChange, Dossier, Hold, KeyChange, Place, StepCommit, StoreError};
use crate::record::{Record, RecordBody, args_summary};
use crate::run::{Arrival, Ending, Run, Status};

/// What a step leaves behind while it goes.
pub(super) struct Trail {
    arrival: Arrival,
    schema_version: Option<String>,
    proposal_id: Option<ProposalId>,
    reasoning: Option<String>,
    action: Option<String>,
    args: Option<Value>,
    journal: Journal,
    /// The key's binding, once the journal is open.
    binding: Option<Binding>,
    /// Whether the run's row is durable, and with it everything up to the last commit.
    is_open: bool,
    events: Vec<Event>,
    /// How many of the events are durable.
    events_committed: usize,
    approval: Option<Approval>,
    /// A question or a decision that the next commit makes durable.
    approval_change: Option<ApprovalChange>,
    /// Whether the call is durable, or nobody knows.
    may_be_called: bool,
    /// What others must not touch until the effect is committed.
    hold: Option<Hold>,
    /// How often the effect can have happened, as the effect itself says.
    guarantee: Option<Guarantee>,
    /// What the tool said about its failure.
    error_said: Option<String>,
    /// The payload as it came, where some of its arguments are not to be written down.
    sealed: Option<Arc<[u8]>>,
}

/// What RECORD made durable; RESPOND needs nothing else.
pub(super) struct TraceRecord {
    pub(super) answer: Answer,
}

impl Trail {
    /// The trail of a step that has just arrived.
    pub(super) fn begin(arrival: Arrival) -> Self {
        let journal = Journal::empty(arrival.run_id, arrival.session_id);
        Self {
            arrival,
            schema_version: None,
            proposal_id: None,
            reasoning: None,
            action: None,
            args: None,
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
            error_said: None,
            sealed: None,
        }
    }

    /// The trail of a step that was stopped, from what the store knows of it.
    pub(super) fn restored(dossier: &Dossier, journal: Journal) -> Self {
        let events: Vec<Event> = dossier.events.iter().map(|linked| linked.event.clone()).collect();
        Self {
            may_be_called: journal.tail().state == Some(State::Executing),
            journal,
            binding: dossier.binding.clone(),
            is_open: true,
            events_committed: events.len(),
            events,
            approval: dossier.approval.clone(),
            ..Self::begin(dossier.run.arrival.clone())
        }
    }

    pub(super) fn run_id(&self) -> RunId {
        self.arrival.run_id
    }

    pub(super) fn principal_id(&self) -> &PrincipalId {
        &self.arrival.principal_id
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(super) fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Notes what could be read of the proposal, for the record and the response.
    pub(super) fn note_proposal(&mut self, readable: &Readable) {
        self.schema_version.clone_from(&readable.schema_version);
        self.proposal_id.clone_from(&readable.id);
        self.reasoning.clone_from(&readable.reasoning);
        self.action.clone_from(&readable.action);
        self.args.clone_from(&readable.args);
    }

    /// Writes the arguments down like this from now on. The payload as it came is kept apart until the
    /// step is over.
    pub(super) fn seal(&mut self, fields: &Map<String, Value>, written: &Map<String, Value>) {
        let args = Value::Object(written.clone());
        let mut fields = fields.clone();
        fields.insert("args".into(), args.clone());
        // Not in canonical form, which spells 1e20 as an integer that PARSE refuses.
        let mut payload = Value::Object(fields).to_string();
        let kept = &mut self.arrival.payload.bytes;
        // The row has the length of what came: a payload of another length is one that was redacted.
        if payload.len() == kept.len() {
            payload.push(' ');
        }
        self.sealed = Some(std::mem::replace(kept, payload.into_bytes().into()));
        self.args = Some(args);
    }

    /// Keeps only what was read beside the arguments, and the digest of what came: where a tool has
    /// arguments that are not written down, those of a refused proposal may be just that, misspelled.
    fn withhold(&mut self) {
        let came = self.sealed.take().unwrap_or_else(|| Arc::clone(&self.arrival.payload.bytes));
        let mut kept = Map::new();
        let read = [
            ("action", self.action.as_deref()),
            ("id", self.proposal_id.as_ref().map(ProposalId::as_str)),
            ("reasoning", self.reasoning.as_deref()),
            ("schema_version", self.schema_version.as_deref()),
        ];
        for (name, text) in read {
            kept.extend(text.map(|text| (name.to_owned(), Value::from(text))));
        }
        let withheld = serde_json::json!({ "sha256": Digest::of_bytes(&came) });
        kept.insert("withheld".to_owned(), withheld);
        self.arrival.payload.bytes = Value::Object(kept).to_string().into_bytes().into();
        self.args = None;
    }

    /// Notes that something happened; it becomes durable with the next commit.
    pub(super) fn note(&mut self, gate: &Gate, event_type: EventType, payload: Value) {
        self.events.push(Event {
            event_id: gate.fresh_id(),
            event_type,
            payload,
            run_id: Some(self.arrival.run_id),
            sequence_number: self.journal.tail().sequence_number,
            session_id: self.arrival.session_id,
            ts: gate.world.now(),
        });
    }

    /// Notes that recovery goes on from this state.
    pub(super) fn note_recovery(&mut self, gate: &Gate, state: State) {
        self.note(gate, EventType::RunRecovered, serde_json::json!({ "state": state }));
    }

    /// The key binds with the commit that opens the run.
    pub(super) fn bind_key(&mut self, binding: Binding) {
        self.binding = Some(binding);
    }

    /// Keeps others away until the effect is committed.
    pub(super) fn keep(&mut self, hold: Hold) {
        self.hold = Some(hold);
    }

    /// The record guarantees what the effect does.
    pub(super) fn guarantee(&mut self, guarantee: Option<Guarantee>) {
        self.guarantee = guarantee;
    }

    /// The run keeps what the tool said about its failure.
    pub(super) fn keep_error(&mut self, said: Option<String>) {
        self.error_said = said;
    }

    /// Leaves to recovery what is held, if the call may be durable and its effect is not. A tool server's
    /// permit is given back: it protects nothing, and a call in doubt can wait for days.
    pub(super) fn park(&mut self, gate: &Gate) {
        let is_core = self.binding.as_ref().is_some_and(|key| key.tool_server == CORE_SERVER);
        if let (true, true, Some(hold)) = (is_core, self.may_be_called, self.hold.take()) {
            gate.parked.keep(self.arrival.run_id, hold);
        }
    }

    /// The next commit asks, or decides.
    pub(super) fn change_approval(&mut self, change: ApprovalChange) {
        let (ApprovalChange::Ask(approval) | ApprovalChange::Decide(approval)) = &change;
        self.approval = Some(approval.clone());
        self.approval_change = Some(change);
    }

    /// The approval that waits for a person.
    pub(super) fn pending_approval(&self) -> Option<Approval> {
        self.approval.clone().filter(|approval| approval.status == ApprovalStatus::Pending)
    }

    /// Whether a person said yes.
    pub(super) fn was_approved(&self) -> bool {
        self.approval.as_ref().is_some_and(|approval| approval.status == ApprovalStatus::Approved)
    }

    /// Drops the journal of a step that turned out not to be one: another step has its key.
    pub(super) fn forget_journal(&mut self) {
        self.journal = Journal::empty(self.arrival.run_id, self.arrival.session_id);
        self.binding = None;
        self.hold = None;
        self.guarantee = None;
        self.error_said = None;
        self.events.clear();
        self.events_committed = 0;
        self.approval = None;
        self.approval_change = None;
    }

    /// Makes the call durable, before anything acts.
    pub(super) async fn commit_call(&mut self, gate: &Gate) -> Result<(), Stop> {
        let status = if self.was_approved() { Status::Approved } else { Status::Started };
        let committed = self.commit_opening(gate, status).await;
        let was_not_written =
            matches!(committed, Err(Stop::Fault(Fault::Store(StoreError::Unavailable(_)))));
        self.may_be_called = !was_not_written;
        committed
    }

    /// Makes the request durable before anything is decided, where it is not yet.
    pub(super) async fn commit_request(&mut self, gate: &Gate) -> Result<(), Stop> {
        match self.is_open {
            true => Ok(()),
            false => self.commit_opening(gate, Status::Started).await,
        }
    }

    /// Makes the question to a person durable, with a checkpoint.
    pub(super) async fn commit_pause(&mut self, gate: &Gate) -> Result<(), Stop> {
        self.commit_opening(gate, Status::ApprovalRequired).await
    }

    /// Makes what happened durable, before a call goes out once more. Whatever the store answers but
    /// yes, nothing is sent.
    pub(super) async fn commit_events(&mut self, gate: &Gate) -> Result<(), Stop> {
        let commit = self.next_commit();
        gate.store.commit(commit).await.map_err(|error| self.stopped_by(error))?;
        self.events_committed = self.events.len();
        Ok(())
    }

    /// Whether the call went out a second time although nobody knew what had become of the first.
    pub(super) fn was_sent_blindly(&self) -> bool {
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
    pub(super) fn events_committed(&self) -> usize {
        self.events_committed
    }

    async fn commit_opening(&mut self, gate: &Gate, status: Status) -> Result<(), Stop> {
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
                    Ok(Some(state)) if state.last_entry_digest == ours => Ok(()),
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

    /// What a refused commit means. Nobody but the holder of a trace's lock appends to it: an entry that
    /// no longer fits tells that another executor took the trace over (decision 10).
    fn stopped_by(&self, error: StoreError) -> Stop {
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

    /// Everything that is not yet durable, as one commit.
    fn next_commit(&mut self) -> StepCommit {
        let place = Place { session_id: self.arrival.session_id, run_id: self.arrival.run_id };
        StepCommit {
            open: (!self.is_open).then(|| self.run()),
            entries: self.journal.take_pending(),
            approval: self.approval_change.take(),
            key: match &self.binding {
                Some(binding) if !self.is_open => Some(KeyChange::Bind(binding.clone())),
                Some(_) | None => None,
            },
            events: self.events.iter().skip(self.events_committed).cloned().collect(),
            sealed: self.sealed.clone().filter(|_| !self.is_open),
            ..StepCommit::at(place)
        }
    }

    fn run(&self) -> Run {
        Run {
            arrival: self.arrival.clone(),
            tool_name: self.action.clone(),
            input_json: self.args.as_ref().map(canonical::text_of),
            status: Status::Started,
            ending: None,
        }
    }

    /// Answers the step that the trail is of. When it arrived is no part of it.
    pub(super) fn answer(&self, reply: Reply, replayed: bool) -> Answer {
        Answer {
            proposal_id: self.proposal_id.clone(),
            action: self.action.clone(),
            reply,
            run_id: self.arrival.run_id,
            session_id: self.arrival.session_id,
            step_index: self.arrival.step_index,
            replayed,
        }
    }
}

/// Writes the record, and with it everything that is not yet durable.
///
/// Spec 000, RECORD: "MUST record" the nine fields, "MUST store reasoning for audit purposes". If the
/// store cannot write, the result is kept and tried again while the trace is ours; without a record
/// there is no answer.
pub(super) async fn record(
    gate: &Gate,
    trail: &mut Trail,
    ended: Result<ExecutionResult, Failure>,
) -> Result<TraceRecord, Stop> {
    let (output_json, failure) = match ended {
        Ok(ExecutionResult { output_json }) => (output_json, None),
        Err(failure) => (trail.error_said.take(), Some(failure)),
    };
    let failure = failure.as_ref();
    if failure.is_some_and(Failure::is_before_args) && !trail.is_open && gate.tools.has_redacted() {
        trail.withhold();
    }
    let outcome = failure.map_or(Outcome::Success, Failure::outcome);
    let (event_type, payload) = closing_event(trail, failure, outcome);
    trail.note(gate, event_type, payload);

    let tail = trail.journal.tail();
    let error = failure.map(ErrorBody::of);
    let error_json = error.as_ref().map(ErrorBody::text);
    let reply = Reply::Recorded(Recorded {
        outcome,
        output_json: output_json.clone(),
        error,
        detail: failure.and_then(Failure::detail),
        last_entry_digest: tail.state.map(|_| tail.entry_digest),
    });
    let answer = trail.answer(reply, false);
    let body = record_body(gate, trail, failure, outcome, &answer.body());
    let person_ms = match trail.approval {
        Some(_) => trail.journal.decided_after_ms(),
        None => 0,
    };
    let latency_ms = body.completed_at.since_ms(body.received_at).saturating_sub(person_ms);
    let record = Record::seal(&body, Ending { output_json, error_json, latency_ms });

    let mut commit = trail.next_commit();
    commit.checkpoint = trail.journal.checkpoint();
    commit.key = trail.binding.as_ref().map(|binding| match trail.is_open {
        true => KeyChange::Settle(binding.idempotency_key.clone()),
        false => KeyChange::Bind(Binding { settled: true, ..binding.clone() }),
    });
    commit.record = Some(record);
    commit.sealed = None;
    write(gate, commit).await.map_err(|error| trail.stopped_by(error))?;
    trail.hold = None;
    Ok(TraceRecord { answer })
}

/// Commits, again and again while that is safe and within the limit.
async fn write(gate: &Gate, commit: StepCommit) -> Result<(), StoreError> {
    let run_id = commit.place.run_id;
    let ours = commit.record.as_ref().map(|record| record.digest);
    let mut attempts_left = gate.limits.record_attempts_max;
    loop {
        attempts_left = attempts_left.saturating_sub(1);
        let error = match gate.store.commit(commit.clone()).await {
            Ok(()) => return Ok(()),
            Err(StoreError::AnswerLost(why)) => {
                // Read back before anything else: the record is there, or not.
                let dossier = gate.store.dossier(run_id).await?;
                let theirs = dossier.and_then(|dossier| dossier.record);
                if theirs.map(|(record, _)| record.digest) == ours {
                    return Ok(());
                }
                StoreError::Unavailable(why)
            }
            Err(error) => error,
        };
        match error {
            StoreError::Unavailable(_) if attempts_left > 0 => {
                gate.world.pause(gate.limits.record_retry_pause).await;
            }
            StoreError::Unavailable(_)
            | StoreError::AnswerLost(_)
            | StoreError::State(_)
            | StoreError::KeyTaken
            | StoreError::AlreadyDecided
            | StoreError::UnknownSession(_)
            | StoreError::Broken(_) => return Err(error),
        }
    }
}

fn closing_event(trail: &Trail, failure: Option<&Failure>, outcome: Outcome) -> (EventType, Value) {
    let event_type = match failure {
        None => EventType::ToolSucceeded,
        Some(Failure::PolicyViolation(_) | Failure::RefusedAtExecution(_)) => {
            EventType::PolicyViolation
        }
        Some(
            Failure::EmptyPayload
            | Failure::PayloadTooLarge
            | Failure::InvalidJson(_)
            | Failure::SchemaVersionIncompatible(_)
            | Failure::InvalidProposal(_)
            | Failure::CommandExecution
            | Failure::ActionNotAllowed
            | Failure::InvalidArgs(_)
            | Failure::IdempotencyConflict
            | Failure::DeniedByOperator { .. }
            | Failure::ApprovalExpired
            | Failure::TooManyApprovals(_)
            | Failure::Execution(..),
        ) => EventType::ToolFailed,
    };
    let payload = serde_json::json!({
        "error_code": failure.map(Failure::code),
        "outcome": outcome,
        "tool": trail.action,
    });
    (event_type, payload)
}

fn record_body(
    gate: &Gate,
    trail: &Trail,
    failure: Option<&Failure>,
    outcome: Outcome,
    response: &str,
) -> RecordBody {
    let Arrival { run_id, session_id, principal_id, step_index, received_at, payload } =
        trail.arrival.clone();
    let summary_max = gate.limits.summary_string_bytes_max;
    let tail = trail.journal.tail();
    RecordBody {
        action: trail.action.clone(),
        approval_digest: trail.approval.as_ref().map(Approval::digest),
        args_summary: trail.args.as_ref().map(|args| args_summary(args, summary_max)),
        completed_at: gate.world.now(),
        detail: failure.and_then(Failure::detail),
        error_code: failure.map(|failure| failure.code().to_owned()),
        events_digest: event::digest_of(&trail.events),
        guarantee: trail.guarantee,
        last_entry_digest: tail.state.map(|_| tail.entry_digest),
        outcome,
        payload_bytes: payload.length,
        payload_digest: Digest::of_bytes(&payload.bytes),
        phase_failed_at: failure.map(Failure::phase),
        principal_id,
        proposal_id: trail.proposal_id.as_ref().map(|id| id.as_str().to_owned()),
        reasoning: trail.reasoning.clone(),
        received_at,
        response_digest: Digest::of_bytes(response.as_bytes()),
        run_id,
        schema_version: trail.schema_version.clone(),
        session_id,
        status: Status::of_ending(failure),
        step_index,
    }
}
