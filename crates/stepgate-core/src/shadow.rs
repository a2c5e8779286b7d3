//! Shadow policies: a candidate set that is asked beside the set in force and changes nothing. Where the two would
//! decide differently, an event of the run says so.

use crate::approvers::Required;
use crate::call::Call;
use crate::event::payload::{PolicyDiffers, SetDecision};
use crate::history::{Ruling, caps_that_lower};
use crate::ports::{ApprovalNeed, PolicyDecision, PolicyRequest, PolicyVerdict};
use crate::verdict::PolicyAnswer;

/// Whether two decisions on a call differ in what follows from them: the answer, the arguments as they are sent, or
/// the people who must approve. Policies of other names, and other reasons, make no difference.
pub fn differs(call: &Call, one: &PolicyDecision, other: &PolicyDecision) -> bool {
    Ruling::of(one, call) != Ruling::of(other, call) || required_by(one) != required_by(other)
}

fn required_by(decision: &PolicyDecision) -> &[Required] {
    need_of(decision).map_or(&[], |need| need.required.as_slice())
}

fn need_of(decision: &PolicyDecision) -> Option<&ApprovalNeed> {
    match &decision.verdict {
        PolicyVerdict::RequireApproval(need) => Some(need),
        PolicyVerdict::Permit | PolicyVerdict::Deny => None,
    }
}

/// The two decisions, as an event stores them.
pub(crate) fn difference(
    request: PolicyRequest<'_>,
    in_force: &PolicyDecision,
    shadow: &PolicyDecision,
) -> PolicyDiffers {
    let stored = |decision: &PolicyDecision| SetDecision {
        caps: caps_that_lower(decision, request.call),
        detail: decision.detail.clone(),
        policies: decision.policies.clone(),
        policy_hash: decision.policy_hash,
        reason: need_of(decision).map(|need| need.reason.clone()),
        required: required_by(decision).to_vec(),
        verdict: PolicyAnswer::of(decision),
    };
    PolicyDiffers {
        in_force: stored(in_force),
        principal_id: request.principal_id.clone(),
        shadow: stored(shadow),
        tool: request.call.name().to_owned(),
    }
}

#[cfg(test)]
mod tests;
