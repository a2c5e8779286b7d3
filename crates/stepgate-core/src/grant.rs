//! Grants: an operator's approval of further calls in advance.
//!
//! A grant is an event of the system session, and its id is the event's id. Each use is an event of the run
//! that used it. The id of the n-th use follows from the grant, and a store accepts an event id once. So no
//! two runs can have the same use, on any number of nodes and through any crash.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action;
use crate::call::exceeds;
use crate::digest::Digest;
use crate::ids::{ApprovalId, ArtifactId, PrincipalId};
use crate::journal::artifact::ToolCall;
use crate::json::{Map, Value, canonical};
use crate::time::Timestamp;

/// An operator's approval of further calls: who may make them, which ones, how often and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StoredGrant")]
pub struct Grant {
    /// The approval that it was made from.
    pub approval_id: ApprovalId,
    /// What each argument must be. A call with another argument, or without one of these, is not covered.
    pub args: BTreeMap<String, Condition>,
    /// The executor that the approved call was sent to. What stands behind another one was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_id: Option<String>,
    /// Until when it can be used.
    pub expires_at: Timestamp,
    /// Who made it.
    pub granted_by: PrincipalId,
    /// What that person noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who may use it.
    pub principal_id: PrincipalId,
    /// The tool's definition, where a server gave one. Another definition is another tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_definition_digest: Option<Digest>,
    /// The tool.
    pub tool_name: String,
    /// Its server.
    pub tool_server: String,
    /// How many calls it permits.
    pub uses_max: u64,
}

/// What an argument must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// This value.
    Equals(Value),
    /// A number from the first to the second, both included.
    Between(i64, i64),
    /// A text that begins with this. The rest of it must be plain, so that it cannot change what the beginning means.
    StartsWith(String),
}

impl Condition {
    /// Whether the argument is as it must be.
    fn admits(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Equals(expected), value) => {
                canonical::text_of(expected) == canonical::text_of(value)
            }
            (Self::Between(min, max), Value::Number(number)) => is_between(number, *min, *max),
            (Self::StartsWith(beginning), Value::String(text)) => {
                text.strip_prefix(beginning.as_str()).is_some_and(|rest| is_plain(beginning, rest))
            }
            (Self::Between(..) | Self::StartsWith(_), _) => false,
        }
    }

    /// Why no grant may have this condition.
    fn defect(&self) -> Option<&'static str> {
        match self {
            Self::StartsWith(beginning) if beginning.is_empty() => Some("the beginning is empty"),
            Self::StartsWith(beginning) if has_open_host(beginning) => Some(
                "the beginning of a URL must have a `/` after the host, or another host would fit",
            ),
            Self::Between(min, max) if min > max => Some("the smallest value is above the largest"),
            Self::Equals(_) | Self::Between(..) | Self::StartsWith(_) => None,
        }
    }
}

/// Whether a text is the beginning of a URL that could go on with another host.
fn has_open_host(beginning: &str) -> bool {
    beginning.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'))
}

/// Whether a number lies between two others. A number that has no exact place among the integers of 64 bits
/// is compared as the double that the tool will get.
fn is_between(number: &serde_json::Number, min: i64, max: i64) -> bool {
    let is_below = match number.as_i64() {
        Some(number) => number < min,
        #[expect(clippy::cast_precision_loss, reason = "PARSE refuses what a double cannot hold")]
        None => number.as_f64().is_none_or(|number| number < min as f64),
    };
    !is_below && !exceeds(number, max)
}

/// Whether the rest of a text, after the beginning that the operator saw, cannot turn the beginning into
/// something else: `reports/` must not cover `reports/../secrets`, nor `https://a.example/` cover
/// `https://a.example/@b.example`.
fn is_plain(beginning: &str, rest: &str) -> bool {
    let is_allowed = |c: char| c.is_alphanumeric() || " /._-=&?+,:".contains(c);
    let mut before = beginning.chars().next_back();
    rest.chars().all(|c| {
        let is_pair = before.replace(c) == Some(c) && "./".contains(c);
        is_allowed(c) && !is_pair
    })
}

/// A call as an approval or a grant is bound to it: it is valid for this call by this principal, and no other.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct BoundCall<'a> {
    pub(crate) args: &'a Value,
    /// A grant is bound to the executor, too. An approval is not: its digest leaves this out.
    #[serde(skip)]
    pub(crate) executor_id: Option<&'a str>,
    pub(crate) principal_id: &'a PrincipalId,
    pub(crate) tool_definition_digest: Option<Digest>,
    pub(crate) tool_name: &'a str,
    pub(crate) tool_server: &'a str,
}

impl<'a> BoundCall<'a> {
    /// The call that a journal has.
    pub(crate) fn sent(principal_id: &'a PrincipalId, sent: &'a ToolCall) -> Self {
        Self {
            args: &sent.call.args,
            executor_id: sent.meta.executor_id.as_deref(),
            principal_id,
            tool_definition_digest: sent.meta.tool_definition_digest,
            tool_name: &sent.call.tool_name,
            tool_server: &sent.call.tool_server,
        }
    }
}

impl Grant {
    /// The name in a proposal: a tool's has its server in front.
    pub fn action(&self) -> String {
        action::proposed_name(&self.tool_server, &self.tool_name)
    }

    /// Whether the grant is for this call: this principal, this tool as it was defined, at this executor, and
    /// exactly these arguments, each as it must be. How often it was used, and when it ends, is not looked at.
    pub(crate) fn covers(&self, call: BoundCall<'_>) -> bool {
        self.principal_id == *call.principal_id
            && self.tool_server == call.tool_server
            && self.tool_name == call.tool_name
            && self.tool_definition_digest == call.tool_definition_digest
            && self.executor_id.as_deref() == call.executor_id
            && call.args.as_object().is_some_and(|args| self.admits(args))
    }

    fn admits(&self, args: &Map<String, Value>) -> bool {
        args.len() == self.args.len()
            && args.iter().all(|(name, value)| {
                self.args.get(name).is_some_and(|condition| condition.admits(value))
            })
    }
}

/// The conditions for the arguments of an approved call: those that the operator chose, and equality for the
/// others. The error says what is wrong with a choice.
pub(crate) fn conditions(
    approved: &Map<String, Value>,
    chosen: BTreeMap<String, Condition>,
) -> Result<BTreeMap<String, Condition>, String> {
    let exact =
        approved.iter().map(|(name, value)| (name.clone(), Condition::Equals(value.clone())));
    let mut conditions: BTreeMap<String, Condition> = exact.collect();
    for (name, condition) in chosen {
        let Some(value) = approved.get(&name) else {
            return Err(format!("the approved call has no argument `{name}`"));
        };
        if let Some(defect) = condition.defect() {
            return Err(format!("`{name}`: {defect}"));
        }
        if !condition.admits(value) {
            return Err(format!("`{name}`: the approved call itself would not be covered"));
        }
        conditions.insert(name, condition);
    }
    Ok(conditions)
}

/// The id of the event of a grant's n-th use. It has the form of every other id: the time of the grant, then
/// bits that follow from the grant and the number.
pub(crate) fn use_event_id(grant_id: ArtifactId, number: u64) -> ArtifactId {
    // The first six bytes are the time.
    let [a, b, c, d, e, f, ..] = *grant_id.as_uuid().as_bytes();
    ArtifactId::derived([a, b, c, d, e, f], &Digest::of(&("stepgate grant use", grant_id, number)))
}

#[cfg(test)]
mod tests;
