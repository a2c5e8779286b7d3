use super::{ask, place, rows};
use crate::agent::stage::Stage;
use crate::http_client::Gateway;
use crate::screen::Screen;
use serde_json::json;

#[test]
fn a_table_fits_the_terminal_and_is_whole_on_a_pipe() {
    let place = place();
    let long = format!("content={}", "x".repeat(300));
    let path = format!("path=/sandbox/{}.txt", "n".repeat(60));
    assert_eq!(place.stepgate(["run", "WRITE_FILE", &path, &long], "").code, 0);
    let piped = place.stepgate(["runs"], "");
    let table = piped.stdout;
    assert!(table.lines().count() == 2 && table.contains(" s ago  agent "), "{table}");
    let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest > 120, "{table}");
    let on_screen = |args: &[&str], width: u16, columns: Option<&str>| {
        let mut command = place.bare_command(args);
        columns.map(|columns| command.env("COLUMNS", columns));
        let left = Screen::of(&command, 24, width).end();
        assert_eq!(left.code, 0, "{left:?}");
        let text = anstream::adapter::strip_str(&left.shown).to_string();
        text.lines().map(|line| line.trim_end().chars().count()).max().unwrap()
    };
    assert_eq!(on_screen(&["runs"], 100, None), 100);
    assert_eq!(on_screen(&["runs"], 100, Some("110")), 110);
    assert!(place.stepgate(["runs", "--utc"], "").stdout.contains("T"), "an instant");
}

#[test]
fn approvals_are_filtered_by_principal_and_time() {
    let place = place();
    let (id, _) = ask(&place, "a");
    let count = |args: &[&str]| {
        let args = ["approvals", "--json"].iter().chain(args);
        rows(&place.stepgate(args, "")).len()
    };
    let wanted = [
        (vec!["--principal", "agent"], 1),
        (vec!["--principal", "other"], 0),
        (vec!["--since", "1h"], 1),
        (vec!["--until", "1h"], 0),
        (vec!["--since", "1h", "--until", "0s"], 1),
        (vec!["--since", "2999-01-01"], 0),
    ];
    for (args, expected) in wanted {
        assert_eq!(count(&args), expected, "{args:?}");
    }
    let shown = place.stepgate(["approvals"], "").stdout;
    assert!(shown.starts_with(&format!("{id}  pending  asked ")), "{shown}");
    assert!(shown.contains(" s ago, expires in "), "{shown}");
    let utc = place.stepgate(["approvals", "--utc"], "").stdout;
    assert!(utc.lines().next().unwrap().ends_with('Z'), "{utc}");
}

#[test]
fn sessions_are_listed_with_their_principal_and_when_they_were_opened() {
    let place = place();
    ask(&place, "a");
    let listed = place.stepgate(["sessions", "--principal", "agent"], "").stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    assert!(lines[0].starts_with("SESSION ") && lines[1].contains(" ago  agent "), "{listed}");
    let json = rows(&place.stepgate(["sessions", "--json"], ""));
    assert_eq!(json.len(), 2, "the agent's and the system's");
    assert!(lines[1].starts_with(json[0]["session_id"].as_str().unwrap()), "{listed}");
    assert_eq!(place.stepgate(["sessions", "--principal", "x"], "").stdout, "no sessions\n");
    assert_eq!(place.stepgate(["turns"], "").stdout, "no turns\n");
}

#[test]
fn who_lost_a_conversation_finds_its_turn_and_goes_on_with_it() {
    let stage = Stage::new();
    let place = &stage.scene.place;
    stage.model.says([
        json!({ "text": "one" }),
        json!({ "text": "two" }),
        json!({ "text": "three" }),
    ]);
    assert_eq!(place.stepgate(["chat", "first"], "").code, 0);
    let gateway = Gateway::start_with(place, &["--quiet"]);
    let turns = rows(&place.stepgate(["turns", "--json"], ""));
    let session = turns[0]["sessionId"].as_str().unwrap().to_owned();
    let listed = place.stepgate(["turns", "--session", &session[..35]], "").stdout;
    assert!(listed.contains(turns[0]["turnId"].as_str().unwrap()), "{listed}");
    assert!(listed.lines().nth(1).unwrap().ends_with("first"), "{listed}");
    for named in ["last", &session[..35]] {
        let went_on = place.stepgate(["chat", "--session", named, "again"], "");
        assert_eq!(went_on.code, 0, "{went_on:?}");
    }
    let turns = rows(&place.stepgate(["turns", "--json"], ""));
    assert_eq!(turns.len(), 3);
    assert!(turns.iter().all(|turn| turn["sessionId"] == *session), "{turns:?}");
    let none = place.stepgate(["chat", "--session", "ffffffff", "again"], "");
    assert!(none.code == 1 && none.stderr.contains("no session begins"), "{none:?}");
    drop(gateway);
}
