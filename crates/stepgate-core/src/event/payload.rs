//! The payloads of events, one type for each. An event stores its payload as a value, because the chain covers the
//! value as it was written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::approvers::Required;
use crate::digest::Digest;
use crate::failure::Outcome;
use crate::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::json::Value;
use crate::label::{Carrier, Label};
use crate::machine::State;
use crate::need::Kind;
use crate::session::SessionKind;
use crate::time::Timestamp;
use crate::verdict::PolicyAnswer;

/// The member of a payload that says which request an event comes from.
const REQUEST: &str = "request";

/// The request that an event comes from, where it came over the network: a member of any payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EventRequest")]
pub struct Request {
    /// The address of the client, or of the proxy before it.
    pub address: String,
    /// The id of the request, as its response has it.
    pub id: String,
}

/// The value that an event stores.
pub fn value(payload: impl Serialize) -> Value {
    // Never fails: no payload has a map whose keys are not strings.
    serde_json::to_value(payload).unwrap_or_default()
}

/// The value that an event stores, with the request that it comes from.
pub fn value_from(payload: impl Serialize, request: Option<Request>) -> Value {
    let mut stored = value(payload);
    if let (Some(request), Some(members)) = (request, stored.as_object_mut()) {
        members.insert(REQUEST.to_owned(), value(request));
    }
    stored
}

/// A stored payload, and the request that it comes from.
pub fn split(stored: &Value) -> (Value, Option<Request>) {
    let mut payload = stored.clone();
    let request = payload.as_object_mut().and_then(|members| members.remove(REQUEST));
    (payload, request.and_then(|request| serde_json::from_value(request).ok()))
}

/// Reads a stored payload, without the request that it comes from.
pub fn read<T: DeserializeOwned>(stored: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(split(stored).0)
}

/// `tool_called`.
#[derive(Serialize, JsonSchema)]
pub struct ToolCalled {
    /// The key under which the call acts at most once.
    pub idempotency_key: IdempotencyKey,
    /// The action or tool.
    pub tool: String,
}

/// `tool_succeeded`, `tool_failed` and `policy_violation`: the step is over.
#[derive(Serialize, JsonSchema)]
pub struct StepEnded {
    /// The code, where the step failed.
    pub error_code: Option<&'static str>,
    /// The outcome.
    pub outcome: Outcome,
    /// The action or tool, where it could be read.
    pub tool: Option<String>,
}

/// `approval_requested`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StoredApprovalRequested")]
pub struct ApprovalRequested {
    /// Digest of the approval's row.
    pub approval_digest: Digest,
    /// The approval.
    pub approval_id: ApprovalId,
    /// The arguments; none where they are long.
    pub args: Option<Value>,
    /// Until when a person can decide.
    pub expires_at: Option<Timestamp>,
    /// Who asks.
    pub principal_id: PrincipalId,
    /// Why a person is needed.
    pub reason: String,
    /// The action or tool.
    pub tool: String,
}

/// `approval_granted`, `approval_denied` and `approval_expired`.
#[derive(Serialize, JsonSchema)]
pub struct ApprovalDecided {
    /// Digest of the approval's row as decided: the row can be verified before there is a record.
    pub approval_digest: Digest,
    /// The approval.
    pub approval_id: ApprovalId,
    /// Who decided; none where the approval expired.
    pub approver_id: Option<PrincipalId>,
}

/// `approval_voted`: one of the people that an approval needs approved.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalVoted {
    /// The approval.
    pub approval_id: ApprovalId,
    /// Who approved.
    pub approver_id: PrincipalId,
    /// What the person noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `grant_used`.
#[derive(Serialize, JsonSchema)]
pub struct GrantUsed {
    /// The grant.
    pub grant_id: ArtifactId,
    /// Which use of the grant it is, from 1.
    pub grant_use: u64,
}

/// `grant_revoked`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRevoked {
    /// The grant.
    pub grant_id: ArtifactId,
    /// Who revoked it.
    pub revoked_by: PrincipalId,
}

/// `stop_lifted`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopLifted {
    /// Who lifted it.
    pub lifted_by: PrincipalId,
    /// The stop.
    pub stop_id: ArtifactId,
}

/// `hold_lifted`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldLifted {
    /// The hold.
    pub hold_id: ArtifactId,
    /// Who lifted it.
    pub lifted_by: PrincipalId,
}

/// `tool_replayed`.
#[derive(Serialize, JsonSchema)]
pub struct ToolReplayed {
    /// The action or tool, where it could be read.
    pub tool: Option<String>,
}

/// `tool_redispatched`.
#[derive(Serialize, JsonSchema)]
pub struct ToolRedispatched {
    /// The action or tool.
    pub tool: String,
}

/// `run_recovered`.
#[derive(Serialize, JsonSchema)]
pub struct RunRecovered {
    /// The state in which recovery found the journal.
    pub state: State,
}

/// `late_result`.
#[derive(Serialize, JsonSchema)]
pub struct LateResult {
    /// SHA-256 of the result's bytes.
    pub result_digest: Digest,
    /// Whether the tool says that it succeeded.
    pub succeeded: bool,
    /// The tool.
    pub tool: Option<String>,
}

/// `run_resolved`.
#[derive(Serialize, JsonSchema)]
pub struct RunResolved {
    /// The run that asked the tool what became of the call, where one did.
    pub query_run_id: Option<RunId>,
    /// `succeeded`, `failed` or `redispatch`.
    pub resolved_as: &'static str,
    /// Who resolved it.
    pub resolved_by: PrincipalId,
}

/// `run_needs_person`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct RunNeedsPerson {
    /// Why, in one word.
    pub kind: Kind,
    /// What happened.
    pub reason: String,
    /// The run.
    pub run_id: RunId,
}

/// `part_needs_person`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct PartNeedsPerson {
    /// Why, in one word.
    pub kind: Kind,
    /// What happened.
    pub reason: String,
    /// The name of a tool, a server, an executor or a directory.
    pub subject: String,
}

/// `session_opened`; `verify` compares the session's row with it.
#[derive(Serialize, JsonSchema)]
pub struct SessionOpened {
    /// What the session is for.
    pub kind: SessionKind,
    /// The node whose default session it is, where several nodes share the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Whose session it is.
    pub principal_id: PrincipalId,
    /// The session.
    pub session_id: SessionId,
    /// When it was opened.
    pub ts: Timestamp,
}

/// `label_added`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelAdded {
    /// What took it in.
    pub carrier: Carrier,
    /// The detector that found something in the result, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detector: Option<String>,
    /// The label.
    pub label: Label,
    /// The run whose call brought it.
    pub run_id: RunId,
    /// The action or tool.
    pub tool: String,
}

/// `label_removed`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelRemoved {
    /// What had it.
    pub carrier: Carrier,
    /// The label.
    pub label: Label,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who took it away.
    pub removed_by: PrincipalId,
}

/// `user_request`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRequest {
    /// The principal that said so.
    pub principal_id: PrincipalId,
    /// What the user asked for.
    pub text: String,
    /// In which part.
    pub told_by: ToldBy,
}

/// Who says what the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToldBy {
    /// A turn of Stepgate's own agent: its user's message.
    Turn,
    /// An operator.
    Operator,
    /// The program around an agent's model, which the configuration trusts with it.
    Harness,
}

/// `tool_accepted`.
#[derive(Serialize, JsonSchema)]
pub struct ToolAccepted {
    /// The operator; none where the tool was known from the server's first start.
    pub accepted_by: Option<PrincipalId>,
    /// The definition.
    pub definition: Option<Value>,
    /// Its digest.
    pub definition_digest: Digest,
    /// Digest of the server's instructions, where they were accepted with it.
    pub instructions_digest: Option<Digest>,
    /// Digest of the tool's `_meta`, where it was accepted with it.
    pub meta_digest: Option<Digest>,
    /// The tool.
    pub tool: String,
}

/// `policy_loaded`.
#[derive(Serialize, JsonSchema)]
pub struct PolicyLoaded {
    /// Digest of the policy set.
    pub policy_hash: Digest,
}

/// `policy_differs`: what the set in force decided, and what the shadow set would have decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyDiffers {
    /// The decision that was taken.
    pub in_force: SetDecision,
    /// Who asked.
    pub principal_id: PrincipalId,
    /// The decision that the shadow set would have taken.
    pub shadow: SetDecision,
    /// The action or tool.
    pub tool: String,
}

/// The decision of one policy set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetDecision {
    /// The caps that lower an argument of the call.
    pub caps: BTreeMap<String, i64>,
    /// Why it is denied, where the names of the policies do not say it.
    pub detail: Option<String>,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// Digest of the policy set.
    pub policy_hash: Digest,
    /// Why a person decides.
    pub reason: Option<String>,
    /// What the set requires of the people who decide.
    pub required: Vec<Required>,
    /// The answer.
    pub verdict: PolicyAnswer,
}

/// `token_revoked`.
#[derive(Serialize, JsonSchema)]
pub struct TokenRevoked {
    /// Who revoked it.
    pub revoked_by: PrincipalId,
    /// The token.
    pub token_id: ArtifactId,
}

/// `login_refused`: requests or logins from an address without a valid token.
#[derive(Serialize, JsonSchema)]
pub struct LoginRefused {
    /// The address, or the network that counts as one; none for those of many addresses together.
    pub address: Option<String>,
    /// How many since the last event about the address.
    pub count: u64,
}
