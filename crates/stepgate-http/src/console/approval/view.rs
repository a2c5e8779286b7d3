//! The content of an approval's page, built only from the approval and its run.

use askama::Template;
use serde_json::Value;
use stepgate_core::approval::{Approval, ApprovalContext, ApprovalStatus};
use stepgate_core::digest::Digest;
use stepgate_core::failure::Outcome;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{ApprovalId, PrincipalId, RunId, SessionId};
use stepgate_core::journal::artifact::{ActionRequest, RiskLevel};
use stepgate_core::journal::{Artifact, StateError};
use stepgate_core::ports::Dossier;
use stepgate_core::record::RecordBody;
use stepgate_core::run::Status;
use stepgate_core::time::Timestamp;
use stepgate_gateway::text;

use super::super::Frame;
use super::super::text::{Shown, Text, kind};
use super::super::visitor::{Visitor, VisitorRole};

/// Longest part of a result that is shown; `stepgate runs show` has all of it.
const RESULT_CHARS_MAX: usize = 4000;

/// The page.
#[derive(Template)]
#[template(path = "approval.html")]
pub(super) struct ApprovalPage {
    frame: Frame,
    /// Why the last decision was not accepted, if there was one.
    notice: Option<&'static str>,
    approval_id: ApprovalId,
    standing: Standing,
    floor: VisitorActions,
    question: Question,
    decision: Option<Decision>,
    fate: Option<Fate>,
}

/// The state of the approval: a CSS class, and words for people.
struct Standing {
    /// `asks` while it is pending, `asked` after that.
    verb: &'static str,
    class: &'static str,
    words: &'static str,
}

/// What this visitor can do with the approval now.
enum VisitorActions {
    /// Decide; the form contains this CSRF token.
    Decides { csrf: String },
    /// Only look.
    Watches,
    /// Only look, because the request is the visitor's own.
    AskedThemselves,
    /// Nothing: it is decided or expired.
    Over,
}

/// Everything that is decided on.
struct Question {
    tool: Text,
    principal: Text,
    reason: Shown,
    arguments: Vec<Argument>,
    risk: &'static str,
    policies: Vec<Text>,
    policy_digest: Option<Digest>,
    call_digest: Digest,
    run_id: RunId,
    session_id: SessionId,
    step_index: u64,
    asked: Moment,
    expires: Moment,
    /// The time left, or `over`.
    left: String,
}

struct Argument {
    name: Text,
    kind: &'static str,
    value: Shown,
    /// What the agent asked for, if policy lowered it.
    asked: Option<Shown>,
}

/// Who decided, and their note.
struct Decision {
    by: Option<Text>,
    at: Moment,
    note: Option<Shown>,
}

/// The outcome of the run.
struct Fate {
    words: &'static str,
    is_over: bool,
    at: Option<Moment>,
    /// Error code and detail of the record.
    because: Option<(Text, Option<Shown>)>,
    result: Option<Shown>,
}

/// A time for machines and for people.
struct Moment {
    machine: String,
    people: String,
}

impl ApprovalPage {
    pub(super) fn of(
        approval: &Approval,
        dossier: &Dossier,
        visitor: &Visitor,
        now: Timestamp,
        notice: Option<&'static str>,
    ) -> Result<Self, Fault> {
        let context = approval.context.read()?;
        let request = request(dossier)?;
        let status = match approval.has_expired(now) {
            true => ApprovalStatus::Expired,
            false => approval.status,
        };
        let title = format!("{} asks for {}", context.principal_id, request.proposal.action());
        Ok(Self {
            frame: Frame::new(text::shortened(&text::printable(&title), 120), Some(visitor)),
            notice,
            approval_id: approval.approval_id,
            standing: Standing::of(status),
            floor: VisitorActions::of(status, visitor, &context.principal_id),
            decision: decision(approval),
            fate: fate(status, dossier)?,
            question: question(approval, dossier, context, &request, now),
        })
    }
}

/// The agent's original request.
fn request(dossier: &Dossier) -> Result<ActionRequest, StateError> {
    match dossier.entries.first().map(|entry| entry.prove()).transpose()? {
        Some(Artifact::ActionRequest(request)) => Ok(request),
        Some(Artifact::SupervisorDecision(_) | Artifact::ToolCall(_) | Artifact::ToolEffect(_))
        | None => Err(StateError::checksum("the journal does not begin with a request")),
    }
}

impl Standing {
    fn of(status: ApprovalStatus) -> Self {
        let (verb, class, words) = match status {
            ApprovalStatus::Pending => ("asks", "pending", "Waits for a decision"),
            ApprovalStatus::Approved => ("asked", "approved", "Approved"),
            ApprovalStatus::Denied => ("asked", "denied", "Denied"),
            ApprovalStatus::Expired => ("asked", "expired", "Expired"),
        };
        Self { verb, class, words }
    }
}

impl VisitorActions {
    fn of(status: ApprovalStatus, visitor: &Visitor, asker: &PrincipalId) -> Self {
        match (status, visitor.role) {
            (ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Expired, _) => {
                Self::Over
            }
            (ApprovalStatus::Pending, VisitorRole::Auditor) => Self::Watches,
            (ApprovalStatus::Pending, VisitorRole::Operator) => {
                match visitor.principal_id == *asker {
                    true => Self::AskedThemselves,
                    false => Self::Decides { csrf: visitor.csrf.clone() },
                }
            }
        }
    }
}

fn question(
    approval: &Approval,
    dossier: &Dossier,
    context: &ApprovalContext,
    request: &ActionRequest,
    now: Timestamp,
) -> Question {
    let arrival = &dossier.run.arrival;
    let meta = &context.needs_approval.meta;
    Question {
        tool: Text::of(&request.proposal.action()),
        principal: Text::of(context.principal_id.as_str()),
        reason: Shown::of(&context.reason),
        arguments: [
            arguments(&context.args, &request.proposal.args),
            defaults(meta.defaults.as_ref()),
        ]
        .into_iter()
        .flatten()
        .collect(),
        risk: match request.risk_level {
            RiskLevel::Read => "changes nothing",
            RiskLevel::Write => "changes something",
            RiskLevel::HighRisk => "changes something that a person should see first",
        },
        policies: meta.policies.iter().map(|policy| Text::of(policy)).collect(),
        policy_digest: context.needs_approval.policy_hash,
        call_digest: context.call_digest,
        run_id: approval.tool_run_id,
        session_id: arrival.session_id,
        step_index: arrival.step_index,
        asked: Moment::of(approval.ts_requested),
        expires: Moment::of(context.expires_at),
        left: left(context.expires_at.since_ms(now)),
    }
}

/// Default values that the tool uses for arguments that the call omits.
fn defaults(declared: Option<&Value>) -> Vec<Argument> {
    let declared = declared.and_then(Value::as_object).into_iter().flatten();
    let arguments = declared.map(|(place, value)| Argument {
        name: Text::of(&place.trim_start_matches('/').replace('/', ".")),
        kind: "not given; the tool's default",
        value: Shown::value(value),
        asked: None,
    });
    arguments.collect()
}

/// The arguments that would be sent. If policy changed one, also what the agent asked for.
fn arguments(sent: &Value, asked: &Value) -> Vec<Argument> {
    let members = sent.as_object().into_iter().flatten();
    let arguments = members.map(|(name, value)| Argument {
        name: Text::of(name),
        kind: kind(value),
        value: Shown::value(value),
        asked: asked.get(name).filter(|asked| *asked != value).map(Shown::value),
    });
    // Short values come first, so that they are not hidden below long ones.
    let (short, long): (Vec<_>, Vec<_>) = arguments.partition(|argument| argument.value.is_whole());
    short.into_iter().chain(long).collect()
}

fn decision(approval: &Approval) -> Option<Decision> {
    let resolution = approval.resolution.as_ref()?;
    Some(Decision {
        by: resolution.approver_id.as_ref().map(|who| Text::of(who.as_str())),
        at: Moment::of(resolution.ts_resolved),
        note: resolution.note.as_deref().map(Shown::of),
    })
}

/// The outcome of the run; none while the approval is pending.
fn fate(status: ApprovalStatus, dossier: &Dossier) -> Result<Option<Fate>, StateError> {
    let body = dossier.record.as_ref().map(|(record, _)| record.body()).transpose();
    let Some(body) = body.map_err(StateError::checksum)? else {
        let words = match status {
            ApprovalStatus::Pending => return Ok(None),
            ApprovalStatus::Approved => "The call is under way.",
            ApprovalStatus::Denied | ApprovalStatus::Expired => "The step is about to end.",
        };
        let (at, because, result) = (None, None, None);
        return Ok(Some(Fate { words, is_over: false, at, because, result }));
    };
    let ending = dossier.run.ending.as_ref();
    let result = ending.and_then(|ending| ending.output_json.as_deref());
    Ok(Some(Fate {
        words: ended(&body),
        is_over: true,
        at: Some(Moment::of(body.completed_at)),
        because: because(&body),
        result: result.map(|text| Shown::of(&text::shortened(text, RESULT_CHARS_MAX))),
    }))
}

fn ended(body: &RecordBody) -> &'static str {
    match (body.outcome, body.status) {
        (Outcome::Success, _) => "It was executed, and it succeeded.",
        (Outcome::ExecutionError, Status::Timeout) => "It was cut off: no answer came in time.",
        (Outcome::ExecutionError, _) => "It failed.",
        (Outcome::Denied, Status::Denied) => "It was never executed.",
        (Outcome::Denied, _) => "It was refused after the approval.",
        (Outcome::ValidationError, _) => "It was refused as not valid.",
    }
}

/// Why a step did not succeed. A person's denial is already shown in the decision.
fn because(body: &RecordBody) -> Option<(Text, Option<Shown>)> {
    let code = body.error_code.as_deref().filter(|_| body.status != Status::Denied)?;
    Some((Text::of(code), body.detail.as_deref().map(Shown::of)))
}

impl Moment {
    fn of(at: Timestamp) -> Self {
        let machine = at.to_string();
        let (day, time) = machine.split_once('T').unwrap_or((&machine, ""));
        let people = format!("{day} {} UTC", time.get(..8).unwrap_or_default());
        Self { people, machine }
    }
}

/// The duration in its two largest units.
fn left(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        _ if ms == 0 => "over".to_owned(),
        (0, 0, 0) => format!("{} s left", seconds % 60),
        (0, 0, minutes) => format!("{minutes} min left"),
        (0, hours, minutes) => format!("{hours} h {minutes} min left"),
        (days, hours, _) => format!("{days} d {hours} h left"),
    }
}

#[cfg(test)]
mod tests;
