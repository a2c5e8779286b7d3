use super::*;

const ROWS: usize = 12;
const COLUMNS: usize = 80;

fn id(number: u32) -> ApprovalId {
    format!("0198b2c4-7a51-7cc0-9f2e-{number:012}").parse().unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000)
}

fn snapshot(numbers: &[u32]) -> Snapshot {
    let waiting = |number: &u32| Waiting {
        id: id(*number),
        reason: format!("`agent` asks for `act`: number {number}\u{1b}[2J"),
        since: Timestamp::from_millisecond(1_700_000_000_000 - 180_000),
    };
    let counts = [("approval".to_owned(), 2), ("tool_changed".to_owned(), 1)].into();
    Snapshot {
        waiting: numbers.iter().map(waiting).collect(),
        counts,
        running: 3,
        steps_per_second: 1.25,
        stops: 0,
        started_s: Some(1_700_000_000 - 7200),
    }
}

fn view(numbers: &[u32]) -> View {
    let mut view = View::new("/srv/gate".to_owned());
    view.update(snapshot(numbers));
    view
}

fn drawn(view: &mut View) -> String {
    let lines = view.lines(now(), COLUMNS, ROWS);
    assert_eq!(lines.len(), ROWS);
    let text = anstream::adapter::strip_str(&lines.join("\n")).to_string();
    let width = |line: &str| unicode_width::UnicodeWidthStr::width(line);
    assert!(text.lines().all(|line| width(line) <= COLUMNS), "{text}");
    text
}

#[test]
fn the_list_shows_what_waits_oldest_first_and_what_else_needs_a_person() {
    let text = drawn(&mut view(&[1, 2]));
    let lines: Vec<&str> = text.lines().collect();
    let head = "/srv/gate  up 2 h  1.2 steps/s, 3 under way  2 waiting, oldest 3 min";
    assert_eq!(lines[0], head);
    assert_eq!(lines[1], "`stepgate attention` has more: 1 tool_changed");
    assert!(lines[4].starts_with(&format!("> {}   3 min  `agent` asks", id(1))), "{text}");
    assert!(lines[5].starts_with(&format!("  {} ", id(2))), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(drawn(&mut view(&[])).contains("nothing waits"));
    let mut stopped = view(&[1]);
    stopped.update(Snapshot { stops: 2, counts: Default::default(), ..snapshot(&[1]) });
    assert!(drawn(&mut stopped).contains("\n2 stop(s) in force: `stepgate stops` lists them\n"));
}

#[test]
fn the_selection_stays_on_its_approval_while_that_waits() {
    let mut view = view(&[1, 2, 3]);
    view.key(Key::Char('j'), ROWS);
    assert_eq!(view.selected, Some(id(2)));
    view.update(snapshot(&[2, 3, 4]));
    assert_eq!(view.key(Key::Enter, ROWS), Act::Open(id(2), None));
    view.update(snapshot(&[3, 4]));
    assert_eq!(view.selected, Some(id(3)));
    view.key(Key::End, ROWS);
    view.key(Key::Down, ROWS);
    assert_eq!(view.key(Key::Char('a'), ROWS), Act::Open(id(4), Some(Decision::Approve)));
    view.update(snapshot(&[]));
    assert_eq!(view.key(Key::Char('a'), ROWS), Act::Nothing);
    assert_eq!(view.key(Key::Char('q'), ROWS), Act::Leave);
}

#[test]
fn a_decision_is_on_what_was_opened_whatever_the_list_has_by_then() {
    let mut view = view(&[1, 2]);
    view.open(id(1), "everything".to_owned(), Some(Decision::Deny));
    assert!(drawn(&mut view).contains(&format!("deny it? y/n, t writes a note  {}", id(1))));
    view.update(snapshot(&[2, 3]));
    view.key(Key::Char('t'), ROWS);
    for c in "my note".chars() {
        view.key(Key::Char(c), ROWS);
    }
    assert!(drawn(&mut view).contains("note: my note_"));
    view.key(Key::Enter, ROWS);
    let note = "my note".to_owned();
    let decided = Act::Decide { id: id(1), decision: Decision::Deny, note };
    assert_eq!(view.key(Key::Char('y'), ROWS), decided);
}

#[test]
fn yes_counts_only_once_the_end_of_the_text_was_on_the_screen() {
    let long: String = (0..40).map(|line| format!("line {line}\n")).collect();
    let mut view = view(&[1]);
    view.open(id(1), long, Some(Decision::Approve));
    // Before anything is drawn, and on the first page.
    assert_eq!(view.key(Key::Char('y'), ROWS), Act::Nothing);
    assert!(drawn(&mut view).contains("page down to its end first"));
    assert_eq!(view.key(Key::Char('y'), ROWS), Act::Nothing);
    for _ in 0..10 {
        view.key(Key::PageDown, ROWS);
        drawn(&mut view);
    }
    assert!(drawn(&mut view).contains("line 39"));
    assert!(matches!(view.key(Key::Char('y'), ROWS), Act::Decide { .. }));
    assert_eq!(view.key(Key::Char('n'), ROWS), Act::Nothing);
    assert!(drawn(&mut view).contains("1 min") || drawn(&mut view).contains("3 min"));
}

#[test]
fn trouble_is_shown_until_the_gateway_answers_again() {
    let mut view = view(&[1]);
    view.said = "approved: x".to_owned();
    view.trouble = Some("cannot read what waits now: \u{1b}".to_owned());
    assert!(drawn(&mut view).contains("cannot read what waits now: <U+001B>"));
    view.update(snapshot(&[1]));
    assert!(drawn(&mut view).contains("approved: x"));
}

#[test]
fn a_long_line_is_wrapped_and_nothing_of_it_is_left_out() {
    let line = format!("{}漢字{}", "x".repeat(99), "y".repeat(50));
    let pieces = wrapped(&line, 10);
    let (first, rest) = pieces.split_first().unwrap();
    // Every further piece says that it is one, so that no text looks like a line of its own.
    let rest = rest.iter().map(|piece| piece.strip_prefix(CONTINUED).unwrap());
    assert_eq!(format!("{first}{}", rest.collect::<String>()), line);
    let width = |piece: &String| unicode_width::UnicodeWidthStr::width(piece.as_str());
    assert!(pieces.iter().all(|piece| width(piece) <= 10));
}

#[test]
fn the_smallest_screen_is_drawn_and_decides_nothing() {
    let mut view = view(&[1]);
    view.open(id(1), "text".to_owned(), Some(Decision::Approve));
    for (columns, rows) in [(1, 1), (3, 2), (80, 5)] {
        assert!(view.lines(now(), columns, rows).len() <= rows);
        assert_eq!(view.key(Key::Char('y'), rows), Act::Nothing, "no row shows the text");
    }
}
