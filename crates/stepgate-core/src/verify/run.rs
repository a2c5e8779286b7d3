//! One run: its journal, record and row and the rows around them, each checked against the others.

use std::cell::OnceCell;

use crate::approval::{Approval, ApprovalContext, ApprovalStatus};
use crate::call::exceeds;
use crate::digest::Digest;
use crate::event::{self, Event, EventType};
use crate::failure::{ExecutionFailure, Outcome, Phase};
use crate::grant::{BoundCall, use_event_id};
use crate::ids::{ArtifactId, IdempotencyKey, ProposalId};
use crate::journal::artifact::{DecisionMeta, Invocation, RequestMeta, ToolEffect};
use crate::journal::{Checkpoint, Replayed, StateError, decided_after_ms, replay};
use crate::json::{Value, canonical};
use crate::machine::State;
use crate::ports::{Dossier, LinkedEvent, OriginalPayload};
use crate::record::{Record, RecordBody, args_summary};
use crate::run::{Run, Status};
use crate::session::{self, Link, LinkKind};
use crate::step::{Readable, asked_digest, response_of};

use super::{Problem, budgets, chain, place_of};

/// Everything about one run that does not follow from the rest.
pub(crate) fn check(dossier: &Dossier) -> Vec<Problem> {
    let mut problems = Problems::about(&dossier.run);
    match problems.note("journal", replay(&dossier.entries)) {
        Some(replayed) => check_against(dossier, &replayed),
        None => problems.found,
    }
}

/// Everything that does not follow from a journal that was proven.
fn check_against(dossier: &Dossier, replayed: &Replayed) -> Vec<Problem> {
    let mut problems = Problems::about(&dossier.run);
    let record = dossier.record.as_ref().and_then(|(record, _)| problems.body(record));
    problems.journal(replayed);
    problems.payload(replayed);
    problems.call(replayed);
    problems.checkpoints(&dossier.checkpoints, replayed, record.is_some());
    let has_pause = dossier.checkpoints.iter().any(|at| at.checkpoint_sequence_number == 1);
    let was_paused = dossier.approval.is_some();
    problems.expect("checkpoints", has_pause || !was_paused, "a pause without its checkpoint");
    match &record {
        Some(body) => {
            problems.record(body, replayed);
            let covered = event::digest_of(covered_by_record(dossier));
            problems.expect("events", body.events_digest == covered, "digest");
            let approval = dossier.approval.as_ref().map(Approval::digest);
            problems.expect("approvals", body.approval_digest == approval, "digest");
        }
        None => problems.unfinished(dossier, replayed),
    }
    problems.events(dossier, replayed);
    problems.approval(dossier, replayed);
    problems.binding(dossier, replayed, record.is_some());
    problems.found.extend(budgets::check(dossier, replayed));
    problems.found
}

/// Proves a run completely, and returns its journal: only a run that passes is continued. Whether the
/// neighbouring links of the chain exist is checked by [`super::verify`].
pub(crate) fn prove(dossier: &Dossier) -> Result<Replayed, StateError> {
    let replayed = replay(&dossier.entries)?;
    for checkpoint in &dossier.checkpoints {
        replayed.check(checkpoint)?;
    }
    let arrival = &dossier.run.arrival;
    let (session_id, run_id) = (arrival.session_id, Some(arrival.run_id));
    let broken = |(kind, link, body)| chain::broken(session_id, kind, run_id, body, link);
    let links = links(dossier).into_iter().filter_map(broken);
    match check_against(dossier, &replayed).into_iter().chain(links).next() {
        None => Ok(replayed),
        Some(Problem { place, what }) => Err(StateError::checksum(format!("{place}: {what}"))),
    }
}

/// The links of a run, with the body that each must have.
pub(crate) fn links(dossier: &Dossier) -> Vec<(LinkKind, Link, Digest)> {
    let mut links = Vec::new();
    if let (Some(link), Some(genesis)) = (dossier.open_link, dossier.entries.first()) {
        let (arrival, events) = (dossier.run.arrival_digest(), opening_digest(dossier));
        let body = session::open_body(genesis.entry.entry_digest, arrival, events);
        links.push((LinkKind::Open, link, body));
    }
    for linked in &dossier.events {
        if let Some(link) = linked.link {
            links.push((LinkKind::Event, link, Digest::of(&linked.event)));
        }
    }
    if let Some((record, link)) = &dossier.record {
        links.push((LinkKind::Close, *link, record.digest));
    }
    links
}

/// The events that the OPEN link covers.
fn opening(dossier: &Dossier) -> impl Iterator<Item = &LinkedEvent> {
    let mut is_over = false;
    dossier.events.iter().take_while(move |linked| {
        let opens = part(linked.event.event_type) == Part::Opens;
        let is_opening = !is_over && linked.link.is_none() && opens;
        // The use of a grant is committed before the call.
        is_over = linked.event.event_type == EventType::GrantUsed;
        is_opening
    })
}

/// Their digest.
pub(crate) fn opening_digest(dossier: &Dossier) -> Digest {
    event::digest_of(opening(dossier).map(|linked| &linked.event))
}

/// What an event of a type means for the checks of its run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is committed with the opening of the run.
    Opens,
    /// It is the last that the record covers.
    Closes,
    /// It gives this status to the approval.
    Decides(ApprovalStatus),
    /// None of these.
    Other,
}

fn part(event_type: EventType) -> Part {
    match event_type {
        EventType::ToolCalled
        | EventType::ApprovalRequested
        | EventType::GrantUsed
        | EventType::BudgetReserved
        | EventType::ErasableStored
        | EventType::PolicyDiffers => Part::Opens,
        EventType::ToolSucceeded | EventType::ToolFailed | EventType::PolicyViolation => {
            Part::Closes
        }
        EventType::ApprovalGranted => Part::Decides(ApprovalStatus::Approved),
        EventType::ApprovalDenied => Part::Decides(ApprovalStatus::Denied),
        EventType::ApprovalExpired => Part::Decides(ApprovalStatus::Expired),
        EventType::ToolReplayed
        | EventType::ToolRedispatched
        | EventType::RunRecovered
        | EventType::LateResult
        | EventType::RunResolved
        | EventType::RunNeedsPerson
        | EventType::PartNeedsPerson
        | EventType::ApprovalVoted
        | EventType::BudgetReleased
        | EventType::GrantCreated
        | EventType::GrantRevoked
        | EventType::LoginRefused
        | EventType::SessionOpened
        | EventType::LabelAdded
        | EventType::LabelRemoved
        | EventType::UserRequest
        | EventType::ToolAccepted
        | EventType::PolicyLoaded
        | EventType::TokenCreated
        | EventType::TokenRevoked
        | EventType::TurnOpened
        | EventType::TurnAnswered
        | EventType::TurnWaiting
        | EventType::TurnToolEnded
        | EventType::TurnContinued
        | EventType::TurnFailed
        | EventType::StopMade
        | EventType::StopLifted
        | EventType::RunsArchived
        | EventType::HoldMade
        | EventType::HoldLifted
        | EventType::ErasableErased => Part::Other,
    }
}

/// The index of the event that closes the run.
fn closing(dossier: &Dossier) -> Option<usize> {
    dossier.events.iter().position(|linked| part(linked.event.event_type) == Part::Closes)
}

/// Whether a run had this latency. In records of older versions it includes the person's time.
fn is_latency(latency_ms: u64, body: &RecordBody, replayed: &Replayed) -> bool {
    let whole_ms = body.completed_at.since_ms(body.received_at);
    let person_ms = match body.approval_digest {
        Some(_) => decided_after_ms(&replayed.references),
        None => 0,
    };
    [whole_ms, whole_ms.saturating_sub(person_ms)].contains(&latency_ms)
}

/// The events up to the closing one; later events have links of their own.
fn covered_by_record(dossier: &Dossier) -> impl Iterator<Item = &Event> {
    let events = dossier.events.iter().map(|linked| &linked.event);
    events.take(closing(dossier).map_or(usize::MAX, |closing| closing + 1))
}

/// Checks on one run, and what they found.
pub(crate) struct Problems<'a> {
    run: &'a Run,
    /// The fields of the payload, parsed on first use.
    readable: OnceCell<Option<ReadPayload>>,
    pub(crate) found: Vec<Problem>,
}

/// The fields that can be read from a payload.
struct ReadPayload {
    proposal: Readable,
    /// Its arguments in canonical form.
    args_text: Option<String>,
}

impl<'a> Problems<'a> {
    pub(crate) fn about(run: &'a Run) -> Self {
        Self { run, readable: OnceCell::new(), found: Vec::new() }
    }

    fn readable(&self) -> Option<&ReadPayload> {
        let read = || {
            let proposal = Readable::of_payload(&self.run.arrival.payload.bytes)?;
            let args_text = proposal.args.as_ref().map(canonical::text_of);
            Some(ReadPayload { proposal, args_text })
        };
        self.readable.get_or_init(read).as_ref()
    }

    fn add(&mut self, table: &str, what: impl ToString) {
        self.found.push(Problem::new(place_of(table, self.run.arrival.run_id), what));
    }

    fn expect(&mut self, table: &str, holds: bool, what: &str) {
        if !holds {
            self.add(table, format!("{what} does not follow from the rest"));
        }
    }

    pub(crate) fn note<T>(&mut self, table: &str, checked: Result<T, StateError>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(table, error);
                None
            }
        }
    }

    /// Reads a record's text back: canonical, whole, and with its digest.
    pub(crate) fn body(&mut self, record: &Record) -> Option<RecordBody> {
        self.expect(
            "records",
            record.digest == Digest::of_bytes(record.text.as_bytes()),
            "record_digest",
        );
        self.expect("records", record.run_id == self.run.arrival.run_id, "tool_run_id");
        match record.body() {
            Ok(body) => {
                self.expect("records", canonical::text_of(&body) == record.text, "form");
                self.expect("records", body.run_id == self.run.arrival.run_id, "run_id");
                Some(body)
            }
            Err(error) => {
                self.add("records", error);
                None
            }
        }
    }

    /// The call is the request, lowered by the caps that the decision names.
    fn call(&mut self, replayed: &Replayed) {
        let Replayed { request: Some(request), call: Some(call), decision, .. } = replayed else {
            return;
        };
        let cap = decision.as_ref().and_then(|decision| decision.meta.cap.as_ref());
        self.expect("journal", is_lowered(&request.proposal, cap, &call.call), "the call");
    }

    /// The journal names the run's session, principal and request.
    pub(crate) fn journal(&mut self, replayed: &Replayed) {
        let arrival = &self.run.arrival;
        let is_ours = replayed.place == Some((arrival.run_id, arrival.session_id));
        // A problem for each artifact: replay has proven that all have one place.
        for _ in &replayed.references {
            self.expect("journal", is_ours, "the place of an artifact");
        }
        let Some(request) = &replayed.request else { return };
        let RequestMeta { asked_digest: asked, principal_id } = &request.meta;
        let (tool, args) = (&request.proposal.action(), &request.proposal.args);
        self.expect("journal", *principal_id == arrival.principal_id, "principal_id");
        self.expect("journal", *asked == asked_digest(tool, args), "asked_digest");
        let asks_what_came = self.run.tool_name.as_deref() == Some(tool)
            && self.run.input_json.as_deref() == Some(&canonical::text_of(args));
        self.expect("tool_runs", asks_what_came, "tool_name or input_json");
    }

    /// The payload is the request that the journal names, under the same key.
    pub(crate) fn payload(&mut self, replayed: &Replayed) {
        let Some(request) = &replayed.request else { return };
        let readable = self.readable();
        let id: Option<&ProposalId> = readable.and_then(|it| it.proposal.id.as_ref());
        let key = id.map(|id| IdempotencyKey::of(&self.run.arrival.principal_id, id));
        let action = readable.and_then(|it| it.proposal.action.as_ref());
        let asks_the_same = action == self.run.tool_name.as_ref()
            && readable.and_then(|it| it.args_text.as_ref()) == self.run.input_json.as_ref();
        self.expect("tool_runs", request.idempotency_key == key, "the payload's id");
        self.expect("tool_runs", asks_the_same, "payload");
    }

    pub(crate) fn checkpoints(
        &mut self,
        checkpoints: &[Checkpoint],
        replayed: &Replayed,
        is_over: bool,
    ) {
        for checkpoint in checkpoints {
            self.note("checkpoints", replayed.check(checkpoint));
        }
        let has_last = checkpoints
            .last()
            .is_some_and(|last| last.checkpoint_sequence_number == replayed.tail.sequence_number);
        if is_over && replayed.tail.state.is_some() && !has_last {
            self.add("checkpoints", "the last checkpoint is missing");
        }
    }

    /// The row follows from record, journal and payload.
    pub(crate) fn record(&mut self, body: &RecordBody, replayed: &Replayed) {
        let run = self.run;
        let arrival = &run.arrival;
        let Some(ending) = &run.ending else {
            return self.add("tool_runs", "recorded and not ended");
        };
        let rows = [
            ("session_id", body.session_id == arrival.session_id),
            ("principal_id", body.principal_id == arrival.principal_id),
            ("step_index", body.step_index == arrival.step_index),
            ("ts", body.received_at == arrival.received_at),
            ("payload", body.payload_digest == Digest::of_bytes(&arrival.payload.bytes)),
            ("payload_bytes", body.payload_bytes == arrival.payload.length),
            ("status", body.status == run.status),
            ("tool_name", body.action == run.tool_name),
            ("latency_ms", is_latency(ending.latency_ms, body, replayed)),
            // The response has `null` both for an absent error and for an error whose text is `null`.
            ("error_json", ending.error_json.is_some() == body.error_code.is_some()),
            (
                "output_json or error_json",
                body.response_digest == Digest::of_bytes(response_of(run, body).as_bytes()),
            ),
        ];
        for (column, holds) in rows {
            self.expect("tool_runs", holds, column);
        }
        self.said(body);
        let tail = replayed.tail;
        let end = tail.state.map(|_| tail.entry_digest);
        self.expect("records", body.last_entry_digest == end, "last_entry_digest");
        self.expect("records", outcome_fits(tail.state, body.outcome), "outcome");
        let effect = replayed.effect.as_ref();
        let output = ending.output_json.as_ref().map(|text| Digest::of_bytes(text.as_bytes()));
        self.expect("tool_runs", output == effect.and_then(kept_digest), "output_json");
        let guaranteed = effect.and_then(|effect| effect.meta.guarantee);
        self.expect("records", body.guarantee == guaranteed, "guarantee");
    }

    /// The record repeats the fields of the payload, where they could be read.
    fn said(&mut self, body: &RecordBody) {
        let readable = self.readable().filter(|_| was_parsed(body));
        let said = readable.map(|it| &it.proposal);
        let args = said.and_then(|said| said.args.as_ref());
        let is_summary = match (args, &body.args_summary) {
            (Some(args), Some(summary)) => is_summary(args, summary),
            (args, summary) => args.is_none() && summary.is_none(),
        };
        let id = said.and_then(|said| said.id.as_ref()).map(ProposalId::as_str);
        let columns = [
            (
                "schema_version",
                body.schema_version.as_ref() == said.and_then(|said| said.schema_version.as_ref()),
            ),
            ("proposal_id", body.proposal_id.as_deref() == id),
            ("action", body.action.as_ref() == said.and_then(|said| said.action.as_ref())),
            ("reasoning", body.reasoning.as_ref() == said.and_then(|said| said.reasoning.as_ref())),
            ("args_summary", is_summary),
        ];
        let has_its_input =
            self.run.input_json.as_ref() == readable.and_then(|it| it.args_text.as_ref());
        self.expect("tool_runs", has_its_input, "input_json");
        for (column, holds) in columns {
            self.expect("records", holds, column);
        }
    }

    fn unfinished(&mut self, dossier: &Dossier, replayed: &Replayed) {
        let run = self.run;
        let approval = dossier.approval.as_ref().map(|approval| approval.status);
        let expected = match (replayed.tail.state, approval) {
            (Some(State::Pending), Some(ApprovalStatus::Pending)) => Status::ApprovalRequired,
            (_, Some(ApprovalStatus::Approved)) => Status::Approved,
            (_, _) => Status::Started,
        };
        self.expect("tool_runs", run.status == expected, "status");
        self.expect("tool_runs", run.ending.is_none(), "output_json, error_json or latency_ms");
        let is_open = replayed.tail.state.is_some_and(|state| !state.is_terminal());
        self.expect("records", is_open, "the absence of a record");
        self.expect("journal", dossier.open_link.is_some(), "the absence of an OPEN link");
        let written = self.readable().and_then(|it| it.proposal.args.as_ref());
        let written = written.and_then(Value::as_object).cloned().unwrap_or_default();
        let payload = &run.arrival.payload;
        // Without its key there is nothing to compare. A step that needs it stops, and says so.
        if !matches!(dossier.sealed, Some(OriginalPayload::Locked { .. })) {
            let sealed = Readable::unsealed(dossier.sealed.as_ref(), payload, &written);
            self.note("sealed_payloads", sealed);
        }
        // There is no record yet that could cover them.
        let mut later = dossier.events.iter().skip(opening(dossier).count());
        let are_linked = later.all(|later| later.link.is_some());
        self.expect("events", are_linked, "an event after the opening without a link");
    }

    fn events(&mut self, dossier: &Dossier, replayed: &Replayed) {
        for linked in &dossier.events {
            let event = &linked.event;
            let is_ours = event.session_id == self.run.arrival.session_id
                && event.run_id == Some(self.run.arrival.run_id);
            self.expect("events", is_ours, "the place of an event");
        }
        // No link covers the last entries of a run that is not over, but its events state how many there
        // were.
        let are_whole = dossier.has_what_its_events_saw(replayed.tail.sequence_number);
        self.expect("journal", are_whole, "the absence of an entry that an event tells of");
        let after = closing(dossier).map_or(dossier.events.len(), |closing| closing + 1);
        let later_are_linked = dossier.events.iter().skip(after).all(|later| later.link.is_some());
        self.expect("events", later_are_linked, "an event after the record without a link");
        let links = dossier.events.iter().filter_map(|linked| linked.link);
        let are_in_order = links.is_sorted_by(|before, after| before.number < after.number);
        self.expect("events", are_in_order, "the order of the events");
    }

    /// The approval is as the event recorded it, and its decision is the one in the journal.
    fn approval(&mut self, dossier: &Dossier, replayed: &Replayed) {
        let requested = dossier
            .events
            .iter()
            .find(|linked| linked.event.event_type == EventType::ApprovalRequested)
            .and_then(|linked| linked.event.payload.get("approval_digest"))
            .and_then(Value::as_str);
        let asked = dossier.approval.as_ref().map(|approval| {
            let status = ApprovalStatus::Pending;
            Approval { status, resolution: None, ..approval.clone() }.digest().to_string()
        });
        self.expect("approvals", requested == asked.as_deref(), "what was asked");
        self.decision(dossier);
        let asked = dossier.approval.as_ref().map(|approval| approval.context.read());
        let asked = asked.and_then(|asked| self.note("approvals", asked));
        if let Some(decision) = &replayed.decision {
            let meta = &decision.meta;
            let follows = follows_from(meta, dossier.approval.as_ref(), asked);
            self.expect("approvals", follows, "the decision");
            self.expect("events", uses(dossier) == used_by(meta), "the use of a grant");
        }
        if let Some(call) = &replayed.call {
            let bound = BoundCall::sent(&self.run.arrival.principal_id, call);
            let is_approved = asked.is_none_or(|asked| asked.call_digest == Digest::of(&bound));
            self.expect("approvals", is_approved, "the call");
        }
    }

    /// A decided approval is as its event says, also while there is no record; a pending one has no such
    /// event.
    fn decision(&mut self, dossier: &Dossier) {
        let events = dossier.events.iter().map(|linked| &linked.event);
        let told: Vec<(ApprovalStatus, Option<&str>)> = events
            .filter_map(|event| {
                let digest = event.payload.get("approval_digest").and_then(Value::as_str);
                match part(event.event_type) {
                    Part::Decides(status) => Some((status, digest)),
                    Part::Opens | Part::Closes | Part::Other => None,
                }
            })
            .collect();
        let holds = match &dossier.approval {
            None => told.is_empty(),
            Some(approval) if approval.status == ApprovalStatus::Pending => {
                told.is_empty() && approval.resolution.is_none()
            }
            Some(approval) => {
                let digest = approval.digest().to_string();
                told == [(approval.status, Some(digest.as_str()))]
            }
        };
        self.expect("approvals", holds, "status, ts_resolved, approver_id or note");
    }

    fn binding(&mut self, dossier: &Dossier, replayed: &Replayed, is_over: bool) {
        match (&dossier.binding, &replayed.request) {
            (None, None) => {}
            (Some(binding), Some(request)) => {
                let holds = Some(&binding.idempotency_key) == request.idempotency_key.as_ref()
                    && binding.tool_server == request.proposal.tool_server
                    && binding.tool_name == request.proposal.tool_name
                    && binding.asked_digest == request.meta.asked_digest
                    && binding.settled == is_over;
                self.expect("binding", holds, "the key's binding");
            }
            (Some(_), None) | (None, Some(_)) => self.add("binding", "journal without its key"),
        }
    }
}

/// The digest of the result that the row must keep for an effect. An unusable result is not kept in the row,
/// and its digest is in the journal alone.
fn kept_digest(effect: &ToolEffect) -> Option<Digest> {
    let error = effect.outcome.error.as_ref();
    let failure = error.and_then(|error| ExecutionFailure::parse(&error.code));
    let is_kept = failure.is_none_or(ExecutionFailure::keeps_what_was_said);
    effect.meta.result_digest.filter(|_| is_kept)
}

/// Whether a decision names the run's approval, its question and its approver.
fn follows_from(
    meta: &DecisionMeta,
    approval: Option<&Approval>,
    asked: Option<&ApprovalContext>,
) -> bool {
    let resolution = approval.and_then(|approval| approval.resolution.as_ref());
    let approver = resolution.and_then(|resolution| resolution.approver_id.as_ref());
    let note = resolution.and_then(|resolution| resolution.note.as_ref());
    meta.approver_id.as_ref() == approver
        && meta.note_digest == note.map(|note| Digest::of_bytes(note.as_bytes()))
        && meta.approval_id == approval.map(|approval| approval.approval_id)
        && meta.needs_approval_digest == asked.map(|asked| asked.needs_approval_digest)
        && has_its_people(meta, approval, asked)
}

/// Whether a decision names enough people, where policies require certain ones or more than one. Which groups
/// they were in is not recorded.
fn has_its_people(
    meta: &DecisionMeta,
    approval: Option<&Approval>,
    asked: Option<&ApprovalContext>,
) -> bool {
    let is_approved = approval.is_some_and(|it| it.status == ApprovalStatus::Approved);
    let required = asked.filter(|_| is_approved).map_or(&[][..], |asked| &asked.required);
    let quorum = required.iter().map(|required| required.quorum).max().unwrap_or(0);
    let people = &meta.approver_ids;
    let is_named = meta.approver_id.as_ref().is_some_and(|approver| people.contains(approver));
    match required.is_empty() {
        true => people.is_empty(),
        false => is_named && u32::try_from(people.len()).is_ok_and(|people| people >= quorum),
    }
}

/// The events by which a run used grants.
fn uses(dossier: &Dossier) -> Vec<ArtifactId> {
    let events = dossier.events.iter().map(|linked| &linked.event);
    let uses = events.filter(|event| event.event_type == EventType::GrantUsed);
    uses.map(|event| event.event_id).collect()
}

/// The events that a decision under a grant has.
fn used_by(meta: &DecisionMeta) -> Vec<ArtifactId> {
    let named = meta.grant_id.zip(meta.grant_use);
    named.map(|(grant_id, number)| use_event_id(grant_id, number)).into_iter().collect()
}

/// Whether a call is what was asked, lowered to the caps.
fn is_lowered(asked: &Invocation, cap: Option<&Value>, call: &Invocation) -> bool {
    match cap {
        None => asked == call,
        Some(cap) => lowered(asked, cap).as_ref() == Some(call),
    }
}

/// An invocation with its arguments lowered to the caps; none where a cap lowers nothing.
fn lowered(asked: &Invocation, cap: &Value) -> Option<Invocation> {
    let mut lowered = asked.clone();
    for (name, max) in cap.as_object().into_iter().flatten() {
        match lowered.args.get_mut(name) {
            Some(Value::Number(number)) if exceeds(number, max.as_i64()?) => {
                *number = max.as_number()?.clone();
            }
            Some(_) | None => return None,
        }
    }
    Some(lowered)
}

/// Whether a step got so far that its proposal was parsed.
fn was_parsed(body: &RecordBody) -> bool {
    body.phase_failed_at.is_none_or(|phase| phase > Phase::Parse)
}

/// Whether a record may have this summary of a value: equal, except that long strings are a length and a
/// digest. The length limit is not checked, because it may have been different then.
fn is_summary(value: &Value, summary: &Value) -> bool {
    match (value, summary) {
        (Value::Array(items), Value::Array(summaries)) => {
            items.len() == summaries.len()
                && items.iter().zip(summaries).all(|(item, summary)| is_summary(item, summary))
        }
        (Value::Object(members), Value::Object(summaries)) => {
            members.len() == summaries.len()
                && members.iter().all(|(name, value)| {
                    summaries.get(name).is_some_and(|summary| is_summary(value, summary))
                })
        }
        (Value::String(_), Value::Object(_)) => *summary == args_summary(value, 0),
        (Value::String(text), Value::String(summary)) => text == summary,
        (value, summary) => canonical::text_of(value) == canonical::text_of(summary),
    }
}

/// The one outcome, seen from the machine (decision 19).
fn outcome_fits(state: Option<State>, outcome: Outcome) -> bool {
    let possible: &[Outcome] = match state {
        Some(State::Completed) => &[Outcome::Success],
        Some(State::Failed) => &[Outcome::ExecutionError, Outcome::Denied],
        Some(State::Denied) => &[Outcome::Denied],
        None => &[Outcome::ValidationError, Outcome::Denied],
        Some(State::Pending | State::Authorized | State::Executing) => &[],
    };
    possible.contains(&outcome)
}

#[cfg(test)]
mod tests;
