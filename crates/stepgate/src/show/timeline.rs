//! One run, told in the order in which it happened.

use serde_json::{Value, json};
use stepgate_core::bundle::{Bundle, RunObject};
use stepgate_core::journal::artifact::EffectOutcome;
use stepgate_core::journal::{Appended, Artifact};
use stepgate_core::ports::Dossier;
use stepgate_core::record::RecordBody;
use stepgate_core::step::response_of;

use super::{DIM, printable, say, shortened, status};

const TEXT_CHARS_MAX: usize = 400;
const DIGEST_CHARS: usize = 12;

/// Everything about a run as one object, for `--json`.
pub(crate) fn object(dossier: &Dossier) -> anyhow::Result<Value> {
    let bundle = Bundle::of(dossier)?;
    let events: Vec<_> = dossier.events.iter().map(|linked| &linked.event).collect();
    Ok(json!({
        "run": RunObject::of(&dossier.run),
        "entries": bundle.entries,
        "artifacts": bundle.artifacts,
        "checkpoint": bundle.checkpoint,
        "record": bundle.record,
        "events": events,
        "approval": dossier.approval,
    }))
}

/// Prints the run for a person.
pub(crate) fn print(dossier: &Dossier) -> anyhow::Result<()> {
    let run = &dossier.run;
    let arrival = &run.arrival;
    let body = dossier.record.as_ref().map(|(record, _)| record.body()).transpose();
    let body = body.map_err(anyhow::Error::msg)?;
    line("run", &arrival.run_id.to_string())?;
    line("status", &status(run.status).to_string())?;
    line("tool", &printable(run.tool_name.as_deref().unwrap_or("-")))?;
    line("session", &format!("{}  step {}", arrival.session_id, arrival.step_index))?;
    line("principal", &printable(arrival.principal_id.as_str()))?;
    if let Some(body) = &body {
        print_record(body)?;
    }
    say("")?;
    moment(&arrival.received_at.to_string(), "RECEIVE", &bytes(arrival.payload.length))?;
    for appended in &dossier.entries {
        print_entry(appended)?;
    }
    if let (Some(body), Some((record, link))) = (&body, &dossier.record) {
        let digest: String = record.digest.to_string().chars().take(DIGEST_CHARS).collect();
        let what =
            format!("{}  {DIM}record {digest} link {}{DIM:#}", body.outcome.as_str(), link.number);
        moment(&body.completed_at.to_string(), "RECORD", &what)?;
        say("")?;
        say(printable(&response_of(run, body)))?;
    }
    Ok(())
}

fn print_record(body: &RecordBody) -> anyhow::Result<()> {
    if let Some(reasoning) = &body.reasoning {
        line("reasoning", &shortened(&printable(reasoning), TEXT_CHARS_MAX))?;
    }
    if let Some(args) = &body.args_summary {
        line("args", &shortened(&printable(&args.to_string()), TEXT_CHARS_MAX))?;
    }
    if let Some(phase) = body.phase_failed_at {
        let code = body.error_code.as_deref().unwrap_or("-");
        let detail = body.detail.as_deref().unwrap_or("-");
        line("failed", &format!("{} {code}: {}", phase.as_str(), printable(detail)))?;
    }
    Ok(())
}

fn print_entry(appended: &Appended) -> anyhow::Result<()> {
    let entry = &appended.entry;
    let said = match appended.prove()? {
        Artifact::ActionRequest(request) => request.intent.clone(),
        Artifact::SupervisorDecision(decision) => decision.rationale.clone(),
        Artifact::ToolCall(call) => {
            call.meta.pre_state.as_ref().map_or(String::new(), |before| format!("before: {before}"))
        }
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

fn line(name: &str, value: &str) -> anyhow::Result<()> {
    say(format!("{DIM}{name:<10}{DIM:#} {value}"))
}

fn moment(ts: &str, state: &str, what: &str) -> anyhow::Result<()> {
    say(format!("{DIM}{ts}{DIM:#}  {state:<10}  {what}"))
}

fn bytes(count: u64) -> String {
    format!("{count} bytes")
}
