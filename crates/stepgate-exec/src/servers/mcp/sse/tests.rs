use super::*;

fn event(data: &str, id: Option<&str>) -> Event {
    Event { data: Some(data.to_owned()), id: id.map(str::to_owned) }
}

/// The events of a text, the same whether it comes at once or byte by byte.
fn events(text: &str) -> Vec<Event> {
    let whole = Parser::new(100).feed(text.as_bytes()).unwrap();
    let mut parser = Parser::new(100);
    let pieces: Vec<_> = text.bytes().flat_map(|byte| parser.feed(&[byte]).unwrap()).collect();
    assert_eq!(whole, pieces);
    whole
}

#[test]
fn events_end_at_an_empty_line_whatever_a_line_ends_with() {
    let two = [event("a", Some("1")), event("b\nc", None)];
    for end in ["\n", "\r\n", "\r"] {
        let text = format!("id: 1{end}data: a{end}{end}: comment{end}data:b{end}data: c{end}{end}");
        assert_eq!(events(&text), two, "{end:?}");
    }
    assert_eq!(events("data: cut"), []);
    assert_eq!(events("event: ping\n\n"), []);
    assert_eq!(events("id: 7\ndata\n\n"), [event("", Some("7"))]);
}

#[test]
fn an_event_may_be_as_long_as_the_limit_and_not_longer() {
    assert_eq!(Parser::new(8).feed(b"data:x\n\ndata:y\n\n").unwrap().len(), 2);
    assert_eq!(Parser::new(7).feed(b"data:x\n\n"), Err(Unreadable));
    assert_eq!(Parser::new(9).feed(b"data:\xff\n\n"), Err(Unreadable));
}

#[test]
fn comments_and_empty_lines_without_an_event_come_to_an_end() {
    for endless in [":\n\n", "\n", ": still here\n", "\r\n"] {
        let text = endless.repeat(100);
        assert_eq!(Parser::new(99).feed(text.as_bytes()), Err(Unreadable), "{endless:?}");
    }
    let alive = ": still here\n\ndata:x\n\n".repeat(100);
    assert_eq!(Parser::new(99).feed(alive.as_bytes()).unwrap().len(), 100);
}
