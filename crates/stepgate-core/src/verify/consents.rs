//! A decision of people against what the system session records: the grant that it used, and the votes that
//! it names.

use std::collections::BTreeSet;

use crate::consent_cache::{Recorded, RecordedGrant};
use crate::event::EventType;
use crate::grant::BoundCall;
use crate::ids::PrincipalId;
use crate::journal::artifact::{
    ActionRequest, DecisionMeta, EffectStatus, SupervisorDecision, ToolCall,
};
use crate::journal::{Replayed, replay};
use crate::limits::Limits;
use crate::ports::{Dossier, LinkedEvent};

use super::{Problem, place_of};

/// What does not follow from the grants and votes. A journal that does not replay is reported elsewhere.
pub(super) fn check(dossier: &Dossier, recorded: &Recorded) -> Vec<Problem> {
    // Almost every run: its journal is not replayed a second time.
    if dossier.approval.is_none() && !has_used(&dossier.events) {
        return Vec::new();
    }
    let Ok(Replayed { request: Some(request), decision: Some(decision), call, effect, .. }) =
        replay(&dossier.entries)
    else {
        return Vec::new();
    };
    // A call that recovery refused was not sent: nothing had to cover it.
    let is_refused = effect.is_some_and(|effect| effect.outcome.status == EffectStatus::Denied);
    let call = call.filter(|_| !is_refused);
    let place = place_of("journal", dossier.run.arrival.run_id);
    let mut problems = Vec::new();
    if !has_its_votes(&decision.meta, recorded) {
        problems.push(Problem::new(place.clone(), "an approver has no vote"));
    }
    if !is_granted(&request, &decision, call.as_ref(), recorded) {
        problems.push(Problem::new(place, "no grant permits the call"));
    }
    problems
}

fn has_used(events: &[LinkedEvent]) -> bool {
    events.iter().any(|linked| linked.event.event_type == EventType::GrantUsed)
}

/// Whether everyone who approved together with others has voted.
fn has_its_votes(meta: &DecisionMeta, recorded: &Recorded) -> bool {
    let none = BTreeSet::new();
    let votes: &BTreeSet<PrincipalId> =
        meta.approval_id.and_then(|approval_id| recorded.votes.get(&approval_id)).unwrap_or(&none);
    let is_last = |person: &PrincipalId| meta.approver_id.as_ref() == Some(person);
    meta.approver_ids.iter().all(|person| is_last(person) || votes.contains(person))
}

/// Whether the grant that a decision names covers its call, has such a use, and had not expired. Whether it was revoked
/// before is not checked: the order of two sessions' chains is not recorded.
fn is_granted(
    request: &ActionRequest,
    decision: &SupervisorDecision,
    call: Option<&ToolCall>,
    recorded: &Recorded,
) -> bool {
    let Some(grant_id) = decision.meta.grant_id else { return true };
    let Some(RecordedGrant { grant, .. }) = recorded.grants.get(&grant_id) else { return false };
    let is_one = |number: u64| (1..=grant.uses_max.min(Limits::GRANT_USES_MAX)).contains(&number);
    // A step that has not got to its call yet is checked when it has.
    let principal_id = &request.meta.principal_id;
    let covers = call.is_none_or(|call| grant.covers(BoundCall::sent(principal_id, call)));
    decision.meta.grant_use.is_some_and(is_one) && decision.ts() < grant.expires_at && covers
}

#[cfg(test)]
mod tests;
