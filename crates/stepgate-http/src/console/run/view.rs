//! The content of a run's page.

use askama::Template;
use serde_json::Value;
use stepgate_core::attention::{self, Need};
use stepgate_core::digest::Digest;
use stepgate_core::failure::Phase;
use stepgate_core::gate::Fault;
use stepgate_core::ids::ApprovalId;
use stepgate_core::journal::artifact::{Kind, Verdict};
use stepgate_core::journal::{Appended, Artifact, Entry, StateError};
use stepgate_core::ports::Dossier;
use stepgate_core::record::RecordBody;
use stepgate_core::time::Timestamp;
use stepgate_gateway::text;

use super::super::question::{self, Argument};
use super::super::runs::RunRow;
use super::super::{Frame, Moment, Shown, Tab, Text, Visitor, duration};

/// Longest text of an entry that is shown; the export has all of it.
const ENTRY_CHARS_MAX: usize = 20_000;

#[derive(Template)]
#[template(path = "run.html")]
pub(super) struct RunPage {
    frame: Frame,
    /// Whether the run has ended, so that the page does not change any more.
    is_final: bool,
    row: RunRow,
    tool: Text,
    need: Option<(String, Shown)>,
    /// The CSRF token, if the visitor can settle the run.
    settle: Option<String>,
    /// Whether the call can be sent again: not while recovery tries that itself.
    can_redispatch: bool,
    failure: Option<(Text, Option<Shown>)>,
    arguments: Vec<Argument>,
    reasoning: Option<Shown>,
    result: Option<Shown>,
    approval_id: Option<ApprovalId>,
    decision: Option<Decision>,
    phases: Vec<PhaseRow>,
    entries: Vec<EntryRow>,
    record: Option<Digest>,
    events: Vec<EventRow>,
}

struct Decision {
    words: &'static str,
    rationale: Shown,
    policies: Vec<Text>,
    policy_digest: Option<Digest>,
    by: Option<Text>,
    cap: Option<Shown>,
}

struct PhaseRow {
    name: &'static str,
    words: &'static str,
    class: &'static str,
    /// For screen readers, which do not read a colour.
    spoken: &'static str,
    took: Option<String>,
}

struct EntryRow {
    entry: Entry,
    at: Moment,
    text: Shown,
}

struct EventRow {
    name: &'static str,
    at: Moment,
    details: Shown,
}

impl RunPage {
    pub(super) fn of(
        dossier: &Dossier,
        need: Option<&Need>,
        visitor: &Visitor,
        now: Timestamp,
    ) -> Result<Self, Fault> {
        let run = &dossier.run;
        let body = dossier.record.as_ref().map(|(record, _)| record.body()).transpose();
        let body = body.map_err(StateError::checksum)?;
        let tool = run.tool_name.as_deref().unwrap_or("not readable");
        let title = text::shortened(&text::printable(tool), 80);
        let request = question::request(dossier).ok();
        let args = request.map(|request| request.proposal.args);
        Ok(Self {
            frame: Frame::at(Tab::Runs, title, visitor),
            is_final: run.status.is_final(),
            row: RunRow::of(run, now),
            tool: Text::of(tool),
            need: need.map(|need| (need.kind.as_str().replace('_', " "), Shown::of(&need.reason))),
            settle: need
                .filter(|it| matches!(it.kind, attention::Kind::InDoubt | attention::Kind::Stuck))
                .and_then(|_| visitor.operator_csrf()),
            can_redispatch: need.is_some_and(|need| need.kind == attention::Kind::InDoubt),
            failure: body.as_ref().and_then(question::failure),
            arguments: args.map(|args| question::arguments(&args, &args)).unwrap_or_default(),
            reasoning: question::reasoning(dossier).as_deref().map(Shown::of),
            result: result(dossier),
            approval_id: dossier.approval.as_ref().map(|approval| approval.approval_id),
            decision: decision(&dossier.entries)?,
            phases: phases(dossier, body.as_ref()),
            entries: dossier.entries.iter().map(EntryRow::of).collect(),
            record: dossier.record.as_ref().map(|(record, _)| record.digest),
            events: events(dossier),
        })
    }
}

fn result(dossier: &Dossier) -> Option<Shown> {
    let result = dossier.run.ending.as_ref()?.output_json.as_deref()?;
    Some(Shown::of(&text::shortened(&pretty(result), ENTRY_CHARS_MAX)))
}

fn pretty(json: &str) -> String {
    match serde_json::from_str::<Value>(json) {
        Ok(value) => format!("{value:#}"),
        Err(_) => json.to_owned(),
    }
}

fn decision(entries: &[Appended]) -> Result<Option<Decision>, StateError> {
    let made = entries.iter().find(|it| it.entry.artifact_type == Kind::SupervisorDecision);
    let Some(Artifact::SupervisorDecision(made)) = made.map(Appended::prove).transpose()? else {
        return Ok(None);
    };
    Ok(Some(Decision {
        words: match made.decision {
            Verdict::Approve => "It was allowed.",
            Verdict::Deny => "It was refused.",
            Verdict::NeedsApproval => "A person has to decide.",
        },
        rationale: Shown::of(&made.rationale),
        policies: made.meta.policies.iter().map(|policy| Text::of(policy)).collect(),
        policy_digest: made.policy_hash,
        by: made.meta.approver_id.as_ref().map(|who| Text::of(who.as_str())),
        cap: made.meta.cap.as_ref().map(Shown::value),
    }))
}

fn phases(dossier: &Dossier, body: Option<&RecordBody>) -> Vec<PhaseRow> {
    let at = |kind| {
        let found = dossier.entries.iter().find(|it| it.entry.artifact_type == kind);
        found.map(|it| it.entry.ts)
    };
    let (request, decision) = (at(Kind::ActionRequest), at(Kind::SupervisorDecision));
    let (call, effect) = (at(Kind::ToolCall), at(Kind::ToolEffect));
    let received = dossier.run.arrival.received_at;
    let between = |from: Option<Timestamp>, to: Option<Timestamp>| {
        from.zip(to).map(|(from, to)| duration(to.since_ms(from)))
    };
    // Where both ends are recorded. The first five are recorded together.
    let took = |phase| match phase {
        Phase::ValidateArgs => {
            between(Some(received), request).map(|it| format!("{it} for phases 1 to 5"))
        }
        Phase::Authorize => between(request, decision),
        Phase::Execute => between(call, effect),
        Phase::Record => between(effect.or(decision), body.map(|body| body.completed_at)),
        Phase::Receive
        | Phase::Parse
        | Phase::ValidateSchema
        | Phase::ValidateAction
        | Phase::Respond => None,
    };
    let failed = body.and_then(|body| body.phase_failed_at);
    // A run without a record is in the phase whose end is not recorded yet.
    let present = match (body, call, decision) {
        (Some(_), _, _) => None,
        (None, Some(_), _) | (None, None, Some(_)) => Some(Phase::Execute),
        (None, None, None) => Some(Phase::Authorize),
    };
    let mut is_left_out = false;
    let mut is_ahead = false;
    let rows = Phase::ALL.into_iter().map(|phase| {
        let is_end = matches!(phase, Phase::Record | Phase::Respond);
        let (class, spoken) = match () {
            () if Some(phase) == failed => ("failed", "ended here"),
            () if Some(phase) == present => ("now", "under way"),
            () if is_ahead || (is_left_out && !is_end) => ("ahead", "not reached"),
            () => ("passed", "passed"),
        };
        is_left_out |= Some(phase) == failed;
        is_ahead |= Some(phase) == present;
        let took = took(phase);
        PhaseRow { name: phase.as_str(), words: words(phase), class, spoken, took }
    });
    rows.collect()
}

fn words(phase: Phase) -> &'static str {
    match phase {
        Phase::Receive => "request received",
        Phase::Parse => "JSON parsed",
        Phase::ValidateSchema => "matches the proposal schema",
        Phase::ValidateAction => "the action exists",
        Phase::ValidateArgs => "the arguments are valid",
        Phase::Authorize => "policy decides, or a person",
        Phase::Execute => "the call is executed",
        Phase::Record => "written into the session's chain",
        Phase::Respond => "response sent",
    }
}

impl EntryRow {
    fn of(appended: &Appended) -> Self {
        let text = text::shortened(&pretty(&appended.artifact.text), ENTRY_CHARS_MAX);
        let entry = appended.entry.clone();
        Self { at: Moment::of(entry.ts), entry, text: Shown::of(&text) }
    }
}

fn events(dossier: &Dossier) -> Vec<EventRow> {
    let rows = dossier.events.iter().map(|linked| {
        let event = &linked.event;
        let details = text::shortened(&format!("{:#}", event.payload), ENTRY_CHARS_MAX);
        EventRow {
            name: event.event_type.as_str(),
            at: Moment::of(event.ts),
            details: Shown::of(&details),
        }
    });
    rows.collect()
}
