use serde_json::{Value, json};
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::{ArtifactId, SessionId};
use stepgate_core::time::Timestamp;
use stepgate_store::MemoryStore;

use super::*;

fn event(event_type: EventType, payload: Value) -> Event {
    Event {
        event_id: ArtifactId::new(uuid::Uuid::now_v7()),
        event_type,
        payload,
        run_id: None,
        sequence_number: 0,
        session_id: SessionId::new(uuid::Uuid::now_v7()),
        ts: Timestamp::from_millisecond(1),
    }
}

async fn told(event: &Event) -> Value {
    let (store, url) = (MemoryStore::new(), Some("https://gate.example"));
    let message = Message::of_event(&store, event, url).await.unwrap();
    serde_json::to_value(message.unwrap()).unwrap()
}

#[tokio::test]
async fn a_message_has_printable_names_and_nothing_else_of_an_event() {
    let payload = json!({
        "kind": "in_doubt",
        "reason": "the tool said: sk-secret",
        "definition": { "description": "sk-secret" },
        "args": { "content": "sk-secret" },
        "tool": format!("mail.\u{202e}send\r\nBcc: x{}", "x".repeat(1000)),
    });
    let told = told(&event(EventType::ToolAccepted, payload)).await;
    let data = &told["data"];
    let tool = data["tool"].as_str().unwrap();
    assert!(tool.starts_with("mail.<U+202E>send<U+000D><U+000A>Bcc: xx"), "{tool}");
    assert_eq!(tool.chars().count(), 300);
    assert_eq!(
        (&data["reason"], &data["url"]),
        (&"in doubt".into(), &"https://gate.example/".into())
    );
    assert!(!told.to_string().contains("sk-secret"), "{told}");
}

#[tokio::test]
async fn a_part_that_needs_a_person_is_told_by_its_name_and_kind() {
    let payload = json!({ "kind": "tool_changed", "subject": "mail.send", "reason": "secret" });
    let told = told(&event(EventType::PartNeedsPerson, payload)).await;
    assert_eq!(told["data"]["title"], "Stepgate needs a person: mail.send");
    assert_eq!(told["data"]["reason"], "tool changed");
    assert!(!told.to_string().contains("secret"), "{told}");
    let payload = json!({ "kind": "policy_not_loaded", "subject": "/home/ann/gate/policies" });
    let told = self::told(&event(EventType::PartNeedsPerson, payload)).await;
    assert_eq!(told["data"]["subject"], "policies");
}

#[tokio::test]
async fn an_event_that_is_not_in_the_table_makes_no_message() {
    let unknown = event(EventType::TurnOpened, json!({}));
    assert!(Message::of_event(&MemoryStore::new(), &unknown, None).await.unwrap().is_none());
}

#[test]
fn what_needs_a_person_is_told_by_default() {
    let default = notifiable().filter(|it| it.is_default).map(|it| it.event_type.as_str());
    let default: Vec<_> = default.collect();
    let needs = EventType::ALL.map(EventType::as_str).into_iter();
    let needs = needs.filter(|name| name.ends_with("_needs_person"));
    for name in needs.chain(["approval_requested", "approval_expired"]) {
        assert!(default.contains(&name), "{name}");
    }
}
