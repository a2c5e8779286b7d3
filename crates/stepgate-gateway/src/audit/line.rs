//! An event as a stream writes it: one JSON object.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stepgate_core::event::{EventType, payload};
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::ports::{PlacedEvent, Store, StoreError};
use stepgate_core::time::Timestamp;

use super::ocsf;

/// Most sessions whose principals are remembered; above that they are read again.
const SESSIONS_MAX: usize = 10_000;
/// Members of a payload that name who acted, where it is not the session's principal.
const ACTORS: [&str; 10] = [
    "approver_id",
    "accepted_by",
    "created_by",
    "revoked_by",
    "made_by",
    "lifted_by",
    "held_by",
    "removed_by",
    "resolved_by",
    "principal_id",
];

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FormatConfig")]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// As `GET /v1/events` has it.
    #[default]
    Json,
    /// In the Open Cybersecurity Schema Framework.
    Ocsf,
}

/// How serious an event is, in the words of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Warning,
    Notice,
    Info,
}

/// A written event.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its position.
    pub position: u64,
    /// The JSON object.
    pub text: String,
    pub(super) event_type: EventType,
    pub(super) ts: Timestamp,
    pub(super) level: Level,
}

/// An event, taken apart.
pub(super) struct Parts<'a> {
    pub(super) placed: &'a PlacedEvent,
    pub(super) payload: Value,
    pub(super) request: Option<payload::Request>,
    /// The principal of the event's session.
    pub(super) principal_id: &'a str,
}

impl Parts<'_> {
    /// Who acted.
    pub(super) fn actor(&self) -> &str {
        ACTORS.iter().find_map(|name| self.text(name)).unwrap_or(self.principal_id)
    }

    pub(super) fn text(&self, member: &str) -> Option<&str> {
        self.payload.get(member)?.as_str()
    }
}

/// Writes events. It remembers whose session is whose.
pub(super) struct Lines {
    format: Format,
    principals: HashMap<SessionId, PrincipalId>,
}

impl Lines {
    pub(super) fn new(format: Format) -> Self {
        Self { format, principals: HashMap::new() }
    }

    pub(super) async fn of(
        &mut self,
        store: &dyn Store,
        events: &[PlacedEvent],
    ) -> Result<Vec<Line>, StoreError> {
        let mut lines = Vec::with_capacity(events.len());
        for placed in events {
            let session_id = placed.event.session_id;
            if !self.principals.contains_key(&session_id)
                && let Some(session) = store.session(session_id).await?
            {
                if self.principals.len() >= SESSIONS_MAX {
                    self.principals.clear();
                }
                self.principals.insert(session_id, session.principal_id);
            }
            let principal = self.principals.get(&session_id);
            lines.push(line(self.format, placed, principal.map_or("", PrincipalId::as_str)));
        }
        Ok(lines)
    }
}

pub(super) fn line(format: Format, placed: &PlacedEvent, principal_id: &str) -> Line {
    let PlacedEvent { position, event } = placed;
    let (payload, request) = payload::split(&event.payload);
    let parts = Parts { placed, payload, request, principal_id };
    let object = match format {
        Format::Json => object([
            ("position", Some(json!(position))),
            ("event_id", Some(json!(event.event_id))),
            ("event_type", Some(json!(event.event_type))),
            ("ts", Some(json!(event.ts))),
            ("principal_id", Some(json!(principal_id))),
            ("session_id", Some(json!(event.session_id))),
            ("run_id", Some(json!(event.run_id))),
            ("sequence_number", Some(json!(event.sequence_number))),
            ("request", parts.request.as_ref().map(|request| json!(request))),
            ("payload", Some(parts.payload.clone())),
        ]),
        Format::Ocsf => ocsf::of(&parts),
    };
    let level = level(event.event_type);
    Line {
        position: *position,
        text: Value::Object(object).to_string(),
        event_type: event.event_type,
        ts: event.ts,
        level,
    }
}

pub(super) fn level(event_type: EventType) -> Level {
    const WARNING: [EventType; 5] = [
        EventType::PolicyViolation,
        EventType::RunNeedsPerson,
        EventType::PartNeedsPerson,
        EventType::StopMade,
        EventType::LoginRefused,
    ];
    const INFO: [EventType; 6] = [
        EventType::ToolCalled,
        EventType::ToolSucceeded,
        EventType::ToolReplayed,
        EventType::BudgetReserved,
        EventType::BudgetReleased,
        EventType::SessionOpened,
    ];
    if WARNING.contains(&event_type) {
        Level::Warning
    } else if INFO.contains(&event_type) {
        Level::Info
    } else {
        Level::Notice
    }
}

/// An object of these members, without those that have no value.
pub(super) fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    members.collect()
}
