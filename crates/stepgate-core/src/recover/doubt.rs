//! A call in doubt whose tool has a status tool (decision 12, `query`): a read-only tool that says whether
//! the call was done. The question is a run of its own; the event that settles the call links to it.

use super::Left;
use crate::budgets::Accounts;
use crate::call::{Call, ServerCall};
use crate::facts::Facts;
use crate::gate::{Fault, Gate};
use crate::journal::artifact::ToolClass;
use crate::journal::{StateError, replay};
use crate::json::{Map, Value, canonical};
use crate::ports::{Dossier, PolicyRequest, PolicyVerdict, StoreError};
use crate::run::{Arrival, Payload};
use crate::step::{self, Refused, Settlement, Submission};
use crate::stop::CallParties;
use crate::tool::{Delivery, Standing, ToolName};

/// Asks the status tool, where the call's tool names one, and settles the call by its answer.
pub(super) async fn ask_the_tool(gate: &Gate, dossier: &Dossier) -> Result<Left, Fault> {
    let Some(question) = question(gate, dossier)? else {
        return Ok(Left::InDoubt);
    };
    let arrival = &dossier.run.arrival;
    if gate.doubts.is_too_soon(arrival.run_id, gate.world.now()) {
        return Ok(Left::InDoubt);
    }
    if !may_be_asked(gate, arrival, &question).await? {
        return Ok(Left::InDoubt);
    }
    let proposal = canonical::text_of(&serde_json::json!({
        "action": question.tool.name,
        "args": question.args,
        "id": gate.world.fresh_uuid(),
        "reasoning": format!("whether the call of run {} was done", arrival.run_id),
        "schema_version": "1.0.0",
    }));
    let answer = step::run(
        gate,
        Submission {
            session_id: arrival.session_id,
            principal_id: arrival.principal_id.clone(),
            payload: Payload::whole(proposal.into_bytes()),
        },
    )
    .await?;
    let said = if answer.is_notice() { None } else { settlement(&answer.result()) };
    let Some(settlement) = said else {
        gate.doubts.put_off(arrival.run_id, gate.world.now());
        return Ok(Left::InDoubt);
    };
    let (run_id, events_seen) = (arrival.run_id, dossier.events.len());
    match step::resolve_as_found(gate, run_id, settlement, answer.run_id, events_seen).await {
        Ok(Some(_)) => Ok(Left::Finished),
        // The next recovery asks again.
        Ok(None) => Ok(Left::InDoubt),
        // The tool says that it was not done, and it may not be sent now.
        Err(Refused::Stopped(_)) => {
            gate.doubts.put_off(arrival.run_id, gate.world.now());
            Ok(Left::InDoubt)
        }
        Err(Refused::Fault(fault)) => Err(fault),
        // It was settled by another request in the meantime.
        Err(
            Refused::NoSuchApproval
            | Refused::AlreadyDecided
            | Refused::NotInDoubt
            | Refused::OwnRequest
            | Refused::NotAnApprover
            | Refused::MorePeople
            | Refused::LinkedApprover(_)
            | Refused::OutOfReach,
        ) => Ok(Left::Finished),
    }
}

/// Whether the question only reads, needs no person, and is not stopped: it is a call like any other. A question that
/// is denied would leave one more run at every recovery; one that a person must permit would leave one more open
/// approval.
async fn may_be_asked(
    gate: &Gate,
    arrival: &Arrival,
    question: &ServerCall,
) -> Result<bool, StoreError> {
    let Arrival { principal_id, session_id, .. } = arrival;
    let ServerCall { tool, .. } = question;
    let parties = CallParties { principal_id, session_id: *session_id, server: tool.name.server() };
    if gate.consents.stopped(parties).is_some() {
        return Ok(false);
    }
    let only_looks = tool.class() == ToolClass::Read && tool.standing == Standing::Accepted;
    let call = Call::Server(question.clone());
    let used = Accounts::read(gate, principal_id, *session_id, &call).await?.used();
    let facts = Facts { used, ..gate.facts_of(principal_id, &call) };
    let request = PolicyRequest { principal_id, call: &call.written(), facts: &facts };
    let decision = gate.policy.decide(request);
    Ok(only_looks && decision.verdict == PolicyVerdict::Permit)
}

/// The call of the status tool that the call's tool names, where there is one.
fn question(gate: &Gate, dossier: &Dossier) -> Result<Option<ServerCall>, StateError> {
    let Some(call) = replay(&dossier.entries)?.call else { return Ok(None) };
    let name = ToolName::of(&call.call.tool_server, &call.call.tool_name).ok();
    let tool = name.and_then(|name| gate.tools.tool(&name));
    let status_tool = match tool.map(|tool| tool.delivery.clone()) {
        Some(Delivery::Query(status_tool)) => gate.tools.tool(&status_tool),
        Some(Delivery::HonoursKey | Delivery::Redispatch | Delivery::Ask) | None => None,
    };
    let key = Value::from(call.idempotency_key.as_str());
    let args = Map::from_iter([("idempotency_key".to_owned(), key)]);
    Ok(status_tool.map(|tool| ServerCall { tool, args }))
}

/// The meaning of a status tool's answer: `{"status": "done", "result": …}` or `{"status": "not_done"}` in
/// its structured content. Any other answer settles nothing.
fn settlement(result: &Value) -> Option<Settlement> {
    let said = result.get("structuredContent")?;
    match said.get("status")?.as_str()? {
        "done" => Some(Settlement::Succeeded(said.get("result").map(Value::to_string))),
        "not_done" => Some(Settlement::Redispatch),
        _ => None,
    }
}
