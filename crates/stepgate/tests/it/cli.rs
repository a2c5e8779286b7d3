//! The command line, as people and scripts meet it.

mod directory;

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};
use stepgate_store::sqlite::SqliteStore;

use crate::binary::{Place, finish};
use crate::gate::{Acting, AskAlways, CountingWorld, StopsAt, id, proposal};
use crate::http_client::{self, Gateway};
use crate::scene::until;

fn lines_of_json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A directory in which one file was written and read.
fn used() -> Place {
    let place = Place::new();
    for args in [
        vec!["run", "WRITE_FILE", "path=/sandbox/a.txt", "content=hello"],
        vec!["run", "READ_FILE", "path=/sandbox/a.txt"],
    ] {
        let output = place.stepgate(args, "");
        assert_eq!(output.code, 0, "{}", output.stderr);
    }
    place
}

#[test]
fn a_first_step_creates_everything_and_prints_exactly_one_response() {
    let place = Place::new();
    let file = place.path().with_extension("json");
    fs::write(&file, proposal(1, "LIST_FILES", json!({"path": "/sandbox/"}))).unwrap();
    let output = place.stepgate(["step".as_ref(), file.as_os_str()], "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(
        output.stdout,
        format!(
            "{{\"proposal_id\":\"{}\",\"action\":\"LIST_FILES\",\"outcome\":\"SUCCESS\",\
             \"result\":{{\"files\":[]}},\"error\":null}}\n",
            id(1)
        )
    );
    assert_eq!(output.stderr, "");
    assert!(place.path().join("sandbox").is_dir() && place.database().is_file());
    let mode = fs::metadata(place.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn the_exit_code_is_the_outcome() {
    let place = Place::new();
    let rows = [
        (proposal(1, "THINK", json!({})), 0),
        ("{".to_owned(), 10),
        (proposal(2, "CURL", json!({})), 11),
        (proposal(3, "READ_FILE", json!({"path": "/sandbox/none.txt"})), 12),
    ];
    for (payload, code) in rows {
        let output = place.stepgate(["step", "-"], &payload);
        assert_eq!(output.code, code, "{payload}: {}", output.stderr);
        assert_eq!(output.stdout.lines().count(), 1);
    }
}

#[test]
fn every_line_gets_its_response_in_order_also_an_empty_one() {
    let place = Place::new();
    let input = format!(
        "{}\n\nnot json\n{}",
        proposal(1, "THINK", json!({})),
        proposal(2, "FINISH", json!({"response": "r"}))
    );
    let output = place.stepgate(["step", "--lines"], input);
    assert_eq!(output.code, 0);
    let outcomes: Vec<_> = lines_of_json(&output.stdout)
        .iter()
        .map(|response| (response["outcome"].clone(), response["error"]["error_code"].clone()))
        .collect();
    assert_eq!(
        outcomes,
        [
            (json!("SUCCESS"), json!(null)),
            (json!("VALIDATION_ERROR"), json!("EMPTY_PAYLOAD")),
            (json!("VALIDATION_ERROR"), json!("INVALID_JSON")),
            (json!("SUCCESS"), json!(null)),
        ]
    );
}

#[test]
fn a_payload_beyond_the_limit_is_answered_and_recorded_and_the_next_lines_go_on() {
    const BYTES_MAX: usize = 300;
    let place = Place::new();
    let at_the_limit = "x".repeat(BYTES_MAX);
    let above = "y".repeat(BYTES_MAX + 1);
    // Far more than any buffer on the way, so that whatever is kept of it would show.
    let far_above = "z".repeat(5_000_000);
    let lines = [&at_the_limit, &above, &far_above, &proposal(1, "THINK", json!({}))];
    let input = lines.map(|line| format!("{line}\n")).concat();
    let limited = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("STEPGATE_LIMITS_PAYLOAD_BYTES_MAX", BYTES_MAX.to_string());
        command
    };
    let output = finish(&mut limited(&["step", "--lines"]), input.as_bytes());
    assert_eq!(output.code, 0, "{}", output.stderr);
    let codes: Vec<_> = lines_of_json(&output.stdout)
        .iter()
        .map(|response| response["error"]["error_code"].clone())
        .collect();
    let too_large = json!("PAYLOAD_TOO_LARGE");
    assert_eq!(codes, [json!("INVALID_JSON"), too_large.clone(), too_large, json!(null)]);
    let alone = finish(&mut limited(&["step"]), far_above.as_bytes());
    assert_eq!(alone.code, 10, "{}", alone.stderr);
    assert!(alone.stdout.contains("PAYLOAD_TOO_LARGE"), "{}", alone.stdout);

    let connection = rusqlite::Connection::open(place.database()).unwrap();
    let mut kept = connection
        .prepare("SELECT length(payload), payload_bytes FROM tool_runs ORDER BY step_index")
        .unwrap();
    let kept: Vec<(i64, i64)> = kept
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let whole = i64::try_from(lines[3].len()).unwrap();
    let expected = [(300, 300), (300, 301), (300, 5_000_000), (whole, whole), (300, 5_000_000)];
    assert_eq!(kept, expected);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

#[test]
fn run_takes_pairs_or_json_and_leaves_the_judgement_to_the_gate() {
    let place = Place::new();
    let rows: [(&[&str], i32); 6] = [
        (&["run", "WRITE_FILE", "path=/sandbox/a.txt", "content=a=b"], 0),
        (&["run", "FINISH", "--args", r#"{"response":"done"}"#], 0),
        (&["run", "FINISH", "--args", r#"{"response":1,"response":2}"#], 10),
        (&["run", "THINK", "--id", "not-a-uuid"], 10),
        (&["run", "sh"], 11),
        (&["run", "READ_FILE", "path"], 1),
    ];
    for (args, code) in rows {
        assert_eq!(place.stepgate(args, "").code, code, "{args:?}");
    }
    let written = fs::read_to_string(place.path().join("sandbox/a.txt")).unwrap();
    assert_eq!(written, "a=b");
}

#[test]
fn asking_again_with_the_same_id_answers_alike_and_acts_once() {
    let place = Place::new();
    let args = ["run", "WRITE_FILE", "path=/sandbox/a.txt", "content=x", "--id", &id(7)];
    let first = place.stepgate(args, "");
    fs::remove_file(place.path().join("sandbox/a.txt")).unwrap();
    let second = place.stepgate(args, "");
    assert_eq!(first.stdout, second.stdout);
    assert!(!place.path().join("sandbox/a.txt").exists());
}

#[test]
fn sessions_are_opened_by_name_and_steps_are_counted_in_each() {
    let place = Place::new();
    let session = "01890a5d-ac96-774b-bcce-b302099a8057";
    for _ in 0..2 {
        let output = place.stepgate(["run", "THINK", "--session", session], "");
        assert_eq!(output.code, 0, "{}", output.stderr);
    }
    place.stepgate(["run", "THINK"], "");
    let listed = place.stepgate(["runs", "--session", session, "--json"], "");
    let indexes: Vec<_> =
        lines_of_json(&listed.stdout).iter().map(|run| run["step_index"].clone()).collect();
    assert_eq!(indexes, [json!(2), json!(1)]);
    assert_eq!(place.stepgate(["run", "THINK", "--session", "mine"], "").code, 1);
}

#[test]
fn runs_are_listed_newest_first_and_filtered() {
    let place = used();
    place.stepgate(["run", "READ_FILE", "path=/sandbox/none.txt"], "");
    let tools = |args: &[&str]| -> Vec<String> {
        let output = place.stepgate(args, "");
        lines_of_json(&output.stdout)
            .iter()
            .map(|run| run["tool_name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(tools(&["runs", "--json"]), ["READ_FILE", "READ_FILE", "WRITE_FILE"]);
    assert_eq!(tools(&["runs", "--json", "--limit", "1"]), ["READ_FILE"]);
    assert_eq!(tools(&["runs", "--json", "--status", "error"]), ["READ_FILE"]);
    assert_eq!(tools(&["runs", "--json", "--tool", "WRITE_FILE"]), ["WRITE_FILE"]);
    assert_eq!(tools(&["runs", "--json", "--text", "write"]), ["WRITE_FILE"]);
    assert_eq!(tools(&["runs", "--json", "--principal", "agent", "--since", "1h"]).len(), 3);
    assert_eq!(tools(&["runs", "--json", "--principal", "other"]).len(), 0);
    assert_eq!(tools(&["runs", "--json", "--until", "1h"]).len(), 0);
    assert_eq!(
        tools(&["runs", "--json", "--since", "2020-01-01", "--until", "9000-01-01"]).len(),
        3
    );
    let refused = place.stepgate(["runs", "--since", "yesterday"], "");
    assert_eq!(refused.code, 1, "{refused:?}");
    let table = place.stepgate(["runs"], "").stdout;
    assert!(table.starts_with("RUN "), "{table}");
    assert!(!table.contains('\u{1b}'), "colour where nobody sees it");
}

#[test]
fn a_shown_run_tells_its_story_and_cannot_play_tricks_on_the_terminal() {
    let place = Place::new();
    let args = json!({"path": "/sandbox/a.txt", "content": "\u{1b}[2J"});
    let mut payload: Value = serde_json::from_str(&proposal(1, "WRITE_FILE", args)).unwrap();
    payload["reasoning"] = json!("\u{1b}]0;owned\u{7}");
    place.stepgate(["step"], payload.to_string());
    let shown = place.stepgate(["runs", "show", "last"], "").stdout;
    for word in ["PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "RECORD", "reasoning"] {
        assert!(shown.contains(word), "{shown}");
    }
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
    let object = place.stepgate(["runs", "show", "last", "--json"], "");
    assert_eq!(lines_of_json(&object.stdout)[0]["entries"].as_array().unwrap().len(), 4);
}

#[test]
fn an_exported_run_verifies_anywhere_and_a_changed_one_does_not() {
    let place = used();
    let bundle = place.stepgate(["runs", "export", "last"], "").stdout;
    let object: Value = serde_json::from_str(&bundle).unwrap();
    let mut keys: Vec<_> = object.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    assert_eq!(keys, ["artifacts", "checkpoint", "entries", "record", "run"]);
    let elsewhere = Place::new();
    let verified = elsewhere.stepgate(["verify", "--bundle", "-"], &bundle);
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    for (from, to) in [
        ("hello", "hullo"),
        ("\"status\":\"ok\"", "\"status\":\"error\""),
        ("\"COMPLETED\"", "\"FAILED\""),
        ("permitted by policy", "permitted by policx"),
        ("\"latency_ms\":", "\"latency_ms\":1"),
        ("asked on the command line", "asked by nobody at all"),
        ("\"principal_id\":\"agent\"", "\"principal_id\":\"agenu\""),
    ] {
        let changed = bundle.replacen(from, to, 1);
        assert_ne!(changed, bundle, "{from} is not in the bundle");
        let refused = elsewhere.stepgate(["verify", "--bundle", "-"], &changed);
        assert_eq!(refused.code, 1, "{from}: {}", refused.stdout);
    }
    let twice = bundle.replacen("{\"run\":", "{\"record\":null,\"run\":", 1);
    assert_eq!(elsewhere.stepgate(["verify", "--bundle", "-"], twice).code, 1);
}

#[test]
fn saved_heads_stand_until_history_is_rewritten() {
    let place = used();
    let heads = place.path().join("heads.json");
    let heads = heads.to_str().unwrap();
    assert_eq!(place.stepgate(["verify", "--save-heads", heads], "").code, 0);
    place.stepgate(["run", "THINK"], "");
    let stands = place.stepgate(["verify", "--heads", heads], "");
    assert_eq!(stands.code, 0, "{}", stands.stdout);
    let text = fs::read_to_string(heads).unwrap();
    fs::write(heads, text.replacen("\"number\": 4", "\"number\": 3", 1)).unwrap();
    assert_eq!(place.stepgate(["verify", "--heads", heads], "").code, 1);
    fs::write(heads, "[]").unwrap();
    let empty = place.stepgate(["verify", "--heads", heads], "");
    assert!(empty.code == 1 && empty.stderr.contains("could prove nothing"), "{}", empty.stderr);
}

#[test]
fn canon_and_digest_agree_with_rfc_8785() {
    let place = Place::new();
    let rows = [
        (r#"{"b":1,"a":[1.0,1e21,0.000001,1E-7]}"#, r#"{"a":[1,1e+21,0.000001,1e-7],"b":1}"#),
        ("\"\\u20ac\\u000F\\u000aA'\\u0042\\u0022\\u005c\"", "\"€\\u000f\\nA'B\\\"\\\\\""),
        ("9007199254740993", "9007199254740992"),
        ("{\"a\":\"x\u{7f}y\u{9b}31m\"}", "{\"a\":\"x\u{7f}y\u{9b}31m\"}"),
        (
            "{\"\u{20ac}\":1,\"\u{fb33}\":3,\"\u{1f602}\":2}",
            "{\"\u{20ac}\":1,\"\u{1f602}\":2,\"\u{fb33}\":3}",
        ),
    ];
    for (input, expected) in rows {
        let output = place.stepgate(["canon"], input);
        assert_eq!(output.stdout, format!("{expected}\n"), "{}", output.stderr);
    }
    let digest = place.stepgate(["digest", "--without", "b"], r#"{"b":1,"a":2}"#);
    assert_eq!(digest.stdout, place.stepgate(["digest"], r#"{"a":2}"#).stdout);
    assert_eq!(place.stepgate(["canon"], r#"{"a":1,"a":2}"#).code, 1);
    assert_eq!(place.stepgate(["digest", "--without", "x"], "{}").code, 1);
}

#[test]
fn an_entry_of_an_exported_run_has_the_digest_that_the_command_line_computes() {
    let place = used();
    let bundle = place.stepgate(["runs", "export", "last"], "").stdout;
    let bundle: Value = serde_json::from_str(&bundle).unwrap();
    for entry in bundle["entries"].as_array().unwrap() {
        let output = place.stepgate(["digest", "--without", "entry_digest"], entry.to_string());
        assert_eq!(output.stdout.trim(), entry["entry_digest"].as_str().unwrap());
    }
    for artifact in bundle["artifacts"].as_array().unwrap() {
        let output = place.stepgate(["digest", "--without", "_digest"], artifact.to_string());
        assert_eq!(output.stdout.trim(), artifact["_digest"].as_str().unwrap());
    }
}

/// A terminal filter would drop these characters, and the bundle would not match its digests.
#[test]
fn characters_of_control_do_not_make_evidence_look_forged() {
    let place = Place::new();
    let unseen = "a\u{7f}b\u{9b}31m\u{1b}[2J\u{e0041}";
    let args = json!({ "path": "/sandbox/a.txt", "content": unseen });
    let written = place.stepgate(["step"], proposal(1, "WRITE_FILE", args));
    assert_eq!(written.code, 0, "{}", written.stderr);
    let bundle = place.stepgate(["runs", "export", "last"], "").stdout;
    let verified = place.stepgate(["verify", "--bundle", "-"], &*bundle);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    let read = proposal(2, "READ_FILE", json!({ "path": "/sandbox/a.txt" }));
    let response = place.stepgate(["step"], read).stdout;
    let response: Value = serde_json::from_str(&response).unwrap();
    assert_eq!(response["result"]["content"], unseen);
    let shown = place.stepgate(["runs", "--json"], "").stdout;
    assert!(shown.contains("\u{7f}") && shown.contains("\u{9b}"), "{shown:?}");
    let people = place.stepgate(["runs", "show", "last"], "").stdout;
    assert!(people.contains("a<U+007F>b<U+009B>31m"), "{people}");
}

#[test]
fn every_command_has_examples_in_its_help() {
    let place = Place::new();
    let commands: [&[&str]; 17] = [
        &[],
        &["step"],
        &["run"],
        &["runs"],
        &["runs", "show"],
        &["runs", "export"],
        &["verify"],
        &["recover"],
        &["canon"],
        &["digest"],
        &["doctor"],
        &["bench"],
        &["completions"],
        &["config"],
        &["config", "sample"],
        &["man"],
        &["ready"],
    ];
    for command in commands {
        let mut args = command.to_vec();
        args.push("--help");
        let help = place.stepgate(&args, "").stdout;
        assert!(help.contains("Examples:\n  "), "{command:?}: {help}");
    }
}

#[test]
fn completions_are_printed_for_every_common_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Place::new().stepgate(["completions", shell], "");
        assert!(output.code == 0 && output.stdout.contains("stepgate"), "{shell}");
    }
}

#[test]
fn every_command_has_its_manual_page() {
    let place = Place::new();
    let directory = tempfile::TempDir::new().unwrap();
    let pages = directory.path().to_str().unwrap();
    assert_eq!(place.stepgate(["man", pages], "").code, 0);
    let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let help = place.stepgate(["--help"], "").stdout;
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands = listed.lines().filter_map(|line| line.strip_prefix("  "));
    let commands: Vec<&str> = commands.filter_map(|line| line.split(' ').next()).collect();
    let commands = commands.into_iter().filter(|name| !["", "help"].contains(name));
    let mut count = 0;
    for command in commands {
        assert!(page(&format!("stepgate-{command}.1")).contains("Examples:"), "{command}");
        count += 1;
    }
    assert!(count > 30, "{count} commands: {listed}");
    assert!(page("stepgate-runs-show.1").contains(".SH SYNOPSIS"));
    let nowhere = place.stepgate(["man", &format!("{pages}/none")], "");
    assert_eq!(nowhere.code, 1);
    assert!(nowhere.stderr.contains("cannot write manual pages into"), "{nowhere:?}");
}

#[test]
fn a_gateway_is_ready_for_those_who_ask_on_its_directory_and_at_its_address() {
    let place = Place::new();
    assert_eq!(place.stepgate(["ready"], "").code, 1, "there is no directory");
    let gateway = Gateway::start(&place);
    let ready = place.stepgate(["ready"], "");
    assert_eq!((ready.code, ready.stdout.as_str()), (0, "ready\n"), "{ready:?}");
    let elsewhere = Place::with(vec![("STEPGATE_TOKEN", gateway.agent.clone().into())]);
    let elsewhere = elsewhere.stepgate(["--url", &gateway.url(), "ready", "--json"], "");
    assert_eq!((elsewhere.code, elsewhere.stdout.as_str()), (0, "{\"status\":\"ready\"}\n"));
    drop(gateway);
    let gone = place.stepgate(["ready"], "");
    assert_eq!(gone.code, 1);
    assert!(gone.stderr.contains("no gateway serves"), "{gone:?}");
}

#[test]
fn the_sample_configuration_is_printed_and_starts_a_gateway() {
    let place = Place::new();
    let sample = place.stepgate(["config", "sample"], "").stdout;
    fs::create_dir_all(place.path()).unwrap();
    fs::write(place.path().join("stepgate.toml"), &sample).unwrap();
    let gateway = Gateway::start(&place);
    assert_eq!(gateway.send("GET", "/readyz", "", "").status, 200);
}

#[test]
fn what_is_proposed_is_readable_by_its_owner_alone() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    let mode = fs::metadata(place.database()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_works_on_the_directory_refuses_an_address() {
    let place = used();
    for command in ["verify", "nodes", "doctor", "serve"] {
        let refused = place.stepgate(["--url", "http://127.0.0.1:1", command], "");
        assert_eq!(refused.code, 1, "{command}");
        assert!(refused.stderr.contains("leave out --url"), "{command}: {}", refused.stderr);
    }
}

#[test]
fn a_second_writer_gets_a_clear_error_and_readers_do_not_wait() {
    let place = used();
    let mut holder = place
        .command(["step", "--lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = holder.stdin.take().unwrap();
    writeln!(stdin, "{}", proposal(9, "THINK", json!({}))).unwrap();
    let mut first = [0; 1];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut first).unwrap();
    let second = place.stepgate(["run", "THINK"], "");
    assert_eq!(second.code, 1);
    let expected = format!("in use by process {}", holder.id());
    assert!(second.stderr.contains(&expected), "{}", second.stderr);
    // The lock is the directory's: whoever removes the file that names its holder gets nothing by it.
    fs::remove_file(place.path().join("lock")).unwrap();
    let second = place.stepgate(["run", "THINK"], "");
    assert!(second.code == 1 && second.stderr.contains("in use by another process"), "{second:?}");
    let recovering = place.stepgate(["recover"], "");
    assert!(recovering.stderr.contains("in use by another process"), "{recovering:?}");
    assert_eq!(place.stepgate(["runs"], "").code, 0);
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    drop(stdin);
    holder.wait().unwrap();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
}

#[test]
fn a_wrong_usage_ends_with_1_and_help_with_0() {
    let place = Place::new();
    let wrong: [&[&str]; 5] =
        [&[], &["fly"], &["step", "--fast"], &["runs", "--limit", "0"], &["run"]];
    for args in wrong {
        let output = place.stepgate(args, "");
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains("--help"), "{args:?}: {}", output.stderr);
    }
    for args in [["--help"], ["--version"], ["help"]] {
        let output = place.stepgate(args, "");
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
    }
}

/// Runs the command with nobody at the other end of its output.
fn unheard(command: &mut std::process::Command, input: &str) -> (i32, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child =
        command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error_but_a_response_that_nobody_gets_is() {
    let place = used();
    let reading: [(&[&str], &str); 11] = [
        (&["runs"], ""),
        (&["runs", "--json"], ""),
        (&["runs", "show", "last"], ""),
        (&["runs", "export", "last"], ""),
        (&["verify"], ""),
        (&["doctor", "--json"], ""),
        (&["canon"], "{}"),
        (&["digest"], "{}"),
        (&["completions", "bash"], ""),
        (&["mcp"], "what is no JSON is answered too\n"),
        (&["recover"], ""),
    ];
    for (args, input) in reading {
        assert_eq!(unheard(&mut place.command(args), input), (0, String::new()), "{args:?}");
    }
    let line = proposal(1, "THINK", json!({})) + "\n";
    let acting: [(&[&str], &str); 3] =
        [(&["run", "THINK"], ""), (&["step"], &line), (&["step", "--lines"], &line)];
    for (args, input) in acting {
        let (code, stderr) = unheard(&mut place.command(args), input);
        assert_eq!(code, 1, "{args:?}: {stderr}");
        assert!(stderr.contains("is recorded, and its response cannot be written"), "{stderr}");
    }
    // What does not hold is still said by the exit code.
    let bundle = place.stepgate(["runs", "export", "last"], "").stdout;
    let changed = bundle.replacen("\"status\":\"ok\"", "\"status\":\"error\"", 1);
    let mut verify = place.command(["verify", "--bundle", "-"]);
    assert_eq!(unheard(&mut verify, &changed), (1, String::new()));
}

#[test]
fn following_events_ends_with_its_reader() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut follow = place.command(["runs", "--follow"]);
    let mut follow = follow.stdin(Stdio::null()).stdout(writer).spawn().unwrap();
    until("it ends", || {
        gateway.propose(&http_client::proposal("THINK", json!({})));
        follow.try_wait().unwrap().is_some()
    });
    assert!(follow.wait().unwrap().success());
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let place = used();
    let commands: [(&[&str], &str); 6] = [
        (&["runs"], ""),
        (&["verify", "--json"], ""),
        (&["runs", "show", "last"], ""),
        (&["digest"], "{}"),
        (&["completions", "zsh"], ""),
        (&["run", "THINK"], ""),
    ];
    for (args, input) in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut child = place
            .command(args)
            .stdin(Stdio::piped())
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains("cannot") && stderr.contains("No space"), "{args:?}: {stderr}");
    }
}

#[test]
fn an_unknown_variable_of_ours_is_refused_before_anything_happens() {
    let place = Place::new();
    for args in [["run", "THINK"].as_slice(), &["verify"], &["doctor"]] {
        let mut command = place.command(args);
        command.env("STEPGATE_LIMITS_PAYLOAD_MAX", "1");
        let output = finish(&mut command, b"");
        assert_eq!(output.code, 1, "{args:?}");
        for name in ["`STEPGATE_LIMITS_PAYLOAD_MAX`", "STEPGATE_LIMITS_PAYLOAD_BYTES_MAX"] {
            assert!(output.stderr.contains(name), "{}", output.stderr);
        }
    }
    assert!(!place.path().exists());
}

#[test]
fn what_verify_says_of_a_tampered_database_cannot_play_tricks_on_the_terminal() {
    let place = used();
    let connection = rusqlite::Connection::open(place.database()).unwrap();
    let triggers: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for trigger in triggers {
        connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    let trick = "\u{1b}]0;owned\u{7}\u{202e}";
    for column in ["tool_name", "status", "principal_id"] {
        connection.execute(&format!("UPDATE tool_runs SET {column} = ?1"), [trick]).unwrap();
        for args in [["verify"].as_slice(), &["runs"], &["runs", "show", "last"], &["recover"]] {
            let output = place.stepgate(args, "");
            let said = output.stdout + &output.stderr;
            assert!(
                !said.is_empty() && !said.contains(['\u{1b}', '\u{7}', '\u{202e}']),
                "{said:?}"
            );
        }
        let verified = place.stepgate(["verify"], "");
        assert_eq!(verified.code, 1, "{column}: {}", verified.stdout);
    }
}

#[tokio::test]
async fn recover_says_what_it_did() {
    let place = used();
    let first: Value =
        serde_json::from_str(&place.stepgate(["recover", "--json"], "").stdout).unwrap();
    assert_eq!(first["finished"], json!([]), "nothing was interrupted");
    let (interrupted, waiting) = interrupt(&place).await;
    let output = place.stepgate(["recover", "--json"], "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let said: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(said["finished"], json!([interrupted]), "{said}");
    assert_eq!(said["waiting"], json!([waiting]), "{said}");
    for none in ["in_doubt", "quarantined", "stuck", "attention"] {
        assert_eq!(said[none], json!([]), "{said}");
    }
    assert_eq!(fs::read_to_string(place.path().join("sandbox/stopped.txt")).unwrap(), "done");
    let shown = place.stepgate(["runs", "show", &interrupted, "--json"], "");
    assert!(shown.stdout.contains("\"ok\""), "{}", shown.stdout);
    let again: Value =
        serde_json::from_str(&place.stepgate(["recover", "--json"], "").stdout).unwrap();
    assert_eq!((&again["finished"], &again["waiting"]), (&json!([]), &json!([waiting])));
}

/// Leaves a step behind that a crash stopped before its act, and one that waits for a person.
async fn interrupt(place: &Place) -> (String, String) {
    let store = SqliteStore::open(&place.database(), Default::default()).unwrap();
    let mut gate = crate::gate::gate(Arc::new(store), &place.path().join("sandbox"));
    // Now, or the question would have expired long ago.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    gate.world = CountingWorld::starting_at(u64::try_from(now).unwrap() - 1_790_000_000_000);
    let real = Arc::clone(&gate.executor);
    gate.executor = Arc::new(Acting(StopsAt { inner: real, name: "stopped" }));
    let write = |number, name: &str| {
        let args = json!({ "path": format!("/sandbox/{name}.txt"), "content": "done" });
        proposal(number, "WRITE_FILE", args)
    };
    crate::gate::submit(&gate, write(1, "stopped")).await.unwrap_err();
    let [interrupted] = gate.store.unfinished_runs().await.unwrap()[..] else { panic!() };
    gate.policy = Arc::new(AskAlways);
    let waiting = crate::gate::submit(&gate, write(2, "waiting")).await.unwrap().run_id;
    (interrupted.to_string(), waiting.to_string())
}

#[test]
fn doctor_finds_policies_and_secrets_with_which_nothing_would_start() {
    let place = used();
    fs::write(place.path().join("policies/broken.cedar"), "permit (principal").unwrap();
    let config = "[agent]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\nkey_env = \"NO_KEY\"\n\
                  [[notify]]\nname = \"desk\"\nkind = \"slack\"\nsecret_url = { env = \"NO_URL\" }\n";
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    let output = place.stepgate(["doctor"], "");
    assert_eq!(output.code, 1, "{output:?}");
    for (name, why) in [
        ("policies", "broken.cedar"),
        ("model", "`NO_KEY` is not set"),
        ("notifications", "`desk`: the variable `NO_URL` is not set"),
    ] {
        let line = output.stdout.lines().find(|line| line.contains(&format!("  {name}  ")));
        let line = line.unwrap_or_else(|| panic!("{name}: {output:?}"));
        assert!(line.starts_with("wrong") && line.contains(why), "{why}: {output:?}");
    }
}

#[test]
fn doctor_finds_nothing_wrong_with_a_used_directory() {
    let place = used();
    let output = place.stepgate(["doctor"], "");
    assert_eq!(output.code, 0, "{}", output.stdout);
    let checks = lines_of_json(&place.stepgate(["doctor", "--json"], "").stdout);
    assert!(checks.iter().all(|check| check["ok"] == json!(true)), "{checks:?}");
}

#[test]
fn the_last_run_is_the_directorys_own_and_not_that_of_another_principal() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let made = place.stepgate(["token", "create", "--name", "bob", "--role", "agent"], "").stdout;
    let own = place.stepgate(["run", "THINK", "--reasoning", "mine"], "");
    assert_eq!(own.code, 0, "{}", own.stderr);
    let others = http_client::proposal("FINISH", json!({ "response": "his" }));
    assert_eq!(gateway.send("POST", "/v1/steps", made.trim(), &others).status, 200);
    let last = place.stepgate(["runs", "show", "last", "--json"], "");
    let last: Value = serde_json::from_str(&last.stdout).unwrap();
    assert_eq!(
        (&last["run"]["principal_id"], &last["run"]["tool_name"]),
        (&json!("agent"), &json!("THINK"))
    );
    // Over a URL it is the newest run that the token sees; stderr names its principal.
    let token = place.path().join("operator.token");
    let url = gateway.url();
    let args = ["--url", &url, "--token-file", token.to_str().unwrap(), "runs", "show", "last"];
    let newest = place.stepgate(args, "");
    assert!(newest.stderr.contains("of `bob`"), "{newest:?}");
}
