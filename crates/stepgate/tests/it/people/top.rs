use serde_json::{Value, json};

use super::{ask, place, waiting};
use crate::binary::{Place, finish};
use crate::http_client::{Gateway, proposal};
use crate::mcp_scene::place_with;
use crate::scene::until;
use crate::screen::Screen;

/// Shows the cursor and leaves the alternate screen.
const LEFT: &str = "\x1b[?25h\x1b[?1049l";

fn top(place: &Place) -> Screen {
    Screen::of(&place.bare_command(["top"]), 24, 120)
}

fn status(place: &Place, approval: &str) -> Value {
    let listed = place.stepgate(["approvals", "--status", "all", "--json"], "").stdout;
    let rows = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.into_iter().find(|row| row["approval_id"] == approval).unwrap()
}

#[test]
fn what_waits_is_shown_as_it_comes_and_a_key_approves_it_and_its_run_ends() {
    let place = place_with(
        "",
        r#"@id("ask") @approval("it changes something") permit (principal, action, resource);"#,
    );
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let mut screen = top(&place);
    screen.until("\x1b[?1049h");
    screen.until("nothing waits for a person");
    let hostile = json!({ "path": "/sandbox/a.txt", "content": "\u{1b}[2J\u{202e}b" });
    assert_eq!(gateway.propose(&proposal("WRITE_FILE", hostile)).status, 202);
    let (second, run) = ask(&place, "second");
    screen.until(&second);
    screen.until("2 waiting");
    screen.press("j");
    screen.until(&format!("> {second}"));
    screen.press("a");
    screen.until("/sandbox/second");
    screen.until(&format!("approve it? y/n, t writes a note  {second}"));
    screen.press("t");
    screen.until("note: _");
    screen.press("looked at it\r");
    screen.until("with the note `looked at it`? y/n");
    screen.press("y");
    screen.until(&format!("approved: {second}"));
    until("the run is over", || {
        place.stepgate(["runs", "show", &run], "").stdout.contains("approved → ok")
    });
    assert!(place.path().join("sandbox/second").is_dir());
    let decided = status(&place, &second);
    assert_eq!(decided["resolution"]["note"], "looked at it");
    assert_eq!(decided["resolution"]["approver_id"], "operator-at-terminal");
    screen.until("1 waiting");
    screen.press("\r");
    let shown = screen.until("[2J<U+202E>b");
    assert!(!shown.contains('\u{202e}'), "what cannot be seen stands there by its number");
    screen.press("\x1b");
    screen.until("a approve  d deny  enter everything");
    screen.press("q");
    let left = screen.end();
    assert_eq!((left.code, left.restored), (0, true), "{left:?}");
    assert!(left.shown.contains(LEFT), "{left:?}");
}

#[test]
fn a_decision_needs_its_own_yes_after_the_question_was_drawn() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let (id, _) = ask(&place, "a");
    let mut screen = top(&place);
    screen.until(&format!("> {id}"));
    // Typed ahead, as by a paste.
    screen.press("ay");
    screen.until(&format!("approve it? y/n, t writes a note  {id}"));
    screen.press("n");
    screen.until("a approve  d deny  enter everything");
    assert_eq!(waiting(&place), std::slice::from_ref(&id));
    screen.press("d");
    screen.until(&format!("deny it? y/n, t writes a note  {id}"));
    screen.press("y");
    screen.until(&format!("denied: {id}"));
    assert_eq!(status(&place, &id)["status"], "denied");
    assert!(!place.path().join("sandbox/a").exists());
    screen.press("\x03");
    assert_eq!(screen.end().code, 0);
    drop(gateway);
}

#[test]
fn one_that_another_operator_decides_meanwhile_is_refused_and_no_other_is_decided() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let (first, _) = ask(&place, "first");
    let (second, _) = ask(&place, "second");
    let mut screen = top(&place);
    screen.until(&format!("> {first}"));
    screen.press("a");
    screen.until(&format!("approve it? y/n, t writes a note  {first}"));
    assert_eq!(place.stepgate(["deny", &first], "").code, 0);
    screen.until("1 waiting");
    screen.press("y");
    screen.until("refused: ");
    assert_eq!(waiting(&place), [second]);
    assert_eq!(status(&place, &first)["status"], "denied");
    screen.press("q");
    assert_eq!(screen.end().code, 0);
    drop(gateway);
}

#[test]
fn top_has_no_more_rights_than_approve() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let (id, _) = ask(&place, "a");
    let auditor = ["token", "create", "--name", "anna", "--role", "auditor"];
    let auditor = place.stepgate(auditor, "").stdout.trim().to_owned();
    // An agent is not told what waits; an auditor looks, and decides nothing.
    let remote = |token: &str| {
        let mut command = place.bare_command(["top"]);
        command.env("STEPGATE_URL", gateway.url()).env("STEPGATE_TOKEN", token);
        Screen::of(&command, 24, 120)
    };
    let mut agent = remote(&gateway.agent);
    agent.until("cannot read what waits now: ");
    agent.press("q");
    assert!(agent.end().restored);
    let mut screen = remote(&auditor);
    screen.until(&format!("> {id}"));
    screen.press("a");
    screen.until(&format!("approve it? y/n, t writes a note  {id}"));
    screen.press("y");
    screen.until("refused: ");
    screen.press("q");
    screen.end();
    assert_eq!(waiting(&place), [id]);
}

#[test]
fn the_terminal_is_as_before_after_a_signal_and_after_another_size() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let long = format!("path=/sandbox/{}", "d".repeat(200));
    assert_eq!(place.stepgate(["run", "CREATE_DIRECTORY", &long], "").code, 13);
    for signal in [15, 2, 1] {
        let mut screen = top(&place);
        screen.until("1 waiting");
        screen.resize(10, 60);
        screen.press("a");
        screen.until("page down to its end first");
        screen.press("y");
        screen.press("\x1b[6~\x1b[6~\x1b[6~\x1b[6~\x1b[6~\x1b[6~");
        screen.until("? y/n");
        screen.signal(signal);
        let left = screen.end();
        assert_eq!((left.code, left.restored), (0, true), "{signal}: {left:?}");
        assert!(left.shown.ends_with(LEFT), "{left:?}");
    }
    assert_eq!(waiting(&place).len(), 1);
    drop(gateway);
}

#[test]
fn without_a_terminal_or_a_gateway_top_says_what_to_do() {
    let place = place();
    ask(&place, "a");
    let refused = place.stepgate(["top"], "");
    assert!(refused.code == 1 && refused.stderr.contains("stepgate serve"), "{refused:?}");
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let refused = finish(&mut place.bare_command(["top"]), b"q");
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
    assert!(refused.stderr.contains("stepgate approvals --watch"), "{refused:?}");
    drop(gateway);
}

#[test]
fn where_two_people_must_approve_one_yes_is_counted_and_it_goes_on_waiting() {
    let policies = r#"
        @id("ask") @approval("a directory is made") @quorum("2")
        permit (principal, action == Action::"CREATE_DIRECTORY", resource);
    "#;
    let place = place_with("", policies);
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let (id, _) = ask(&place, "a");
    let mut screen = top(&place);
    screen.until(&format!("> {id}"));
    screen.press("a");
    screen.until("needs 2 operators");
    screen.until("approve it? y/n");
    screen.press("y");
    screen.until("counted, and others must approve, too");
    assert_eq!(waiting(&place), std::slice::from_ref(&id));
    screen.press("q");
    assert_eq!(screen.end().code, 0);
    let shown = place.stepgate(["approvals"], "").stdout;
    assert!(shown.contains("  approved so far by operator-at-terminal"), "{shown}");
    let second = place.stepgate(["approve", &id], "");
    // The first `serve` made this token for the person at the terminal: it is no other person.
    assert!(second.stdout.contains("another person must approve"), "{second:?}");
    drop(gateway);
}
