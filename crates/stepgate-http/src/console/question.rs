//! What a person decides on: the call, who asks, and why. Built only from the approval and its run.

use std::time::Duration;

use serde_json::Value;
use stepgate_core::action::{Action, CORE_SERVER, CoreCall};
use stepgate_core::approval::{Approval, ApprovalContext};
use stepgate_core::digest::Digest;
use stepgate_core::facts::Facts;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::journal::artifact::{ActionRequest, RiskLevel};
use stepgate_core::journal::{Artifact, StateError};
use stepgate_core::json::strict;
use stepgate_core::label::Label;
use stepgate_core::ports::{Dispatch, Dossier, Effect, Failed};
use stepgate_core::record::RecordBody;
use stepgate_core::time::Timestamp;
use stepgate_core::tool::{Standing, ToolName};

use super::difference::Difference;
use super::text::kind;
use super::{Moment, Shown, Text, left};
use crate::App;

/// Longest wait for a file that another call may be changing.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Everything that is decided on.
pub(super) struct Question {
    pub(super) tool: Text,
    pub(super) principal: Text,
    pub(super) reason: Shown,
    pub(super) arguments: Vec<Argument>,
    /// The agent's own words about it. Nothing checks them.
    pub(super) reasoning: Option<Shown>,
    pub(super) risk: &'static str,
    pub(super) policies: Vec<Text>,
    /// What the session had taken in, where it had.
    pub(super) labels: Option<Text>,
    pub(super) policy_digest: Option<Digest>,
    pub(super) call_digest: Digest,
    pub(super) run_id: RunId,
    pub(super) session_id: SessionId,
    pub(super) step_index: u64,
    pub(super) asked: Moment,
    pub(super) expires: Moment,
    /// The time left, or `over`.
    pub(super) left: String,
}

pub(super) struct Argument {
    pub(super) name: Text,
    pub(super) kind: &'static str,
    pub(super) value: Shown,
    /// What the agent asked for, if policy lowered it.
    pub(super) asked: Option<Shown>,
}

impl Question {
    pub(super) fn of(
        approval: &Approval,
        dossier: &Dossier,
        now: Timestamp,
    ) -> Result<Self, Fault> {
        let context = approval.context.read()?;
        let request = request(dossier)?;
        let arrival = &dossier.run.arrival;
        let meta = &context.needs_approval.meta;
        let arguments = arguments(&context.args, &request.proposal.args);
        Ok(Self {
            tool: Text::of(&request.proposal.action()),
            principal: Text::of(context.principal_id.as_str()),
            reason: Shown::of(&context.reason),
            arguments: arguments.into_iter().chain(defaults(meta.defaults.as_ref())).collect(),
            reasoning: reasoning(dossier).as_deref().map(Shown::of),
            risk: match request.risk_level {
                RiskLevel::Read => "changes nothing",
                RiskLevel::Write => "changes something",
                RiskLevel::HighRisk => "changes something that a person should see first",
            },
            policies: meta.policies.iter().map(|policy| Text::of(policy)).collect(),
            labels: labels(meta.facts.as_deref()),
            policy_digest: context.needs_approval.policy_hash,
            call_digest: context.call_digest,
            run_id: approval.tool_run_id,
            session_id: arrival.session_id,
            step_index: arrival.step_index,
            asked: Moment::of(approval.ts_requested),
            expires: Moment::of(context.expires_at),
            left: left(context.expires_at, now),
        })
    }
}

pub(super) fn request(dossier: &Dossier) -> Result<ActionRequest, StateError> {
    match dossier.entries.first().map(|entry| entry.prove()).transpose()? {
        Some(Artifact::ActionRequest(request)) => Ok(request),
        Some(Artifact::SupervisorDecision(_) | Artifact::ToolCall(_) | Artifact::ToolEffect(_))
        | None => Err(StateError::checksum("the journal does not begin with a request")),
    }
}

/// The agent's reasoning in its proposal, if it gave one.
pub(super) fn reasoning(dossier: &Dossier) -> Option<String> {
    let payload = std::str::from_utf8(&dossier.run.arrival.payload.bytes).ok()?;
    let proposal = strict::stored(payload).ok()?;
    proposal.get("reasoning")?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Error code and detail of the record of a step that did not succeed.
pub(super) fn failure(body: &RecordBody) -> Option<(Text, Option<Shown>)> {
    let code = body.error_code.as_deref()?;
    Some((Text::of(code), body.detail.as_deref().map(Shown::of)))
}

fn labels(facts: Option<&Facts>) -> Option<Text> {
    let labels: Vec<&str> = facts?.labels.iter().map(Label::as_str).collect();
    (!labels.is_empty()).then(|| Text::of(&labels.join(", ")))
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
pub(super) fn arguments(sent: &Value, asked: &Value) -> Vec<Argument> {
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

/// What a file write would change, compared with the file as it is now. None for every other call, and where this node
/// does not have the file's sandbox.
pub(super) async fn file_change(app: &App, context: &ApprovalContext) -> Option<Difference> {
    let gate = &app.service.gate;
    let is_here = context.executor_id.as_deref().is_none_or(|id| id == gate.executor.id());
    let is_write =
        context.tool_server == CORE_SERVER && context.tool_name == Action::WriteFile.name();
    if !is_here || !is_write {
        return None;
    }
    let CoreCall::WriteFile { path, content } =
        Action::WriteFile.call(context.args.as_object()?).ok()?
    else {
        return None;
    };
    let read = CoreCall::ReadFile { path };
    let reading = gate.executor.dispatch(&read, None, Dispatch::First);
    let before = match tokio::time::timeout(READ_TIMEOUT, reading).await.ok()? {
        Effect::Done(Some(result)) => {
            let result: Value = serde_json::from_str(&result).ok()?;
            result.get("content")?.as_str()?.to_owned()
        }
        Effect::Failed(Failed { failure: ExecutionFailure::FileNotFound, .. }) => String::new(),
        Effect::Done(None) | Effect::Failed(_) | Effect::Refused(_) | Effect::Unknown(_) => {
            return Some(Difference::Unknown);
        }
    };
    Some(Difference::between(&before, &content))
}

/// The tool of a tool server, as the server describes it.
pub(super) struct DescribedTool {
    /// Its place below `/tools/`.
    pub(super) path: String,
    pub(super) description: Option<Shown>,
    pub(super) standing: &'static str,
}

/// Describes the tool that an approval is about; none for a core action.
pub(super) fn described_tool(app: &App, context: &ApprovalContext) -> Option<DescribedTool> {
    let name = format!("{}.{}", context.tool_server, context.tool_name);
    let name: ToolName = name.parse().ok()?;
    let listing = app.service.control.as_ref()?.servers.listing();
    let is_it =
        |server: &str, tool: &str| server == context.tool_server && tool == context.tool_name;
    let listed = listing.into_iter().find(|listed| is_it(&listed.server, &listed.tool))?;
    Some(DescribedTool {
        path: tool_path(&name),
        description: listed.description.as_deref().map(Shown::of),
        standing: standing(listed.standing),
    })
}

/// The last part of the path of a tool's page. A tool's name may have a slash.
pub(super) fn tool_path(name: &ToolName) -> String {
    name.as_str().replace('/', "%2F")
}

pub(super) fn standing(standing: Option<Standing>) -> &'static str {
    match standing {
        Some(Standing::Accepted) => "Its definition is the one that was accepted.",
        Some(Standing::Changed) => "Its definition has changed since it was accepted.",
        Some(Standing::New) => "It is new, and no operator has accepted it.",
        Some(Standing::Gone) => "Its server no longer has it.",
        None => "It is not offered to agents.",
    }
}
