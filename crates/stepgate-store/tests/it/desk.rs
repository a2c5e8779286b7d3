//! What the tests write with: a store with its system session and one agent's session, and steps that
//! make valid commits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stepgate_core::approval::{Approval, ApprovalStatus, Resolution, StoredContext};
use stepgate_core::digest::Digest;
use stepgate_core::event::{self, Event, EventType};
use stepgate_core::failure::Outcome;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{
    ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, ProposalId, RunId, SessionId,
};
use stepgate_core::journal::artifact::{
    ActionRequest, Artifact, CallMeta, DecisionMeta, EffectMeta, EffectOutcome, EffectStatus,
    Invocation, RequestMeta, RiskLevel, SupervisorDecision, ToolCall, ToolClass, ToolEffect,
    Verdict,
};
use stepgate_core::journal::{Checkpoint, Journal, Sealed};
use stepgate_core::ports::{ApprovalChange, KeyChange, Place, StepCommit, Store, StoreError};
use stepgate_core::record::{Record, RecordBody};
use stepgate_core::run::{Arrival, Ending, Payload, Run, Status};
use stepgate_core::session::{Head, Session, SessionKind};
use stepgate_core::time::Timestamp;
use uuid::Uuid;

/// Long enough for a turn of the scheduler, short enough to wait for.
pub(crate) const LOCK_WAIT: Duration = Duration::from_millis(40);

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_790_000_000_000 + ms)
}

pub(crate) fn agent() -> PrincipalId {
    PrincipalId::parse("agent-1").unwrap()
}

pub(crate) fn operator() -> PrincipalId {
    PrincipalId::parse("operator").unwrap()
}

fn artifact_id() -> ArtifactId {
    ArtifactId::new(Uuid::now_v7())
}

/// A store that is ready for steps.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) system: SessionId,
    pub(crate) session: SessionId,
}

impl Desk {
    pub(crate) async fn open(store: Arc<dyn Store>) -> Self {
        let system = SessionId::new(Uuid::now_v7());
        let mut desk = Self { store, system, session: system };
        desk.system = desk.joined(operator(), SessionKind::System).await;
        desk.session = desk.joined(agent(), SessionKind::Default).await;
        desk
    }

    /// The session of this kind, opened on first use; the system session chains itself.
    async fn joined(&self, principal_id: PrincipalId, kind: SessionKind) -> SessionId {
        if let Some(there) = self.store.session_of(&principal_id, kind).await.unwrap() {
            return there.session_id;
        }
        let fresh = match kind {
            SessionKind::System => self.system,
            SessionKind::Default | SessionKind::Named => SessionId::new(Uuid::now_v7()),
        };
        self.open_session(fresh, principal_id, kind).await.unwrap().session_id
    }

    pub(crate) async fn open_session(
        &self,
        session_id: SessionId,
        principal_id: PrincipalId,
        kind: SessionKind,
    ) -> Result<Session, StoreError> {
        let session = Session {
            session_id,
            principal_id,
            kind,
            node_id: None,
            ts: at(0),
            head: Head::EMPTY,
            last_step_index: 0,
        };
        self.store.open_session(session, self.loose_event()).await
    }

    /// An event of the system session that is about no run.
    pub(crate) fn loose_event(&self) -> Event {
        Event {
            event_id: artifact_id(),
            event_type: EventType::SessionOpened,
            payload: json!({"session": "opened", "n": [1, 2.5, null]}),
            run_id: None,
            sequence_number: 0,
            session_id: self.system,
            ts: at(0),
        }
    }

    pub(crate) fn step(&self) -> Step {
        Step::new(self.session, 1)
    }

    /// A finished step.
    pub(crate) async fn finished(&self) -> Step {
        let mut step = self.step();
        self.store.commit(step.opening()).await.unwrap();
        self.store.commit(step.closing()).await.unwrap();
        step
    }

    pub(crate) async fn head(&self) -> Head {
        self.store.session(self.session).await.unwrap().unwrap().head
    }
}

/// One step, as the core would lead it through the store.
pub(crate) struct Step {
    pub(crate) run: Run,
    pub(crate) journal: Journal,
    pub(crate) key: IdempotencyKey,
    pub(crate) events: Vec<Event>,
    /// What its call is sent to, where it says so.
    pub(crate) executor_id: Option<String>,
    sealed: Vec<Sealed>,
    call_id: ArtifactId,
}

impl Step {
    pub(crate) fn new(session_id: SessionId, step_index: u64) -> Self {
        Self::of(RunId::new(Uuid::now_v7()), session_id, step_index)
    }

    /// A step that came at this time, with an id of that time.
    pub(crate) fn came(ms: u32, session_id: SessionId) -> Self {
        let came = at(i64::from(ms));
        let millis = u64::try_from(came.as_millisecond()).unwrap();
        let random = *Uuid::now_v7().as_bytes().last_chunk().unwrap();
        let id = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
        let mut step = Self::of(RunId::new(id), session_id, 1);
        step.run.arrival.received_at = came;
        step
    }

    fn of(run_id: RunId, session_id: SessionId, step_index: u64) -> Self {
        let payload: Arc<[u8]> = Arc::from(&br#"{"action":"WRITE_FILE"}"#[..]);
        let length = payload.len() as u64;
        let proposal = ProposalId::parse(&Uuid::now_v7().to_string()).unwrap();
        Self {
            run: Run {
                arrival: Arrival {
                    run_id,
                    session_id,
                    principal_id: agent(),
                    step_index,
                    received_at: at(1),
                    payload: Payload { bytes: payload, length },
                },
                tool_name: Some("WRITE_FILE".into()),
                input_json: Some(r#"{"content":"x","path":"/sandbox/a.txt"}"#.into()),
                status: Status::Started,
                ending: None,
            },
            journal: Journal::empty(run_id, session_id),
            key: IdempotencyKey::of(&agent(), &proposal),
            events: Vec::new(),
            executor_id: None,
            sealed: Vec::new(),
            call_id: artifact_id(),
        }
    }

    pub(crate) fn id(&self) -> RunId {
        self.run.arrival.run_id
    }

    pub(crate) fn place(&self) -> Place {
        Place { session_id: self.run.arrival.session_id, run_id: self.id() }
    }

    pub(crate) fn event(&mut self, event_type: EventType) -> Event {
        let event = Event {
            event_id: artifact_id(),
            event_type,
            payload: json!({"tool": "core.WRITE_FILE", "attempt": 1}),
            run_id: Some(self.id()),
            sequence_number: self.journal.tail().sequence_number,
            session_id: self.run.arrival.session_id,
            ts: at(5),
        };
        self.events.push(event.clone());
        event
    }

    fn invocation() -> Invocation {
        Invocation {
            args: json!({"content": "x", "path": "/sandbox/a.txt"}),
            tool_name: "WRITE_FILE".into(),
            tool_server: "core".into(),
        }
    }

    fn advance(&mut self, artifact: Artifact, key: Option<IdempotencyKey>) {
        self.sealed.push(artifact.seal());
        self.journal.advance(artifact, key).unwrap();
    }

    pub(crate) fn request(&mut self) {
        let id = artifact_id();
        let meta = RequestMeta { asked_digest: Digest::of_bytes(b"asked"), principal_id: agent() };
        let request = ActionRequest::new(
            self.journal.head(id, at(2)),
            id,
            agent(),
            Some(self.key.clone()),
            "write a file".into(),
            meta,
            Self::invocation(),
            Vec::new(),
            RiskLevel::Write,
        );
        self.advance(Artifact::ActionRequest(request), None);
    }

    pub(crate) fn decide(&mut self, verdict: Verdict) {
        let id = artifact_id();
        let request = self.sealed.first().unwrap();
        let decision = SupervisorDecision::new(
            self.journal.head(id, at(3)),
            request.digest,
            request.id,
            verdict,
            DecisionMeta::default(),
            None,
            "permitted".into(),
            id,
        );
        self.advance(Artifact::SupervisorDecision(decision), None);
    }

    pub(crate) fn call(&mut self) {
        let decision = self.sealed.last().unwrap();
        let call = ToolCall::new(
            self.journal.head(self.call_id, at(4)),
            Self::invocation(),
            self.key.clone(),
            CallMeta { executor_id: self.executor_id.clone(), ..CallMeta::default() },
            decision.digest,
            decision.id,
            self.call_id,
            ToolClass::Write,
        );
        self.advance(Artifact::ToolCall(call), Some(self.key.clone()));
    }

    pub(crate) fn effect(&mut self) {
        let id = artifact_id();
        let outcome = EffectOutcome { error: None, status: EffectStatus::Success };
        let effect = ToolEffect::new(
            self.journal.head(id, at(6)),
            EffectMeta::default(),
            outcome,
            self.sealed.last().unwrap().digest,
            self.call_id,
            id,
        );
        self.advance(Artifact::ToolEffect(effect), Some(self.key.clone()));
    }

    pub(crate) fn binding(&self, settled: bool) -> Binding {
        Binding {
            idempotency_key: self.key.clone(),
            tool_server: "core".into(),
            tool_name: "WRITE_FILE".into(),
            asked_digest: Digest::of_bytes(b"asked"),
            trace_id: self.id(),
            settled,
        }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        let place = self.place();
        Checkpoint::of(place.run_id, place.session_id, self.journal.tail(), at(7)).unwrap()
    }

    pub(crate) fn approval(&self) -> Approval {
        Approval {
            context: StoredContext::stored(r#"{"reason":"large"}"#.into()),
            approval_id: ApprovalId::new(Uuid::now_v7()),
            resolution: None,
            status: ApprovalStatus::Pending,
            tool_run_id: self.id(),
            ts_requested: at(3),
        }
    }

    /// The commit before the act: the call is durable.
    pub(crate) fn opening(&mut self) -> StepCommit {
        self.request();
        self.decide(Verdict::Approve);
        self.call();
        let events = vec![self.event(EventType::ToolCalled)];
        StepCommit {
            open: Some(self.run.clone()),
            entries: self.journal.take_pending(),
            key: Some(KeyChange::Bind(self.binding(false))),
            events,
            ..StepCommit::at(self.place())
        }
    }

    /// The commit after the act: effect, record and everything that ends a step.
    pub(crate) fn closing(&mut self) -> StepCommit {
        self.effect();
        let events = vec![self.event(EventType::ToolSucceeded)];
        StepCommit {
            entries: self.journal.take_pending(),
            checkpoint: Some(self.checkpoint()),
            key: Some(KeyChange::Settle(self.key.clone())),
            events,
            record: Some(self.record(Status::Ok)),
            ..StepCommit::at(self.place())
        }
    }

    /// The only commit of a step that is refused before there is a call.
    pub(crate) fn refused_at_once(&mut self) -> StepCommit {
        let events = vec![self.event(EventType::ToolFailed)];
        StepCommit {
            open: Some(self.run.clone()),
            events,
            record: Some(self.record(Status::Error)),
            ..StepCommit::at(self.place())
        }
    }

    /// The commit of a step that waits for a person.
    pub(crate) fn pausing(&mut self) -> (StepCommit, Approval) {
        self.request();
        let approval = self.approval();
        let events = vec![self.event(EventType::ApprovalRequested)];
        let commit = StepCommit {
            open: Some(self.run.clone()),
            entries: self.journal.take_pending(),
            checkpoint: Some(self.checkpoint()),
            approval: Some(ApprovalChange::Ask(approval.clone())),
            key: Some(KeyChange::Bind(self.binding(false))),
            status: Some(Status::ApprovalRequired),
            events,
            ..StepCommit::at(self.place())
        };
        (commit, approval)
    }

    /// The commit of a grant: the call is durable.
    pub(crate) fn granting(&mut self, asked: &Approval) -> (StepCommit, Approval) {
        self.decide(Verdict::Approve);
        self.call();
        let decided = Approval {
            resolution: Some(Resolution {
                approver_id: Some(operator()),
                note: Some("fine".into()),
                ts_resolved: at(4),
            }),
            status: ApprovalStatus::Approved,
            ..asked.clone()
        };
        let events =
            vec![self.event(EventType::ApprovalGranted), self.event(EventType::ToolCalled)];
        let commit = StepCommit {
            entries: self.journal.take_pending(),
            approval: Some(ApprovalChange::Decide(decided.clone())),
            status: Some(Status::Approved),
            events,
            ..StepCommit::at(self.place())
        };
        (commit, decided)
    }

    pub(crate) fn record(&self, status: Status) -> Record {
        let arrival = &self.run.arrival;
        let body = RecordBody {
            action: self.run.tool_name.clone(),
            approval_digest: None,
            args_summary: None,
            completed_at: at(8),
            detail: None,
            error_code: None,
            events_digest: event::digest_of(&self.events),
            guarantee: None,
            last_entry_digest: Some(self.journal.tail().entry_digest),
            outcome: Outcome::Success,
            payload_bytes: arrival.payload.length,
            payload_digest: Digest::of_bytes(&arrival.payload.bytes),
            phase_failed_at: None,
            principal_id: agent(),
            proposal_id: None,
            reasoning: Some("because".into()),
            received_at: arrival.received_at,
            response_digest: Digest::of_bytes(b"response"),
            run_id: arrival.run_id,
            schema_version: None,
            session_id: arrival.session_id,
            status,
            step_index: arrival.step_index,
        };
        let ending = Ending { output_json: Some("null".into()), error_json: None, latency_ms: 7 };
        Record::seal(&body, ending)
    }
}
