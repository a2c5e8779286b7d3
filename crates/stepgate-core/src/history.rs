//! Past decisions of a policy, so that another policy can be asked the same questions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::action::Action;
use crate::call::{Call, ServerCall, exceeds};
use crate::erasable::ErasableStored;
use crate::event::{EventType, payload};
use crate::facts::Facts;
use crate::ids::{PrincipalId, RunId};
use crate::journal::artifact::{DecisionMeta, Invocation, Verdict};
use crate::journal::{Replayed, StateError, replay};
use crate::json::Value;
use crate::origin;
use crate::ports::{Dossier, PolicyDecision, PolicyVerdict};
use crate::result_pointer::unescaped;
use crate::tool::{Tool, ToolName};

/// A past decision of a policy, with the call that it was about.
#[derive(Clone, Debug)]
pub struct PastDecision {
    /// The run.
    pub run_id: RunId,
    /// Who asked.
    pub principal_id: PrincipalId,
    /// The call. Redacted arguments are their digests. Defaults that policy saw then are included as if they
    /// had been given: the tool may declare other defaults today.
    pub call: Call,
    /// What policy knew beside the call.
    pub facts: Facts,
    /// What was decided.
    pub ruling: Ruling,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// The caps that the call's contract did not allow, where it was denied for that reason.
    pub refused_caps: Option<BTreeMap<String, i64>>,
}

impl PastDecision {
    /// The ruling that another policy's answer would lead to. The call's contract is not known here, but the
    /// caps that it did not allow are: with the same caps the call would be denied again.
    pub fn would_be(&self, decision: &PolicyDecision) -> Ruling {
        match self.refused_caps.as_ref() == Some(&decision.caps) {
            true => Ruling::Deny,
            false => Ruling::of(decision, &self.call),
        }
    }
}

/// A decision without its reasons, so that two can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Permitted, with the caps that lower an argument.
    Permit(BTreeMap<String, i64>),
    /// A person decides, with these caps.
    RequireApproval(BTreeMap<String, i64>),
    /// Denied.
    Deny,
}

impl Ruling {
    /// The ruling of a policy's answer for this call. A cap that lowers no argument is left out.
    pub fn of(decision: &PolicyDecision, call: &Call) -> Self {
        let caps = caps_that_lower(decision, call);
        match &decision.verdict {
            PolicyVerdict::Permit => Self::Permit(caps),
            PolicyVerdict::RequireApproval(_) => Self::RequireApproval(caps),
            PolicyVerdict::Deny => Self::Deny,
        }
    }
}

/// The caps of a decision that lower an argument of this call.
pub(crate) fn caps_that_lower(decision: &PolicyDecision, call: &Call) -> BTreeMap<String, i64> {
    let Call::Server(call) = call else { return BTreeMap::new() };
    let caps = decision.caps.iter().filter(|(name, max)| {
        let number = call.args.get(*name).and_then(Value::as_number);
        number.is_some_and(|number| exceeds(number, **max))
    });
    caps.map(|(name, max)| (name.clone(), *max)).collect()
}

/// What policy decided on this run, about a tool as it is known now. None where the run has no call, or where policy
/// was not asked because the call's name or the sandbox decided.
pub fn past_decision(
    tool: impl Fn(&ToolName) -> Option<Arc<Tool>>,
    dossier: &Dossier,
) -> Result<Option<PastDecision>, StateError> {
    let Replayed { request: Some(request), decision: decided, .. } = replay(&dossier.entries)?
    else {
        return Ok(None);
    };
    let mut refused_caps = None;
    let (ruling, meta) = match (&dossier.approval, &decided) {
        // Policy asked for a person, and its reasons are in the approval, whatever the decision or the
        // expiry made of it.
        (Some(approval), _) => {
            let asked = &approval.context.read()?.needs_approval.meta;
            (Ruling::RequireApproval(asked.caps()), asked.clone())
        }
        (None, Some(decision)) if decision.policy_hash.is_some() => {
            let ruling = match decision.decision {
                // Policy asked for a person, and a grant answered.
                Verdict::Approve if decision.meta.grant_id.is_some() => {
                    Ruling::RequireApproval(decision.meta.caps())
                }
                Verdict::Approve => Ruling::Permit(decision.meta.caps()),
                Verdict::Deny => {
                    refused_caps = decision.meta.cap.as_ref().map(|_| decision.meta.caps());
                    Ruling::Deny
                }
                Verdict::NeedsApproval => Ruling::RequireApproval(BTreeMap::new()),
            };
            (ruling, decision.meta.clone())
        }
        (None, Some(_) | None) => return Ok(None),
    };
    let DecisionMeta { policies, defaults, facts, .. } = meta;
    let call = call_of(tool, &request.proposal, defaults.as_ref(), &erasable_of(dossier))
        .ok_or_else(|| StateError::checksum("the journal's request is no call"))?;
    let (run_id, principal_id) = (dossier.run.arrival.run_id, request.agent_id);
    let facts = facts.map(|facts| *facts).unwrap_or_default();
    // It follows from the run, also where policies did not ask for it then.
    let steps = dossier.run.arrival.step_index.saturating_sub(1);
    let mut facts = Facts { steps: Some(steps), ..facts };
    if let (Call::Server(call), Some(Value::Object(defaults))) = (&call, &defaults)
        && call.has_default_target(defaults)
    {
        // Policies saw that as the agent's.
        facts.targets = origin::agents();
    }
    Ok(Some(PastDecision { run_id, principal_id, call, facts, ruling, policies, refused_caps }))
}

/// The arguments that were erasable when the proposal came.
fn erasable_of(dossier: &Dossier) -> BTreeSet<String> {
    let events = dossier.events.iter().map(|linked| &linked.event);
    let mut stored = events.filter(|event| event.event_type == EventType::ErasableStored);
    let stored = stored.find_map(|event| payload::read::<ErasableStored>(&event.payload).ok());
    stored.map(|stored| stored.arguments).unwrap_or_default()
}

/// The call in a journal, in its stored form.
fn call_of(
    tool: impl Fn(&ToolName) -> Option<Arc<Tool>>,
    invocation: &Invocation,
    defaults: Option<&Value>,
    erasable: &BTreeSet<String>,
) -> Option<Call> {
    let mut args = invocation.args.clone();
    for (place, default) in defaults.and_then(Value::as_object).into_iter().flatten() {
        fill(&mut args, place, default);
    }
    let Value::Object(args) = &args else { return None };
    let name = invocation.action();
    match Action::parse(&name) {
        Some(action) => action.call(args).ok().map(Call::Core),
        None => {
            let name = ToolName::parse(&name).ok()?;
            let tool = tool(&name).unwrap_or_else(|| Arc::new(Tool::gone(name)));
            let tool = Arc::new(tool.redacting(erasable));
            Some(Call::Server(ServerCall { tool, args: args.clone() }))
        }
    }
}

/// Inserts a default where the argument is missing. Enclosing objects come first in a journal, because its
/// members are sorted.
fn fill(args: &mut Value, place: &str, default: &Value) {
    let Some((around, name)) = place.rsplit_once('/') else { return };
    if let Some(Value::Object(members)) = args.pointer_mut(around) {
        members.entry(unescaped(name)).or_insert_with(|| default.clone());
    }
}

#[cfg(test)]
mod tests;
