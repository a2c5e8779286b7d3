//! An event as clients see it: one schema for each type.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use stepgate_agent::invoke::InvokeResult;
use stepgate_agent::turn::{Answered, Continued, Opened, ToolEnded, TurnEvent};
use stepgate_agent::waits::Wait;
use stepgate_core::approval::Approval;
use stepgate_core::archive::RunsArchived;
use stepgate_core::budget::Charge;
use stepgate_core::digest::Digest;
use stepgate_core::erasable::{ErasableErased, ErasableStored};
use stepgate_core::event::{Event, EventType, payload};
use stepgate_core::grant::Grant;
use stepgate_core::hold::HoldOrder;
use stepgate_core::ids::{ApprovalId, ArtifactId, PrincipalId, RunId, SessionId};
use stepgate_core::stop::StopOrder;
use stepgate_core::time::Timestamp;
use stepgate_gateway::text::capitalised;
use stepgate_gateway::tokens;

use crate::{App, Caller};

/// An event.
#[derive(Serialize)]
pub(crate) struct EventObject {
    #[serde(flatten)]
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<payload::Request>,
}

impl EventObject {
    /// The event as stored. The request of an approval says everything that a person is asked, and where. Agents
    /// do not see the address of the person who decided.
    pub(crate) fn of(
        app: &App,
        caller: &Caller,
        event: &Event,
        approval: Option<&Approval>,
    ) -> Self {
        let requested = approval.filter(|_| event.event_type == EventType::ApprovalRequested);
        let requested = requested.and_then(|approval| ApprovalRequested::of(app, event, approval));
        let (stored, request) = payload::split(&event.payload);
        let payload = requested.map_or(stored, payload::value);
        let request = request.filter(|_| caller.sees().is_none());
        Self { event: Event { payload, ..event.clone() }, request }
    }
}

/// The payload of `approval_requested`.
#[derive(Serialize, JsonSchema)]
struct ApprovalRequested {
    /// Digest of the approval's row when it was requested.
    approval_digest: Digest,
    approval_id: ApprovalId,
    /// The arguments as they would be sent.
    args: Value,
    /// Until when a person can decide.
    expires_at: Timestamp,
    /// Who asks.
    principal_id: PrincipalId,
    /// Why a person is needed.
    reason: String,
    /// The action or tool.
    tool: String,
    /// The URL of the approval's page, for the person who decides.
    url: String,
}

impl ApprovalRequested {
    /// None where the approval's stored text cannot be read: `verify` reports it.
    fn of(app: &App, event: &Event, approval: &Approval) -> Option<Self> {
        let context = approval.context.read().ok()?;
        let digest = event.payload.get("approval_digest").and_then(Value::as_str);
        Some(Self {
            approval_digest: digest?.parse().ok()?,
            approval_id: approval.approval_id,
            args: context.args.clone(),
            expires_at: context.expires_at,
            principal_id: context.principal_id.clone(),
            reason: context.reason.clone(),
            tool: context.action(),
            url: app.public_url.approval(approval.approval_id),
        })
    }
}

/// The approval whose request the event is.
pub(super) fn requested_approval(event: &Event) -> Option<ApprovalId> {
    match event.event_type == EventType::ApprovalRequested {
        true => event.payload.get("approval_id")?.as_str()?.parse().ok(),
        false => None,
    }
}

fn payload_schema(event_type: EventType, generator: &mut SchemaGenerator) -> Schema {
    match event_type {
        EventType::ToolCalled => generator.subschema_for::<payload::ToolCalled>(),
        EventType::ToolSucceeded | EventType::ToolFailed | EventType::PolicyViolation => {
            generator.subschema_for::<payload::StepEnded>()
        }
        EventType::ApprovalRequested => generator.subschema_for::<ApprovalRequested>(),
        EventType::ApprovalGranted | EventType::ApprovalDenied | EventType::ApprovalExpired => {
            generator.subschema_for::<payload::ApprovalDecided>()
        }
        EventType::ApprovalVoted => generator.subschema_for::<payload::ApprovalVoted>(),
        EventType::GrantCreated => generator.subschema_for::<Grant>(),
        EventType::GrantUsed => generator.subschema_for::<payload::GrantUsed>(),
        EventType::GrantRevoked => generator.subschema_for::<payload::GrantRevoked>(),
        EventType::BudgetReserved | EventType::BudgetReleased => {
            generator.subschema_for::<Charge>()
        }
        EventType::StopMade => generator.subschema_for::<StopOrder>(),
        EventType::StopLifted => generator.subschema_for::<payload::StopLifted>(),
        EventType::RunsArchived => generator.subschema_for::<RunsArchived>(),
        EventType::HoldMade => generator.subschema_for::<HoldOrder>(),
        EventType::HoldLifted => generator.subschema_for::<payload::HoldLifted>(),
        EventType::ErasableStored => generator.subschema_for::<ErasableStored>(),
        EventType::ErasableErased => generator.subschema_for::<ErasableErased>(),
        EventType::ToolReplayed => generator.subschema_for::<payload::ToolReplayed>(),
        EventType::ToolRedispatched => generator.subschema_for::<payload::ToolRedispatched>(),
        EventType::RunRecovered => generator.subschema_for::<payload::RunRecovered>(),
        EventType::LateResult => generator.subschema_for::<payload::LateResult>(),
        EventType::RunResolved => generator.subschema_for::<payload::RunResolved>(),
        EventType::RunNeedsPerson => generator.subschema_for::<payload::RunNeedsPerson>(),
        EventType::PartNeedsPerson => generator.subschema_for::<payload::PartNeedsPerson>(),
        EventType::SessionOpened => generator.subschema_for::<payload::SessionOpened>(),
        EventType::LabelAdded => generator.subschema_for::<payload::LabelAdded>(),
        EventType::LabelRemoved => generator.subschema_for::<payload::LabelRemoved>(),
        EventType::UserRequest => generator.subschema_for::<payload::UserRequest>(),
        EventType::ToolAccepted => generator.subschema_for::<payload::ToolAccepted>(),
        EventType::PolicyLoaded => generator.subschema_for::<payload::PolicyLoaded>(),
        EventType::PolicyDiffers => generator.subschema_for::<payload::PolicyDiffers>(),
        EventType::TokenCreated => generator.subschema_for::<tokens::Created>(),
        EventType::TokenRevoked => generator.subschema_for::<payload::TokenRevoked>(),
        EventType::LoginRefused => generator.subschema_for::<payload::LoginRefused>(),
        EventType::TurnOpened => generator.subschema_for::<TurnEvent<Opened>>(),
        EventType::TurnAnswered => generator.subschema_for::<TurnEvent<Answered>>(),
        EventType::TurnWaiting => generator.subschema_for::<Wait>(),
        EventType::TurnToolEnded => generator.subschema_for::<TurnEvent<ToolEnded>>(),
        EventType::TurnContinued => generator.subschema_for::<TurnEvent<Continued>>(),
        EventType::TurnFailed => generator.subschema_for::<TurnEvent<InvokeResult>>(),
    }
}

/// `tool_called` as `ToolCalledEvent`.
fn schema_name(event_type: EventType) -> String {
    let words = event_type.as_str().split('_').map(capitalised);
    words.chain(["Event".to_owned()]).collect()
}

impl JsonSchema for EventObject {
    fn schema_name() -> Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (mut choices, mut mapping) = (Vec::new(), Map::new());
        for event_type in EventType::ALL {
            let payload = payload_schema(event_type, generator);
            let name = schema_name(event_type);
            let reference = format!("#/components/schemas/{name}");
            let schema = of_type(event_type, &payload, generator);
            generator.definitions_mut().insert(name, schema);
            choices.push(json!({ "$ref": reference }));
            mapping.insert(event_type.as_str().to_owned(), json!(reference));
        }
        json_schema!({
            "description": "An event. `event_type` says which.",
            "oneOf": choices,
            "discriminator": { "propertyName": "event_type", "mapping": mapping },
        })
    }
}

/// The schema of an event of this type.
fn of_type(event_type: EventType, details: &Schema, generator: &mut SchemaGenerator) -> Value {
    json!({
        "type": "object",
        "properties": {
            "event_id": generator.subschema_for::<ArtifactId>(),
            "event_type": { "type": "string", "const": event_type.as_str() },
            "payload": details,
            "request": generator.subschema_for::<payload::Request>(),
            "run_id": generator.subschema_for::<Option<RunId>>(),
            "sequence_number": generator.subschema_for::<u64>(),
            "session_id": generator.subschema_for::<SessionId>(),
            "ts": generator.subschema_for::<Timestamp>(),
        },
        "required": [
            "event_id", "event_type", "payload", "run_id", "sequence_number", "session_id", "ts",
        ],
    })
}
