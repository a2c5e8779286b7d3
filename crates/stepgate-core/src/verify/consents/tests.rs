use serde_json::json;

use super::has_used;
use crate::event::{Event, EventType};
use crate::ports::LinkedEvent;
use crate::time::Timestamp;

#[test]
fn a_run_has_used_a_grant_where_any_of_its_events_says_so() {
    let event = |event_type: &EventType| LinkedEvent {
        position: 1,
        event: Event {
            event_id: "01893b6e-7a00-7000-8000-000000000001".parse().unwrap(),
            event_type: *event_type,
            payload: json!({}),
            run_id: None,
            sequence_number: 0,
            session_id: "01893b6e-7a00-7000-8000-000000000002".parse().unwrap(),
            ts: Timestamp::from_millisecond(0),
        },
        link: None,
    };
    let rows: [(&[EventType], bool); 4] = [
        (&[], false),
        (&[EventType::ToolCalled, EventType::ToolSucceeded], false),
        (&[EventType::GrantUsed], true),
        (&[EventType::GrantUsed, EventType::ToolCalled], true),
    ];
    for (types, expected) in rows {
        let events: Vec<_> = types.iter().map(event).collect();
        assert_eq!(has_used(&events), expected, "{types:?}");
    }
}
