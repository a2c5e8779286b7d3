use super::*;

fn event(data: &str, id: Option<&str>) -> Event {
    Event { data: Some(data.to_owned()), id: id.map(str::to_owned), event_type: None }
}

/// The events of a text; the result must be the same for the whole text and for one byte at a time.
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
    let named = Event { event_type: Some("x".into()), ..event("a", None) };
    assert_eq!(events("event: x\ndata: a\n\n"), [named]);
    assert_eq!(events("data: cut"), []);
    assert_eq!(events("event: ping\n\n"), []);
    assert_eq!(events("id: 7\ndata\n\n"), [event("", Some("7"))]);
}

#[test]
fn an_event_may_be_as_long_as_the_limit_and_not_longer() {
    assert_eq!(Parser::new(8).feed(b"data:x\n\ndata:y\n\n").unwrap().len(), 2);
    assert_eq!(Parser::new(7).feed(b"data:x\n\n"), Err(Unreadable::TooLong));
    assert_eq!(Parser::new(9).feed(b"data:\xff\n\n"), Err(Unreadable::NotUtf8));
}

#[test]
fn comments_and_empty_lines_without_an_event_come_to_an_end() {
    for endless in [":\n\n", "\n", ": still here\n", "\r\n"] {
        let text = endless.repeat(100);
        assert_eq!(Parser::new(99).feed(text.as_bytes()), Err(Unreadable::TooLong), "{endless:?}");
    }
    let alive = ": still here\n\ndata:x\n\n".repeat(100);
    assert_eq!(Parser::new(99).feed(alive.as_bytes()).unwrap().len(), 100);
}

#[test]
fn events_are_found_however_their_bytes_are_cut() {
    let wire = ": hello\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\ndata: lines\n\ndata\n\nid: 7\n\ndata: [DONE]\n\n";
    let expected = ["{\"a\":1}", "two\nlines", "", "[DONE]"];
    for size in 1..wire.len() {
        let mut parser = Parser::new(100);
        let mut data = Vec::new();
        for part in wire.as_bytes().chunks(size) {
            data.extend(parser.feed(part).unwrap().into_iter().filter_map(|event| event.data));
        }
        assert_eq!(data, expected, "in parts of {size}");
    }
}

#[test]
fn a_line_without_end_and_lines_without_end_are_too_long() {
    let max = 1024 * 1024;
    assert_eq!(Parser::new(max).feed(&vec![b'x'; max + 1]), Err(Unreadable::TooLong));
    let line = format!("data: {}\n", "x".repeat(1000)).repeat(1100);
    assert_eq!(Parser::new(max).feed(line.as_bytes()), Err(Unreadable::TooLong));
}
