//! The text for a model whose call has no result: what happened, and what to do now.
//!
//! The five-key response has one fixed message for each code. This text says more, because a model acts on it: which
//! argument broke which rule, which limit was reached, whether there may have been an effect, and whether to try
//! again. It reveals nothing about the host, the policies or an operator's note: a detail is repeated only if it is
//! about the caller's own arguments, or if the gateway derived it from a limit or from the tool's result.

use crate::budget;
use crate::failure::{ExecutionFailure, Failure, Outcome};
use crate::gate::{Fault, Gate};
use crate::ids::RunId;
use crate::journal::artifact::EffectStatus;
use crate::journal::{Appended, Artifact};
use crate::step::Recorded;
use crate::stop::STOPPED;
use crate::text;

/// Most characters of a detail that are repeated.
const DETAIL_CHARS_MAX: usize = 1000;

/// What is known of a refusal besides its response.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Whether the journal says that there may have been an effect.
    is_in_doubt: bool,
    /// Longest payload that the gate accepts.
    payload_bytes_max: usize,
}

/// The text for a run that was refused or failed.
pub async fn of_run(gate: &Gate, run_id: RunId, recorded: &Recorded) -> Result<String, Fault> {
    let is_in_doubt = match recorded.outcome {
        Outcome::ExecutionError => is_in_doubt(gate, run_id).await?,
        Outcome::Success | Outcome::ValidationError | Outcome::Denied => false,
    };
    let payload_bytes_max = gate.limits.payload_bytes_max;
    Ok(of_refusal(recorded, Known { is_in_doubt, payload_bytes_max }))
}

/// Whether the journal says that a failed call may still have had an effect.
async fn is_in_doubt(gate: &Gate, run_id: RunId) -> Result<bool, Fault> {
    let entries = gate.store.list_log_entries(run_id, 0).await?;
    let last = entries.last().map(Appended::prove).transpose()?;
    Ok(matches!(
        last,
        Some(Artifact::ToolEffect(effect)) if effect.outcome.status == EffectStatus::Error
    ))
}

/// The text of a refusal: the outcome, the code, the message, the part of the reason that the caller may see, and one
/// sentence of advice.
fn of_refusal(recorded: &Recorded, known: Known) -> String {
    let (outcome, detail) = (recorded.outcome.as_str(), recorded.detail.as_deref());
    let error = recorded.error.as_ref();
    let (code, message) = error.map_or(("", ""), |error| (&error.error_code, &error.message));
    let message = message.trim_end_matches('.');
    let failure = execution(detail).filter(|_| outcome == code);
    let (finer, reason, advice) = match failure {
        Some(failure) => (
            failure.code(),
            reason_of_execution(failure, detail),
            advice_after_execution(failure, known.is_in_doubt),
        ),
        None => (code, reason_of_refusal(code, detail, known), advice_after_refusal(code, detail)),
    };
    let reason = reason.map(|reason| {
        let reason = text::shortened(&text::printable(&reason), DETAIL_CHARS_MAX);
        format!(": {}", reason.trim_end_matches('.'))
    });
    format!("{outcome} ({finer}): {message}{}. {advice}", reason.unwrap_or_default())
}

/// The failure code at the start of a record's detail.
fn execution(detail: Option<&str>) -> Option<ExecutionFailure> {
    ExecutionFailure::parse(detail?.split(':').next()?)
}

/// What the caller may see of the reason, for a call that failed in execution.
fn reason_of_execution(failure: ExecutionFailure, detail: Option<&str>) -> Option<String> {
    let said = detail.and_then(|detail| detail.split_once(": ")).map(|(_code, said)| said);
    match failure {
        ExecutionFailure::Timeout => {
            let said = said.unwrap_or("no answer in time");
            Some(format!("{said} (the limit is timeout_ms of its server)"))
        }
        // The gateway's own check of the tool's result.
        ExecutionFailure::OutputInvalid => said.map(str::to_owned),
        ExecutionFailure::FileTooLarge => Some("the limit is sandbox.file_bytes_max".to_owned()),
        ExecutionFailure::TooManyEntries => Some("the limit is sandbox.entries_max".to_owned()),
        // The rest of these details may name the host: a path, a command, an error of the system.
        ExecutionFailure::ToolFailed
        | ExecutionFailure::Unavailable
        | ExecutionFailure::Io
        | ExecutionFailure::FileNotFound
        | ExecutionFailure::PathNotFound
        | ExecutionFailure::NotAFile
        | ExecutionFailure::NotADirectory
        | ExecutionFailure::AlreadyExists
        | ExecutionFailure::InvalidUtf8
        | ExecutionFailure::PermissionDenied
        | ExecutionFailure::StorageFull => None,
    }
}

/// What the caller may see of the reason, for a call that was refused before it had any effect.
fn reason_of_refusal(code: &str, detail: Option<&str>, known: Known) -> Option<String> {
    match code {
        "PAYLOAD_TOO_LARGE" => {
            Some(format!("limits.payload_bytes_max is {} bytes", known.payload_bytes_max))
        }
        // About the caller's own input.
        "INVALID_JSON" | "INVALID_PROPOSAL" | "INVALID_ARGS" => detail.map(str::to_owned),
        "APPROVAL_DENIED" => too_many_open(detail).map(str::to_owned),
        // The rest may name a policy, or a rule that the operator made.
        _ => None,
    }
}

fn advice_after_refusal(code: &str, detail: Option<&str>) -> &'static str {
    let is_on_all = |limit: &str| limit.starts_with("limits.approvals_open_total_max");
    match code {
        "PAYLOAD_TOO_LARGE" => "Nothing was done: send less in one call.",
        "IDEMPOTENCY_CONFLICT" => {
            "Nothing was done: the key already names another call, so use a new key."
        }
        "RESULT_ARCHIVED" => {
            "Nothing was done now: this call was made and answered before, and its result is archived. Do not make it \
             again only to see the result."
        }
        "ACTION_NOT_ALLOWED" => "Nothing was done. Do not try again: this tool is not offered.",
        "POLICY_VIOLATION" if detail.is_some_and(|detail| detail.starts_with(STOPPED)) => {
            "Nothing was done: an operator has stopped these calls. Do not try again, and do not try another \
             way: stop here and tell your user."
        }
        "POLICY_VIOLATION" if detail.is_some_and(|detail| detail.starts_with(budget::REFUSED)) => {
            "Nothing was done: it is more than may be used at present. Do not try again, and do not try another \
             way: tell your user."
        }
        "POLICY_VIOLATION" => {
            "Nothing was done. Do not try again: the same call is refused again. Tell your user if \
             you cannot go on without it."
        }
        "APPROVAL_DENIED" if too_many_open(detail).is_some_and(is_on_all) => {
            "Nothing was done, and no person was asked: too many calls wait for people already. Call again \
             later."
        }
        "APPROVAL_DENIED" if too_many_open(detail).is_some() => {
            "Nothing was done, and no person was asked: too many of your calls wait for one. Wait for \
             their outcomes before you call again."
        }
        "APPROVAL_DENIED" if detail == Failure::ApprovalExpired.detail().as_deref() => {
            "Nothing was done: no person decided in time. Do not try again unless your user says so."
        }
        "APPROVAL_DENIED" => {
            "Nothing was done: a person said no. Do not try again unless your user says so."
        }
        _ => "Nothing was done: correct the arguments and call again.",
    }
}

/// The limit on open approvals, if that limit refused the call.
fn too_many_open(detail: Option<&str>) -> Option<&str> {
    detail?.strip_prefix("TOO_MANY_OPEN: ")
}

fn advice_after_execution(failure: ExecutionFailure, is_in_doubt: bool) -> &'static str {
    match (is_in_doubt, failure.may_pass()) {
        (true, _) => {
            "It may have been done all the same, wholly or in part: look before you call again."
        }
        (false, true) => "Nothing was done: call again later.",
        (false, false) => "It was not done: the same call fails again unless something changes.",
    }
}

#[cfg(test)]
mod tests;
