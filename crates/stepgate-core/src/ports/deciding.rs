//! The port that decides: a policy.

use std::collections::{BTreeMap, BTreeSet};

use crate::approvers::Required;
use crate::budget::{Covering, Due};
use crate::call::{Call, ServerCall};
use crate::digest::Digest;
use crate::facts::{FactNeeds, Facts};
use crate::ids::{PrincipalId, SessionId};
use crate::json::{Map, Value};
use crate::tool::Tool;
use crate::verdict::PolicyAnswer;

/// The question to a policy. Reasoning, arrival time and payload text are not part of it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest<'a> {
    /// Who asks.
    pub principal_id: &'a PrincipalId,
    /// The call; redacted arguments as their digests.
    pub call: &'a Call,
    /// What is known beside the call.
    pub facts: &'a Facts,
}

/// Who a call is charged to.
#[derive(Clone, Copy, Debug)]
pub struct Payer<'a> {
    /// Who asks.
    pub principal_id: &'a PrincipalId,
    /// The session.
    pub session_id: SessionId,
    /// The groups that the principal is in.
    pub groups: &'a BTreeSet<String>,
}

/// A policy's answer. It is `Deny` where no rule matches, in doubt, and after an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// The call is allowed.
    Permit,
    /// A person decides.
    RequireApproval(ApprovalNeed),
    /// The call is not allowed.
    Deny,
}

/// Why a person decides, and who that may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalNeed {
    /// The reason, for the person.
    pub reason: String,
    /// What policies require of the people who decide. Empty where any one operator may.
    pub required: Vec<Required>,
}

/// A need that any one operator can meet.
impl From<&str> for ApprovalNeed {
    fn from(reason: &str) -> Self {
        Self { reason: reason.to_owned(), required: Vec::new() }
    }
}

/// A policy's decision, with the evidence for it.
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
    /// What the call takes from each budget that covers it, with its caps applied.
    pub due: Vec<Due>,
    /// The arguments that the set makes erasable.
    pub erasable: PolicyErasable,
}

/// The arguments of a tool's calls that a policy set makes erasable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyErasable {
    /// Those of these names.
    Named(BTreeSet<String>),
    /// All of them: the set makes arguments erasable, and was loaded without the tool as it is now. It denies the call.
    Every,
}

/// None.
impl Default for PolicyErasable {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

impl PolicyErasable {
    /// Whether the stored form of a call has none of these arguments but as a digest.
    pub(crate) fn are_hidden_in(&self, call: &ServerCall) -> bool {
        let is_erasable = |name: &String| match self {
            Self::Named(names) => names.contains(name),
            Self::Every => true,
        };
        call.args.keys().all(|name| !is_erasable(name) || call.tool.redacted.contains(name))
    }
}

impl PolicyAnswer {
    /// The answer of a decision.
    pub fn of(decision: &PolicyDecision) -> Self {
        match decision.verdict {
            PolicyVerdict::Permit => Self::Permit,
            PolicyVerdict::RequireApproval(_) => Self::Approval,
            PolicyVerdict::Deny => Self::Deny,
        }
    }
}

/// Decides which calls are permitted.
pub trait Policy: Send + Sync {
    /// Decides. The answer is always the same for the same request and policy set.
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision;

    /// The facts that decisions on this action may depend on, beside those that are always known.
    fn needs(&self, _action: &str) -> FactNeeds {
        FactNeeds::default()
    }

    /// The budgets that cover a call, and the keys of the accounts that it is charged to. A decision on the call is due
    /// to these budgets, unless the policy set was replaced in between.
    fn budgets(&self, _payer: Payer<'_>, _call: &Call) -> Vec<Covering> {
        Vec::new()
    }

    /// The arguments of a tool's calls that are erasable. They are replaced by digests before a call is decided on, so
    /// this cannot depend on the call.
    fn erasable(&self, _tool: &Tool) -> PolicyErasable {
        PolicyErasable::default()
    }

    /// Whether the arguments of any tool are.
    fn has_erasable(&self) -> bool {
        false
    }

    /// What a shadow set would have decided, where there is one and its decision differs. AUTHORIZE asks once for
    /// each decision, after it was taken, and only writes the answer down: no answer can change the decision.
    fn shadow(
        &self,
        _request: PolicyRequest<'_>,
        _in_force: &PolicyDecision,
    ) -> Option<PolicyDecision> {
        None
    }

    /// What could be decided on calls of this action by the principal, who is in these groups.
    fn prospect(
        &self,
        _principal_id: &PrincipalId,
        _groups: &BTreeSet<String>,
        _action: &str,
    ) -> Prospect {
        Prospect { could_permit: true, could_ask: true }
    }
}

/// What could be decided on the calls of an action by a principal. It decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prospect {
    /// Whether any call could be permitted, with a person's approval or without. An action of which none can is left out
    /// of the offered list.
    pub could_permit: bool,
    /// Whether any call could need a person's approval. Where none can, no decision under the set in force is
    /// [`PolicyVerdict::RequireApproval`].
    pub could_ask: bool,
}
