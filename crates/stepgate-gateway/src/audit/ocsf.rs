//! Events in the classes of the Open Cybersecurity Schema Framework, version 1.5.0.
//!
//! What an agent does is API Activity (6003). What operators make and end is Entity Management (3004). Requests
//! without a valid token are Authentication (3002). The event itself, as Stepgate has it, is in `unmapped`.

use std::net::IpAddr;

use serde_json::{Map, Value, json};
use stepgate_core::event::EventType;

use super::line::{Level, Parts, level, object};

/// The version of the schema.
const VERSION: &str = "1.5.0";

/// Classes.
const API_ACTIVITY: u64 = 6003;
const ENTITY_MANAGEMENT: u64 = 3004;
const AUTHENTICATION: u64 = 3002;

/// Activities of these classes.
const CREATE: u64 = 1;
const LOGON: u64 = 1;
const UPDATE: u64 = 3;
const DELETE: u64 = 4;
const OTHER: u64 = 99;

/// What an event is in the schema.
struct Kind {
    class: u64,
    activity: u64,
    /// The type of the managed entity, for Entity Management.
    entity: &'static str,
}

pub(super) fn of(parts: &Parts<'_>) -> Map<String, Value> {
    let event = &parts.placed.event;
    let Kind { class, activity, entity } = kind(event.event_type);
    let severity = match level(event.event_type) {
        Level::Warning => (3, "Medium"),
        Level::Notice => (2, "Low"),
        Level::Info => (1, "Informational"),
    };
    let address = parts.request.as_ref().map(|request| request.address.as_str());
    let address = address.or_else(|| parts.text("address"));
    let source = match address {
        Some(address) if address.parse::<IpAddr>().is_ok() => json!({ "ip": address }),
        // A site of IPv6 addresses, which is no address.
        Some(network) => json!({ "name": network }),
        // The class wants a source: a call on this machine has no address.
        None => json!({ "name": "localhost" }),
    };
    let actor =
        json!({ "user": { "name": parts.actor() }, "session": { "uid": event.session_id } });
    let is_class = |it: u64, value: Value| (class == it).then_some(value);
    let status = status(event.event_type);
    object([
        ("activity_id", Some(activity.into())),
        ("actor", (class != AUTHENTICATION).then_some(actor)),
        ("api", is_class(API_ACTIVITY, api(parts))),
        ("category_uid", Some((class / 1000).into())),
        ("class_uid", Some(class.into())),
        ("count", parts.payload.get("count").filter(|count| count.is_u64()).cloned()),
        ("entity", is_class(ENTITY_MANAGEMENT, managed(parts, entity))),
        ("message", Some(event.event_type.as_str().into())),
        ("metadata", Some(metadata(parts))),
        // What was logged in to.
        ("service", is_class(AUTHENTICATION, service())),
        ("severity", Some(severity.1.into())),
        ("severity_id", Some(severity.0.into())),
        ("src_endpoint", Some(source)),
        ("status", status.map(|(_, name)| name.into())),
        ("status_code", parts.text("error_code").map(Value::from)),
        ("status_id", status.map(|(id, _)| id.into())),
        ("time", Some(event.ts.as_millisecond().into())),
        ("type_uid", Some((class * 100 + activity).into())),
        ("unmapped", Some(json!({ "event_type": event.event_type, "payload": parts.payload }))),
        // Who it was is not known: the token was none.
        ("user", is_class(AUTHENTICATION, json!({ "name": "unknown" }))),
    ])
}

fn metadata(parts: &Parts<'_>) -> Value {
    let event = &parts.placed.event;
    Value::Object(object([
        ("correlation_uid", event.run_id.map(|run_id| run_id.to_string().into())),
        ("event_code", Some(event.event_type.as_str().into())),
        ("original_time", Some(json!(event.ts))),
        (
            "product",
            Some(json!({
                "name": "Stepgate", "vendor_name": "Stepgate", "version": env!("CARGO_PKG_VERSION"),
            })),
        ),
        ("sequence", Some(parts.placed.position.into())),
        ("uid", Some(event.event_id.to_string().into())),
        ("version", Some(VERSION.into())),
    ]))
}

fn api(parts: &Parts<'_>) -> Value {
    let operation = parts.text("tool").unwrap_or(parts.placed.event.event_type.as_str());
    let request = parts.request.as_ref().map(|request| json!({ "uid": request.id }));
    Value::Object(object([
        ("operation", Some(operation.into())),
        ("request", request),
        ("service", Some(service())),
    ]))
}

fn service() -> Value {
    json!({ "name": "stepgate" })
}

fn managed(parts: &Parts<'_>, entity: &str) -> Value {
    let event = &parts.placed.event;
    let names = [
        "token_id",
        "grant_id",
        "stop_id",
        "hold_id",
        "archive_id",
        "session_id",
        "subject",
        "tool",
        "policy_hash",
    ];
    let named = names.iter().find_map(|name| parts.text(name)).map(str::to_owned);
    // What an event creates has the event's id.
    let uid = named.unwrap_or_else(|| event.event_id.to_string());
    json!({ "type": entity, "uid": uid })
}

fn kind(event_type: EventType) -> Kind {
    let managed = |activity, entity| Kind { class: ENTITY_MANAGEMENT, activity, entity };
    match event_type {
        EventType::TokenCreated => managed(CREATE, "token"),
        EventType::TokenRevoked => managed(DELETE, "token"),
        EventType::GrantCreated => managed(CREATE, "grant"),
        EventType::GrantRevoked => managed(DELETE, "grant"),
        EventType::StopMade => managed(CREATE, "stop"),
        EventType::StopLifted => managed(DELETE, "stop"),
        EventType::HoldMade => managed(CREATE, "hold"),
        EventType::HoldLifted => managed(DELETE, "hold"),
        EventType::RunsArchived => managed(CREATE, "archive"),
        EventType::ErasableErased => managed(DELETE, "arguments"),
        EventType::SessionOpened => managed(CREATE, "session"),
        EventType::ToolAccepted => managed(UPDATE, "tool"),
        EventType::PolicyLoaded => managed(UPDATE, "policy"),
        EventType::PartNeedsPerson => managed(OTHER, "part"),
        EventType::LoginRefused => Kind { class: AUTHENTICATION, activity: LOGON, entity: "" },
        EventType::ToolCalled
        | EventType::ToolSucceeded
        | EventType::ToolFailed
        | EventType::PolicyViolation
        | EventType::ApprovalRequested
        | EventType::ApprovalGranted
        | EventType::ApprovalDenied
        | EventType::ApprovalExpired
        | EventType::ApprovalVoted
        | EventType::GrantUsed
        | EventType::BudgetReserved
        | EventType::BudgetReleased
        | EventType::ToolReplayed
        | EventType::ToolRedispatched
        | EventType::RunRecovered
        | EventType::LateResult
        | EventType::RunResolved
        | EventType::RunNeedsPerson
        | EventType::LabelAdded
        | EventType::LabelRemoved
        | EventType::UserRequest
        | EventType::ErasableStored
        | EventType::PolicyDiffers
        | EventType::TurnOpened
        | EventType::TurnAnswered
        | EventType::TurnWaiting
        | EventType::TurnToolEnded
        | EventType::TurnContinued
        | EventType::TurnFailed => Kind { class: API_ACTIVITY, activity: OTHER, entity: "" },
    }
}

/// Success or failure, where the event says so.
fn status(event_type: EventType) -> Option<(u64, &'static str)> {
    const SUCCESS: [EventType; 3] =
        [EventType::ToolSucceeded, EventType::ApprovalGranted, EventType::TurnAnswered];
    const FAILURE: [EventType; 6] = [
        EventType::ToolFailed,
        EventType::PolicyViolation,
        EventType::ApprovalDenied,
        EventType::ApprovalExpired,
        EventType::TurnFailed,
        EventType::LoginRefused,
    ];
    if SUCCESS.contains(&event_type) {
        Some((1, "Success"))
    } else if FAILURE.contains(&event_type) {
        Some((2, "Failure"))
    } else {
        None
    }
}
