use super::{Parser, Received, received};

#[test]
fn an_event_is_read_and_a_heartbeat_is_none() {
    let event = Received { id: "7".into(), event_type: "a".into(), data: "{}".into() };
    let events = Parser::new(100).feed(b"id: 7\nevent: a\ndata: {}\n\n:\n\n").unwrap();
    let events: Vec<_> = events.into_iter().filter_map(received).collect();
    assert_eq!(events, [event]);
}
