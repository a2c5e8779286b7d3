//! A call that an operator approved in advance.

use super::super::Stop;
use super::super::p5_validate_args::ValidatedArgs;
use super::super::p8_record::Trail;
use super::{AuthorizedRequest, Ground, Judged, Question, append_decision, authorized, make_ready};
use crate::consent_cache::{AskedCall, GrantUse};
use crate::event::EventType;
use crate::event::payload::GrantUsed;
use crate::gate::Gate;
use crate::ids::RunId;
use crate::journal::artifact::{DecisionMeta, Verdict};
use crate::ports::StoreError;
use crate::run::Status;

/// Authorizes a call under a grant, or returns it where no grant covers it: then a person is
/// asked.
///
/// Decision and use become durable together, before the call: a use that another step has taken meanwhile
/// refuses the commit, and the next one is tried.
pub(super) async fn authorize(
    gate: &Gate,
    trail: &mut Trail,
    question: &Question,
    judged: Judged,
) -> Result<Result<AuthorizedRequest, Judged>, Stop> {
    let args = &judged.args;
    let (principal_id, executor_id) = (trail.principal_id().clone(), gate.executor_of(&args.call));
    let call = args.bound(&principal_id, executor_id.as_deref());
    let asked = AskedCall { call, required: &question.required, groups: &gate.groups };
    if take_use(gate, &asked).await?.is_none() {
        return Ok(Err(judged));
    }
    // A server's permit may take long: whether the grant is still good is asked afterwards.
    let Ok(ready) = make_ready(gate, &args.call).await else { return Ok(Err(judged)) };
    while let Some(taken) = take_use(gate, &asked).await? {
        let before = trail.uncommitted();
        let ground = ground_of(&question.ground, &taken);
        let decision = append_decision(gate, trail, Verdict::Approve, ground)?;
        if decision.ts >= taken.expires_at {
            trail.take_back(before);
            continue;
        }
        let payload = GrantUsed { grant_id: taken.grant_id, grant_use: taken.number };
        trail.note_as(gate, taken.event_id(), EventType::GrantUsed, payload);
        match trail.commit_as(gate, Status::Started).await {
            Ok(()) => return Ok(Ok(authorized(trail, judged, ready, decision))),
            Err(Stop::Fault(_)) if is_taken(gate, trail.run_id(), &taken).await? => {
                trail.take_back(before)
            }
            Err(stop) => return Err(stop),
        }
    }
    Ok(Err(judged))
}

/// Whether the grant that a run has used before a crash still covers its call: the use is recorded, and the
/// call is not sent yet.
pub(super) async fn still_covers(
    gate: &Gate,
    trail: &mut Trail,
    question: &Question,
    args: &ValidatedArgs,
) -> Result<bool, StoreError> {
    let Some(grant_id) = trail.grant_id() else { return Ok(false) };
    let (principal_id, executor_id) = (trail.principal_id().clone(), gate.executor_of(&args.call));
    let call = args.bound(&principal_id, executor_id.as_deref());
    let asked = AskedCall { call, required: &question.required, groups: &gate.groups };
    gate.consents.read_on(&*gate.store).await?;
    Ok(gate.consents.covers(grant_id, &asked, gate.world.now()))
}

async fn take_use(gate: &Gate, asked: &AskedCall<'_>) -> Result<Option<GrantUse>, StoreError> {
    gate.consents.take_use(&*gate.store, asked, gate.world.now()).await
}

fn ground_of(asked: &Ground, taken: &GrantUse) -> Ground {
    let meta = DecisionMeta {
        grant_id: Some(taken.grant_id),
        grant_use: Some(taken.number),
        ..asked.meta.clone()
    };
    let rationale =
        format!("approved in advance by grant {}, use {}", taken.grant_id, taken.number);
    Ground { rationale, meta, policy_hash: asked.policy_hash }
}

/// Whether another run has this use.
async fn is_taken(gate: &Gate, run_id: RunId, taken: &GrantUse) -> Result<bool, StoreError> {
    let event = gate.store.event(taken.event_id()).await?;
    Ok(event.is_some_and(|event| event.run_id != Some(run_id)))
}
