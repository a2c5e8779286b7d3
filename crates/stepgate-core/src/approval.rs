//! Approvals: the question to a person, and the person's decision.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::action;
use crate::approvers::Required;
use crate::digest::Digest;
use crate::ids::{ApprovalId, PrincipalId, RunId};
use crate::journal::StateError;
use crate::journal::artifact::SupervisorDecision;
use crate::json::{Value, canonical, strict};
use crate::spelled::spelled;
use crate::time::Timestamp;

spelled! {
    /// Where an approval stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ApprovalStatus {
        /// Not decided yet.
        Pending = "pending",
        /// A person approved.
        Approved = "approved",
        /// A person denied.
        Denied = "denied",
        /// The time limit passed without a decision.
        Expired = "expired",
    }
}

/// A row of `approvals`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// What is asked.
    #[serde(rename = "approval_context_json")]
    pub context: StoredContext,
    /// Its id.
    pub approval_id: ApprovalId,
    /// How it was decided.
    pub resolution: Option<Resolution>,
    /// Where it stands.
    pub status: ApprovalStatus,
    /// The run that waits.
    pub tool_run_id: RunId,
    /// When it was asked.
    pub ts_requested: Timestamp,
}

/// How an approval was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resolution {
    /// Who decided; none where the approval expired.
    pub approver_id: Option<PrincipalId>,
    /// What the person noted.
    pub note: Option<String>,
    /// When.
    pub ts_resolved: Timestamp,
}

impl Approval {
    /// The digest that a record holds.
    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }

    /// Until when a person can decide; none where the context cannot be read.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.context.read().ok().map(|context| context.expires_at)
    }

    /// Whether the approval has expired, although the expiry may not be recorded yet.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.status == ApprovalStatus::Pending && self.expires_at().is_some_and(|at| at <= now)
    }
}

/// The question that a person sees, and the call that the approval is bound to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalContext {
    /// The arguments as they would be sent.
    #[serde(deserialize_with = "strict::value")]
    pub args: Value,
    /// The digest of the call: the approval is valid for no other.
    pub call_digest: Digest,
    /// The executor that the call was meant for. The node that grants the call must reach it: what the agent
    /// has seen came from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_id: Option<String>,
    /// Until when a person can decide.
    pub expires_at: Timestamp,
    /// The decision that asks for a person.
    pub needs_approval: SupervisorDecision,
    /// Its digest.
    pub needs_approval_digest: Digest,
    /// The file that would be deleted or renamed. After the approval it must still be the same file. None where
    /// the call is about no file, and in questions of earlier versions.
    #[serde(
        default,
        deserialize_with = "strict::some_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub pre_state: Option<Value>,
    /// Who asks.
    pub principal_id: PrincipalId,
    /// Why a person is needed.
    pub reason: String,
    /// What policies require of the people who decide. Empty where any one operator may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<Required>,
    /// The tool.
    pub tool_name: String,
    /// Its server.
    pub tool_server: String,
}

impl ApprovalContext {
    /// The name in a proposal: a tool's has its server in front.
    pub fn action(&self) -> String {
        action::proposed_name(&self.tool_server, &self.tool_name)
    }
}

/// The context of an approval as its row stores it: the canonical text, which the digests cover, and the
/// parsed form. A text that cannot be parsed is kept: `verify` reports it, and the approval cannot be
/// decided.
#[derive(Clone, Debug)]
pub struct StoredContext {
    text: String,
    read: Result<ApprovalContext, String>,
}

impl StoredContext {
    /// The context as it will be stored.
    pub(crate) fn of(context: &ApprovalContext) -> Self {
        Self::stored(canonical::text_of(context))
    }

    /// Reads what a row holds.
    pub fn stored(text: String) -> Self {
        let value = strict::stored(&text).map_err(|refusal| refusal.to_string());
        let read = value
            .and_then(|value| serde_json::from_value(value).map_err(|error| error.to_string()));
        Self { text, read }
    }

    /// The canonical text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parsed context.
    pub fn read(&self) -> Result<&ApprovalContext, StateError> {
        self.read.as_ref().map_err(|why| StateError::checksum(format!("approval context: {why}")))
    }
}

/// Compares the texts alone: the parsed form follows from the text.
impl PartialEq for StoredContext {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for StoredContext {}

impl Serialize for StoredContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StoredContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::stored)
    }
}
