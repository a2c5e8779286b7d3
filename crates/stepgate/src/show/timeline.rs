//! One run, as a timeline.

use serde_json::Value;
use stepgate_core::approval::Approval;
use stepgate_core::event::{Event, EventType};
use stepgate_core::journal::artifact::{EffectOutcome, Guarantee};
use stepgate_core::journal::{Appended, Artifact};
use stepgate_core::json::strict;
use stepgate_core::ports::Dossier;
use stepgate_core::record::RecordBody;
use stepgate_core::step::response_of;
use stepgate_gateway::attention::NeedObject;
use stepgate_gateway::run_object::states;

use super::attention;
use super::{DIM, printable, say, shortened, status};

const TEXT_CHARS_MAX: usize = 400;
const DIGEST_CHARS: usize = 12;

pub(crate) fn print(dossier: &Dossier, need: Option<&NeedObject>) -> anyhow::Result<()> {
    let body = dossier.record.as_ref().map(|(record, _)| record.body()).transpose();
    let body = body.map_err(anyhow::Error::msg)?;
    print_head(dossier, body.as_ref())?;
    if let Some(need) = need {
        line("attention", &attention::line(need))?;
    }
    say("")?;
    let arrival = &dossier.run.arrival;
    let bytes = format!("{} bytes", arrival.payload.length);
    moment(&arrival.received_at.to_string(), "RECEIVE", &bytes)?;
    for appended in &dossier.entries {
        print_entry(appended)?;
        let number = appended.entry.sequence_number;
        print_events(dossier, |event| event.sequence_number == number && !is_after_the_end(event))?;
    }
    let Some((body, (record, link))) = body.as_ref().zip(dossier.record.as_ref()) else {
        return Ok(());
    };
    let digest: String = record.digest.to_string().chars().take(DIGEST_CHARS).collect();
    let what =
        format!("{}  {DIM}record {digest} link {}{DIM:#}", body.outcome.as_str(), link.number);
    moment(&body.completed_at.to_string(), "RECORD", &what)?;
    print_events(dossier, is_after_the_end)?;
    say("")?;
    say(printable(&response_of(&dossier.run, body)))
}

fn print_head(dossier: &Dossier, body: Option<&RecordBody>) -> anyhow::Result<()> {
    let run = &dossier.run;
    let arrival = &run.arrival;
    line("run", &arrival.run_id.to_string())?;
    let states: Vec<_> = states(dossier).into_iter().map(|one| status(one).to_string()).collect();
    line("status", &states.join(" → "))?;
    line("tool", &printable(run.tool_name.as_deref().unwrap_or("-")))?;
    line("session", &format!("{}  step {}", arrival.session_id, arrival.step_index))?;
    line("principal", &printable(arrival.principal_id.as_str()))?;
    match body {
        Some(body) => print_record(body)?,
        None => print_asked(dossier)?,
    }
    if let Some(said) = error_said(dossier) {
        text("said", said)?;
    }
    if let Some(approval) = &dossier.approval {
        line("approval", &approval_line(approval))?;
    }
    Ok(())
}

/// The tool's own error result: the only part of a run's ending that its response does not contain.
fn error_said(dossier: &Dossier) -> Option<&str> {
    let ending = dossier.run.ending.as_ref().filter(|ending| ending.error_json.is_some())?;
    ending.output_json.as_deref()
}

/// Prints what is known of a run that has no record yet. Nothing is cut, because a person may decide on it.
fn print_asked(dossier: &Dossier) -> anyhow::Result<()> {
    let payload = std::str::from_utf8(&dossier.run.arrival.payload.bytes).ok();
    let proposal = payload.and_then(|text| strict::stored(text).ok());
    if let Some(Value::String(reasoning)) = proposal.as_ref().and_then(|it| it.get("reasoning")) {
        line("reasoning", &printable(reasoning))?;
    }
    match dossier.entries.first().map(Appended::prove).transpose()? {
        Some(Artifact::ActionRequest(request)) => {
            line("args", &printable(&request.proposal.args.to_string()))
        }
        Some(Artifact::SupervisorDecision(_) | Artifact::ToolCall(_) | Artifact::ToolEffect(_))
        | None => Ok(()),
    }
}

fn print_record(body: &RecordBody) -> anyhow::Result<()> {
    if let Some(reasoning) = &body.reasoning {
        text("reasoning", reasoning)?;
    }
    if let Some(args) = &body.args_summary {
        text("args", &args.to_string())?;
    }
    if let Some(phase) = body.phase_failed_at {
        let code = body.error_code.as_deref().unwrap_or("-");
        let detail = body.detail.as_deref().unwrap_or("-");
        line("failed", &format!("{} {code}: {}", phase.as_str(), printable(detail)))?;
    }
    match body.guarantee {
        Some(guarantee) => line("guarantee", guaranteed(guarantee)),
        None => Ok(()),
    }
}

/// The guarantee of the record, with an explanation of how often the effect can have happened.
fn guaranteed(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::ExactlyOnce => "exactly_once, also across crashes",
        Guarantee::AtLeastOnce => "at_least_once: after a crash it is sent again",
        Guarantee::AtMostOnce => "at_most_once: nobody but a person sends it again",
    }
}

fn approval_line(approval: &Approval) -> String {
    let head = format!("{}  {}", approval.approval_id, approval.status.as_str());
    let Some(resolution) = &approval.resolution else { return head };
    let who = resolution.approver_id.as_ref().map(|who| format!(" by {}", who.as_str()));
    let note = resolution.note.as_ref().map(|note| format!(": {note}"));
    let said = printable(&format!("{}{}", who.unwrap_or_default(), note.unwrap_or_default()));
    format!("{head}{}", shortened(&said, TEXT_CHARS_MAX))
}

fn print_entry(appended: &Appended) -> anyhow::Result<()> {
    let entry = &appended.entry;
    let said = match appended.prove()? {
        Artifact::ActionRequest(request) => request.intent.clone(),
        Artifact::SupervisorDecision(decision) => match &decision.meta.cap {
            Some(cap) => format!("{}; capped: {cap}", decision.rationale),
            None => decision.rationale.clone(),
        },
        Artifact::ToolCall(call) => match &call.meta.pre_state {
            Some(before) => format!("before: {before}"),
            None => call.call.args.to_string(),
        },
        Artifact::ToolEffect(effect) => {
            let EffectOutcome { status, error } = &effect.outcome;
            let status = serde_json::to_value(status)?;
            let status = status.as_str().unwrap_or_default().to_owned();
            error.as_ref().map_or(status.clone(), |error| format!("{status} {}", error.code))
        }
    };
    let digest: String = entry.entry_digest.to_string().chars().take(DIGEST_CHARS).collect();
    let what = format!(
        "{}  {}  {DIM}entry {} {digest}{DIM:#}",
        entry.artifact_type.as_str(),
        shortened(&printable(&said), TEXT_CHARS_MAX),
        entry.sequence_number
    );
    moment(&entry.ts.to_string(), entry.to_state.as_str(), &what)
}

fn print_events(dossier: &Dossier, belongs: impl Fn(&Event) -> bool) -> anyhow::Result<()> {
    let events = dossier.events.iter().map(|linked| &linked.event);
    for event in events.filter(|event| TOLD.contains(&event.event_type) && belongs(event)) {
        let what = shortened(&printable(&details(&event.payload)), TEXT_CHARS_MAX);
        moment(&event.ts.to_string(), "event", &format!("{}  {what}", event.event_type.as_str()))?;
    }
    Ok(())
}

/// The members of an event that neither the head of the page nor an entry shows.
fn details(payload: &Value) -> String {
    const KNOWN: [&str; 7] = [
        "approval_digest",
        "approval_id",
        "args",
        "expires_at",
        "in_force",
        "principal_id",
        "tool",
    ];
    let members = payload.as_object().into_iter().flatten();
    let details =
        members.filter(|(name, value)| !KNOWN.contains(&name.as_str()) && !value.is_null());
    let texts = details.map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Events that say something that neither an entry nor the record says.
const TOLD: [EventType; 11] = [
    EventType::ApprovalRequested,
    EventType::ApprovalGranted,
    EventType::ApprovalDenied,
    EventType::ApprovalExpired,
    EventType::ToolRedispatched,
    EventType::RunRecovered,
    EventType::LateResult,
    EventType::RunResolved,
    EventType::PolicyDiffers,
    EventType::BudgetReserved,
    EventType::BudgetReleased,
];

/// A late result comes after the record.
fn is_after_the_end(event: &Event) -> bool {
    event.event_type == EventType::LateResult
}

fn line(name: &str, value: &str) -> anyhow::Result<()> {
    say(format!("{DIM}{name:<10}{DIM:#} {value}"))
}

/// Prints untrusted text, shortened.
fn text(name: &str, text: &str) -> anyhow::Result<()> {
    line(name, &shortened(&printable(text), TEXT_CHARS_MAX))
}

fn moment(ts: &str, state: &str, what: &str) -> anyhow::Result<()> {
    say(format!("{DIM}{ts}{DIM:#}  {state:<10}  {what}"))
}
