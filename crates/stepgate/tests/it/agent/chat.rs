//! `stepgate chat` on a pipe.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::json;

use super::stage::{Stage, calls, look, write_file};
use crate::scene::until;

#[test]
fn a_conversation_on_the_terminal_shows_text_calls_and_outcomes() {
    let stage = Stage::new();
    let mut first = calls(&[("c1", "WRITE_FILE", write_file("a.txt"))]);
    first["text"] = json!("I write.\u{1b}[2J");
    stage.model.says([first, json!({ "text": "It is there." }), json!({ "text": "Bye." })]);
    let output = stage.scene.place.stepgate(["chat"], "write a file\nthank you\n");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "I write.<U+001B>[2J", "a model plays no tricks on a terminal");
    assert!(lines[1].starts_with("→ WRITE_FILE {") && lines[1].contains("a.txt"), "{lines:?}");
    assert!(lines[2].starts_with("  SUCCESS run "), "{lines:?}");
    assert_eq!(lines[3..], ["It is there.", "Bye."]);
    assert!(stage.sandbox("a.txt").exists());
    let roles = ["system", "user", "assistant", "tool", "assistant", "user"];
    assert_eq!(stage.model.told(), roles, "the second line goes on in the same conversation");
    stage.scene.verified();
}

#[test]
fn after_a_turn_that_failed_the_model_knows_what_it_did() {
    let stage = Stage::new();
    stage.model.says([
        calls(&[("c1", "WRITE_FILE", write_file("a.txt"))]),
        json!({ "raw": "nonsense" }),
        json!({ "text": "It is there." }),
    ]);
    let output = stage.scene.place.stepgate(["chat"], "write a file\ngo on\n");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("MODEL_OUTPUT_INVALID"), "{}", output.stderr);
    assert!(output.stdout.ends_with("It is there.\n"), "{}", output.stdout);
    assert_eq!(stage.model.told(), ["system", "user", "assistant", "tool", "user"]);
}

#[test]
fn the_one_at_the_keyboard_decides_in_place() {
    for (word, outcome, effects) in [("y", "SUCCESS", 1), ("no", "DENIED", 0)] {
        let stage = Stage::new();
        stage.model.says([
            calls(&[("c1", "fixture__act", json!({ "value": 7 }))]),
            json!({ "text": "so be it" }),
        ]);
        let output = stage.scene.place.stepgate(["chat"], format!("act\n{word}\n"));
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(output.stderr.contains("it acts"), "the reason is shown: {}", output.stderr);
        assert!(output.stdout.contains(outcome) && output.stdout.contains("so be it"));
        assert_eq!(stage.scene.effects(), effects);
    }
}

#[test]
fn a_padded_argument_hides_nothing_of_what_the_one_at_the_keyboard_decides_on() {
    let stage = Stage::new();
    let policies = "@id(\"ask\") @approval(\"a file is written\")\n\
                    permit (principal, action == Action::\"WRITE_FILE\", resource);";
    fs::write(stage.scene.place.path().join("policies/all.cedar"), policies).unwrap();
    let padding = "x".repeat(20_000);
    let args = json!({ "content": padding, "path": "/sandbox/the-dangerous-one.txt" });
    stage.model.says([calls(&[("c1", "WRITE_FILE", args)])]);
    let output = stage.scene.place.stepgate(["--utc", "chat"], "write\n");
    assert_eq!(output.code, 13, "{}", output.stderr);
    let path = "        path = \"/sandbox/the-dangerous-one.txt\"\n  why   a file is written\n";
    assert!(output.stderr.contains(path), "{}", output.stderr);
    assert!(output.stderr.contains(&format!("content = \"{padding}\"\n")), "all of it is shown");
    let listed = stage.scene.place.stepgate(["--utc", "approvals"], "").stdout;
    assert!(output.stderr.contains(&listed), "the card is what `approvals` shows: {listed}");
    let shown = stage.scene.place.stepgate(["runs", "show", "last"], "").stdout;
    assert!(shown.contains(&padding) && shown.contains("the-dangerous-one"), "{shown}");
}

#[test]
fn an_approval_whose_card_cannot_be_shown_is_not_asked_about() {
    let stage = Stage::new();
    let act = calls(&[("c1", "fixture__act", json!({ "value": 7 }))]);
    stage.model.says([act, json!({ "text": "so be it" }), json!({ "text": "to what?" })]);
    let (scene, _gateway) = (&stage.scene, stage.gateway());
    let said = scene.file("chat.stderr");
    // Another agent is not shown the approval.
    let mut chat = scene.place.bare_command(["chat"]);
    chat.env("STEPGATE_TOKEN", scene.place.own_token("guest", "agent"));
    chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(fs::File::create(&said).unwrap());
    let mut chat = chat.spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"act\ny\n").unwrap();
    let said = || fs::read_to_string(&said).unwrap();
    until("the chat says why it does not ask", || said().contains("cannot be shown here"));
    let denied = scene.stepgate(&["deny", &scene.pending()]);
    assert_eq!(denied.code, 0, "it was still open: {denied:?}");
    let output = chat.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    // The `y` was no answer to a question: it is the next message to the model.
    assert!(stdout.contains("DENIED") && stdout.ends_with("so be it\nto what?\n"), "{stdout}");
    assert_eq!(scene.effects(), 0);
}

#[test]
fn an_answer_that_comes_as_a_whole_is_told_once() {
    let stage = Stage::new();
    let mut first = calls(&[("c1", "WRITE_FILE", write_file("a.txt"))]);
    first["text"] = json!("I write.");
    first["whole"] = json!(true);
    stage.model.says([first, json!({ "text": "It is there.", "whole": true })]);
    let output = stage.scene.place.stepgate(["chat", "write a file"], "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!((lines[0], lines.last(), lines.len()), ("I write.", Some(&"It is there."), 4));
}

#[test]
fn a_chat_that_is_interrupted_cancels_its_turn() {
    let stage = Stage::new();
    stage.model.says([json!({ "hang": true })]);
    let gateway = stage.gateway();
    let mut chat = stage.scene.place.command(["--json", "chat", "hello"]);
    let mut chat = chat.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let turn = opened(&mut chat);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&chat),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert!(chat.wait().unwrap().success());
    let seen = look(&gateway, &turn).json();
    assert_eq!(seen["errors"][0]["code"], "TURN_CANCELLED", "who leaves gives it up: {seen}");
}

/// The turn that a chat has opened, as its first event says.
fn opened(chat: &mut std::process::Child) -> serde_json::Value {
    let mut line = String::new();
    BufReader::new(chat.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    event["data"]["turnId"].clone()
}

#[test]
fn where_nobody_is_left_to_decide_it_ends_with_thirteen_and_says_how_to_go_on() {
    let stage = Stage::new();
    stage.model.says([calls(&[("c1", "fixture__act", json!({ "value": 7 }))])]);
    let output = stage.scene.place.stepgate(["chat", "act"], "");
    assert_eq!(output.code, 13, "{}", output.stderr);
    assert!(output.stderr.contains("stepgate approve"), "{}", output.stderr);
}

#[test]
fn what_goes_wrong_is_told_and_an_empty_line_asks_again() {
    let stage = Stage::new();
    stage.model.says([json!({ "status": 400, "body": "no" }), json!({ "text": "now I can" })]);
    let output = stage.scene.place.stepgate(["chat"], "hello\n\n");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("MODEL_REFUSED"), "{}", output.stderr);
    assert_eq!(output.stdout, "now I can\n");
    let failed = stage.scene.place.stepgate(["--json", "chat", ""], "");
    assert_eq!(failed.code, 1, "nothing was said: {}", failed.stdout);
}

#[test]
fn over_a_url_it_is_one_principal_and_json_has_every_event() {
    let stage = Stage::new();
    stage.model.says([json!({ "text": "hi" })]);
    let gateway = stage.gateway();
    let token = stage.scene.place.path().join("agent.token");
    let args = [
        "--url",
        &gateway.url(),
        "--token-file",
        token.to_str().unwrap(),
        "--json",
        "chat",
        "hello",
    ];
    let output = stage.scene.place.stepgate(args, "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let names: Vec<String> = output
        .stdout
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["event"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(names, ["opened", "text", "answered", "response"]);
}
