//! What turns a server or a tool off, what the operator reads then, and what stops the start where a server is
//! required.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use stepgate_core::tool::{Mode, Standing};
use stepgate_exec::servers::{DeliverySpec, News, ServerSpec, StartError, ToolSpec, Transport};

use super::house::{House, fixture, name, spec, text_result, until};

async fn refusal(mut spec: ServerSpec) -> StartError {
    spec.required = true;
    match House::unaccepted(vec![spec], BTreeMap::new()).await {
        Ok(_) => panic!("it started"),
        Err(refusal) => refusal,
    }
}

/// A server that ends before it has read anything closes both pipes. Which of the two the gateway
/// notices first is a race.
fn gone(words: &str) -> String {
    words.replace("it closed its output", "gone").replace("it closed its input", "gone")
}

fn tool(mode: Mode) -> ToolSpec {
    ToolSpec { mode: Some(mode), ..ToolSpec::default() }
}

#[tokio::test]
async fn a_server_that_crashes_at_once_is_named_with_its_last_words() {
    let words = refusal(spec("door", "crash_on_start")).await.to_string();
    let end = format!(
        "; its last words:\n  cannot open the garage door\n  giving up\n  stepgate: {} ended: exit code 7",
        fixture().display()
    );
    let why = words.strip_suffix(&end).unwrap_or_else(|| panic!("{words}"));
    assert_eq!(gone(why), "the tool server `door` did not start: gone");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_after_the_limit() {
    let mut silent = spec("door", "silent");
    silent.limits.start_wait = Duration::from_millis(200);
    let words = refusal(silent).await.to_string();
    assert_eq!(words, "the tool server `door` did not start: it did not answer within 200 ms");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let mut missing = spec("door", "normal");
    let command = "/no/such/program".to_owned();
    missing.transport =
        Transport::Stdio { command, args: vec![], env: BTreeMap::new(), directory: None };
    let words = refusal(missing).await.to_string();
    assert!(words.contains("cannot start `/no/such/program`: No such file"), "{words}");
}

#[tokio::test]
async fn a_list_of_tools_that_fails_or_does_not_end_is_a_reason() {
    let why = |refusal: StartError| {
        let StartError::Start { why, .. } = refusal else { panic!("{refusal}") };
        why
    };
    let refusing = refusal(spec("door", "refusing")).await;
    assert_eq!(why(refusing), "`tools/list` failed: no tools today");
    let mut endless = spec("door", "endless");
    endless.limits.pages_max = 3;
    assert_eq!(why(refusal(endless).await), "its list of tools has more than 3 pages");
    let mut many = spec("door", "normal");
    many.limits.tools_max = 5;
    assert_eq!(why(refusal(many).await), "it has more than 5 tools");
    let twice = refusal(spec("door", "twice")).await.to_string();
    assert!(twice.contains("two tools of this name"), "{twice}");
}

#[tokio::test]
async fn a_tool_that_runs_commands_cannot_be_loaded_in_any_case_of_its_letters() {
    let mut unclassified = spec("door", "command");
    unclassified.tool = ToolSpec::default();
    for spec in [spec("door", "command"), unclassified] {
        let expected =
            StartError::CommandExecution { server: "door".into(), tool: "Run_Command".into() };
        assert_eq!(refusal(spec).await, expected);
    }
}

#[tokio::test]
async fn a_tool_that_writes_must_say_what_becomes_of_a_call_in_doubt() {
    for mode in [Mode::Draft, Mode::ExecuteGated] {
        let mut silent = spec("door", "normal");
        silent.tool = ToolSpec::default();
        silent.tools.insert("echo".into(), tool(mode));
        let expected = StartError::NoDelivery { server: "door".into(), tool: "echo".into() };
        assert_eq!(refusal(silent).await, expected);
    }
    let words = StartError::NoDelivery { server: "door".into(), tool: "echo".into() }.to_string();
    for way_out in
        ["door.echo", "honours_key = true", "redispatch", "query", "ask", "[servers.door]"]
    {
        assert!(words.contains(way_out), "{words}");
    }
}

#[tokio::test]
async fn a_configured_tool_that_the_server_does_not_have_is_named() {
    let mut wrong = spec("door", "normal");
    wrong.tools.insert("eco".into(), tool(Mode::ReadOnly));
    let words = refusal(wrong).await.to_string();
    assert!(words.starts_with("the tool server `door` has no tool `eco`: "), "{words}");
    assert!(words.contains("`echo`"), "{words}");
}

#[tokio::test]
async fn a_status_tool_must_be_there_and_only_look() {
    let asking = |status: &str| {
        let mut asking = spec("door", "normal");
        asking.tool = ToolSpec::default();
        let delivery = Some(DeliverySpec::Query(status.to_owned()));
        asking.tools.insert("act".into(), ToolSpec { delivery, ..tool(Mode::ExecuteGated) });
        asking
    };
    let why = |refusal: StartError| {
        let StartError::StatusTool { why, .. } = refusal else { panic!("{refusal}") };
        why
    };
    assert_eq!(why(refusal(asking("status")).await), "is not offered");
    assert_eq!(why(refusal(asking("not a name")).await), "is no name of a tool");
    assert_eq!(why(refusal(asking("act")).await), "is not read only");
    let mut good = asking("status");
    good.tools.insert("status".into(), tool(Mode::ReadOnly));
    assert!(House::unaccepted(vec![good], BTreeMap::new()).await.is_ok());
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_keeps_a_tool_from_being_offered() {
    for mode in ["bad_schema", "remote_schema"] {
        let refusal = refusal(spec("door", mode)).await;
        let StartError::Definition { server, tool, .. } = refusal else { panic!("{refusal}") };
        assert_eq!((server.as_str(), tool.as_str()), ("door", "echo"));
    }
}

#[tokio::test]
async fn a_server_needs_a_name_of_its_own() {
    for bad in ["core", "Door", "a.b", ""] {
        let expected = StartError::Name { server: bad.to_owned() };
        assert_eq!(refusal(spec(bad, "normal")).await, expected);
    }
    let twice = vec![spec("door", "normal"), spec("door", "normal")];
    assert!(House::unaccepted(twice, BTreeMap::new()).await.is_err());
}

#[tokio::test]
async fn a_required_server_that_does_not_start_ends_the_others() {
    let door = ServerSpec { required: true, ..spec("door", "crash_on_start") };
    let both = vec![spec("house", "normal"), door];
    assert!(House::unaccepted(both, BTreeMap::new()).await.is_err());
}

#[tokio::test]
async fn one_server_that_does_not_start_and_one_tool_that_cannot_be_used_leave_the_others_be() {
    let specs = vec![
        spec("house", "normal"),
        spec("door", "crash_on_start"),
        spec("gate", "bad_schema"),
        spec("shell", "command"),
    ];
    let house = House::of(specs).await;
    let off: Vec<String> = house.servers.off().iter().map(ToString::to_string).collect();
    let [door, gate, shell] = &*off else { panic!("{off:?}") };
    assert!(gone(door).starts_with("the tool server `door` is off: gone: "), "{door}");
    assert!(gate.starts_with("the tool `gate.echo` is off: ") && gate.contains("objekt"), "{gate}");
    assert!(shell.starts_with("the tool `shell.Run_Command` is off: "), "{shell}");
    for server in ["house", "shell"] {
        let effect = house.run(&format!("{server}.echo"), json!({ "text": "on" })).await;
        assert_eq!(effect, text_result("on"), "{server}");
    }
    use stepgate_core::ports::ToolServers;
    assert!(house.servers.tool(&name("gate.echo")).is_none());
    assert!(house.servers.tool(&name("gate.hang")).is_some());
}

#[tokio::test]
async fn a_server_that_was_away_at_the_start_comes_up_without_a_restart() {
    let keep = tempfile::tempdir().unwrap();
    let program = keep.path().join("server");
    let mut away = spec("door", "normal");
    if let Transport::Stdio { command, .. } = &mut away.transport {
        *command = program.display().to_string();
    }
    away.limits.restart_pause_min = Duration::from_millis(20);
    away.limits.restart_pause_max = Duration::from_millis(20);
    let house = House::of(vec![away]).await;
    assert_eq!(house.servers.off().len(), 1);
    assert!(!house.servers.servers()[0].is_known);
    std::os::unix::fs::symlink(fixture(), &program).unwrap();
    until("the server", async || {
        let seen = house.servers.first_seen();
        seen.iter().for_each(|name| assert!(house.servers.accept(name).is_some()));
        (!seen.is_empty()).then_some(())
    })
    .await;
    until("the line", async || house.servers.off().is_empty().then_some(())).await;
    assert_eq!(house.run("door.echo", json!({ "text": "on" })).await, text_result("on"));
    let news = house.news.lock().unwrap().clone();
    assert_eq!(news.last(), Some(&News::Up("door".to_owned())), "{news:?}");
}

#[tokio::test]
async fn a_tool_without_a_mode_is_listed_and_not_offered() {
    let mut only_echo = spec("house", "normal");
    only_echo.tool = ToolSpec::default();
    only_echo.tools.insert("echo".into(), tool(Mode::ReadOnly));
    let house = House::of(vec![only_echo]).await;
    use stepgate_core::ports::ToolServers;
    let offered: Vec<_> = house.servers.tools().iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(offered, ["house.echo"]);
    assert!(house.servers.tool(&name("house.hang")).is_none());
    let listing = house.servers.listing();
    let modes = |tool: &str| {
        let listed = listing.iter().find(|listed| listed.tool == tool).unwrap();
        (listed.mode, listed.standing)
    };
    assert_eq!(modes("echo"), (Some(Mode::ReadOnly), Some(Standing::Accepted)));
    assert_eq!(modes("hang"), (None, None));
}
