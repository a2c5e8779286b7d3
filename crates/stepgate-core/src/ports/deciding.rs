//! What decides: a policy.

use std::collections::BTreeMap;

use crate::call::Call;
use crate::digest::Digest;
use crate::ids::PrincipalId;
use crate::json::{Map, Value};

/// What a policy is asked. Reasoning, clock and payload text are not in it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest<'a> {
    /// Who asks.
    pub principal_id: &'a PrincipalId,
    /// What for; redacted arguments as their digests.
    pub call: &'a Call,
}

/// What a policy answers. No rule, doubt and errors are `Deny`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// It may be done.
    Permit,
    /// A person decides; the reason is for the person.
    RequireApproval(String),
    /// It may not be done.
    Deny,
}

/// A decision with what makes it provable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The answer.
    pub verdict: PolicyVerdict,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// Digest of the policy set.
    pub policy_hash: Digest,
    /// The largest value that an argument of a tool may have; the argument is lowered to it. The verdict
    /// is also about the lowered arguments.
    pub caps: BTreeMap<String, i64>,
    /// Why it is denied, where the names of the policies do not say it. For the record, not for the agent.
    pub detail: Option<String>,
    /// The defaults of the tool's schema that policies saw for omitted arguments, by JSON Pointer.
    pub defaults: Map<String, Value>,
}

/// What permits.
pub trait Policy: Send + Sync {
    /// Decides. Always the same for the same request and policy set.
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision;

    /// Whether there can be a call of this action that the principal may make, with a person's approval
    /// or without. It decides nothing: what can never be permitted is only not offered.
    fn could_permit(&self, _principal_id: &PrincipalId, _action: &str) -> bool {
        true
    }
}
