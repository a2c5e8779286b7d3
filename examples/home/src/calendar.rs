//! The calendar: a few entries that are always the same.

use serde_json::{Value, json};

pub(crate) const AGENDA: &str = "google.get_agenda";

pub(crate) fn tools() -> Value {
    let entry = json!({
        "type": "object",
        "properties": {
            "start": { "type": "string", "format": "date-time" },
            "end": { "type": "string", "format": "date-time" },
            "title": { "type": "string" },
        },
        "required": ["start", "end", "title"],
    });
    json!([{
        "name": AGENDA,
        "title": "Agenda",
        "description": "What the calendar has for today.",
        "inputSchema": { "type": "object", "properties": {}, "additionalProperties": false },
        "outputSchema": {
            "type": "object",
            "properties": { "entries": { "type": "array", "items": entry } },
            "required": ["entries"],
        },
        "annotations": { "readOnlyHint": true },
    }])
}

pub(crate) fn agenda() -> Value {
    let entry = |start: &str, end: &str, title: &str| {
        json!({
            "start": format!("2026-11-16T{start}:00Z"),
            "end": format!("2026-11-16T{end}:00Z"),
            "title": title,
        })
    };
    json!({ "entries": [
        entry("09:00", "09:30", "Breakfast with Ada"),
        entry("11:00", "12:00", "The piano is tuned"),
        entry("18:30", "20:00", "Quiet evening"),
    ] })
}
