//! A gateway from its first start to its end, whichever way it ends.

use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::binary::{Place, finish};
use crate::http_client::{Gateway, exchange, proposal, request};

#[test]
fn the_first_start_makes_two_tokens_that_only_the_owner_can_read_and_the_next_leaves_them() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let tokens = (gateway.operator.clone(), gateway.agent.clone());
    for name in ["operator.token", "agent.token", "stepgate.sock"] {
        let mode = place.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let text = gateway.greeting.join("\n");
    assert!(!text.contains("sg_"), "{text}");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    assert!(!place.path().join("stepgate.sock").exists());
    let gateway = Gateway::start(&place);
    assert_eq!((gateway.operator.clone(), gateway.agent.clone()), tokens);
    assert_eq!(
        gateway.send("GET", "/v1/tokens", &gateway.operator, "").json()["tokens"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let database = std::fs::read(place.database()).unwrap();
    let held = |token: &str| database.windows(token.len()).any(|part| part == token.as_bytes());
    assert!(!held(&gateway.operator) && !held(&gateway.agent));
}

#[test]
fn the_greeting_s_curl_works_when_it_is_pasted() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let line = gateway.greeting.iter().find_map(|line| line.strip_prefix("try ")).unwrap();
    let mut shell = std::process::Command::new("sh");
    let output = finish(shell.arg("-c").arg(line), b"");
    if output.stderr.contains("curl: not found") {
        return;
    }
    let response: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(response["outcome"], "SUCCESS", "{output:?}");
}

#[test]
fn the_log_has_a_line_for_each_request_and_no_secret() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let secrets = [gateway.operator.clone(), gateway.agent.clone(), "hunter2".to_owned()];
    gateway.propose(&proposal("FINISH", json!({ "response": "hunter2" })));
    gateway.send("GET", "/v1/runs?tool=hunter2", &gateway.operator, "");
    gateway.send("GET", "/v1/runs", "sg_hunter2", "");
    gateway.signal(Signal::INT);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0));
    for line in ["POST /v1/steps 200 ", "GET /v1/runs 200 ", "GET /v1/runs 401 "] {
        assert!(log.contains(line), "{line} is not in\n{log}");
    }
    for secret in secrets {
        assert!(!log.contains(&secret), "{log}");
    }
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    gateway.propose(&proposal("THINK", json!({})));
    gateway.signal(Signal::TERM);
    assert!(!gateway.end().1.contains("/v1/steps"));
}

#[test]
fn a_log_of_json_names_the_request_and_the_response_repeats_its_name() {
    let place = Place::new();
    let gateway = Gateway::start_with(&place, &["--log-format", "json"]);
    let names = ["from-the-caller", "has a space", &"x".repeat(129)];
    let returned = names.map(|name| {
        let head = [("x-request-id", name)];
        let sent = request("GET", "/v1/runs", &gateway.operator, &head, "");
        exchange(gateway.address, sent.as_bytes()).unwrap().headers["x-request-id"].clone()
    });
    assert_eq!(returned[0], names[0]);
    // What could not be a name of its own is replaced.
    assert!(returned[1..].iter().all(|name| name.parse::<uuid::Uuid>().is_ok()), "{returned:?}");
    gateway.send("GET", "/v1/runs", "sg_unknown", "");
    gateway.signal(Signal::TERM);
    let (_, log) = gateway.end();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| lines.iter().find(|line| line["request_id"] == name).unwrap();
    for name in &returned {
        let line = of(name);
        assert_eq!((&line["level"], &line["status"]), (&json!("info"), &json!(200)), "{line}");
        assert_eq!(line["principal"], "operator", "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    let refused = lines.iter().find(|line| line["level"] == "warn").unwrap();
    assert_eq!(refused["address"], "127.0.0.1", "{refused}");
}

#[test]
fn commands_on_a_held_directory_are_clients_of_its_holder() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let run = place.stepgate(["run", "WRITE_FILE", "path=/sandbox/a.txt", "content=hi"], "");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let step =
        place.stepgate(["step", "-"], proposal("READ_FILE", json!({ "path": "/sandbox/a.txt" })));
    assert!(step.code == 0 && step.stdout.contains(r#""content":"hi""#), "{step:?}");
    assert_eq!(place.stepgate(["step", "-"], "{").code, 10);
    assert_eq!(place.stepgate(["step", "-"], "").code, 10);
    assert_eq!(place.stepgate(["run", "READ_FILE", "path=/sandbox/a.exe"], "").code, 11);
    assert_eq!(place.stepgate(["run", "READ_FILE", "path=/sandbox/b.txt"], "").code, 12);
    // Longer than the gateway reads, in the middle: it is answered like the others.
    let long = "x".repeat(9 * 1024 * 1024);
    let lines = [proposal("THINK", json!({})), String::new(), long, proposal("THINK", json!({}))];
    let lines = place.stepgate(["step", "--lines"], lines.join("\n"));
    assert_eq!((lines.code, lines.stdout.lines().count()), (0, 4), "{lines:?}");
    assert!(lines.stdout.lines().nth(2).unwrap().contains("PAYLOAD_TOO_LARGE"), "{lines:?}");
    let made = place.stepgate(["token", "create", "--name", "ci", "--role", "auditor"], "");
    let token = made.stdout.trim();
    assert_eq!(gateway.send("GET", "/v1/runs", token, "").status, 200, "{made:?}");
    let listed = place.stepgate(["--json", "token", "list"], "");
    let id = listed.stdout.lines().find(|line| line.contains("\"ci\"")).unwrap();
    let id: Value = serde_json::from_str(id).unwrap();
    let revoked = place.stepgate(["token", "revoke", id["token_id"].as_str().unwrap()], "");
    assert_eq!(revoked.code, 0, "{revoked:?}");
    assert_eq!(gateway.send("GET", "/v1/runs", token, "").status, 401);
    assert_eq!(place.stepgate(["approvals"], "").stdout, "no approvals\n");
    let unknown = uuid::Uuid::now_v7().to_string();
    let approve = place.stepgate(["approve", &unknown], "");
    assert!(approve.code == 1 && approve.stdout.contains("refused"), "{approve:?}");
    assert_eq!(place.stepgate(["runs", "resolve", &unknown, "--failed"], "").code, 1);
    let principals = gateway.send("GET", "/v1/runs", &gateway.operator, "").json();
    let all_local =
        principals["runs"].as_array().unwrap().iter().all(|run| run["principal_id"] == "agent");
    assert!(all_local);
    drop(gateway);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

#[test]
fn the_same_commands_work_where_nobody_holds_the_directory() {
    let place = Place::new();
    let made = place.stepgate(["token", "create", "--name", "ci", "--role", "agent"], "");
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(place.stepgate(["approvals"], "").stdout, "no approvals\n");
    let gateway = Gateway::start(&place);
    assert_eq!(gateway.send("GET", "/v1/runs", made.stdout.trim(), "").status, 200);
}

#[test]
fn a_gateway_elsewhere_is_reached_by_its_url() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let elsewhere = Place::new();
    let url = gateway.url();
    let with_token = |token: &str, args: &[&str]| {
        let args = ["--url", url.as_str()].into_iter().chain(args.iter().copied());
        finish(elsewhere.command(args).env("STEPGATE_TOKEN", token), b"")
    };
    let run = with_token(&gateway.agent, &["run", "THINK"]);
    assert_eq!(run.code, 0, "{run:?}");
    let runs = with_token(&gateway.operator, &["runs"]);
    assert!(runs.stdout.contains("THINK"), "{runs:?}");
    for (token, args, word) in [
        (&gateway.agent, ["runs", "show", "last"], "states"),
        (&gateway.operator, ["runs", "show", "last"], "entries"),
        (&gateway.operator, ["runs", "export", "last"], "artifacts"),
    ] {
        assert!(with_token(token, &args).stdout.contains(word), "{args:?}");
    }
    let refused = with_token(&gateway.agent, &["token", "list"]);
    assert!(refused.code == 1 && refused.stderr.contains("(403)"), "{refused:?}");
    let unknown = with_token("sg_x", &["runs"]);
    assert!(unknown.stderr.contains("STEPGATE_TOKEN"), "{unknown:?}");
    for (url, expected) in [
        ("ftp://a", "https://"),
        ("http://a/b", "not an address"),
        ("http://127.0.0.1:1", "serving"),
    ] {
        let output =
            finish(elsewhere.command(["--url", url, "runs"]).env("STEPGATE_TOKEN", "x"), b"");
        assert!(output.code == 1 && output.stderr.contains(expected), "{output:?}");
    }
    assert!(!elsewhere.path().exists());
}

#[test]
fn a_follower_sees_what_happens_and_the_end() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let mut command = place.command(["runs", "--follow"]);
    let mut follower = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let (lines, seen) = std::sync::mpsc::channel();
    let stdout = std::io::BufReader::new(follower.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        stdout.lines().for_each(|line| lines.send(line.unwrap()).unwrap());
    });
    // It follows from now on, and nobody knows when its now is: so something happens until it sees it.
    let deadline = Instant::now() + Duration::from_secs(30);
    while seen.recv_timeout(Duration::from_millis(20)).is_err() {
        assert!(Instant::now() < deadline);
        gateway.propose(&proposal("THINK", json!({})));
    }
    gateway.propose(&proposal("WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "a" })));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    reader.join().unwrap();
    let rest: Vec<String> = seen.iter().collect();
    assert!(rest.last().unwrap().contains("tool_succeeded"), "{rest:?}");
    assert!(rest.last().unwrap().contains("WRITE_FILE"), "{rest:?}");
    let alone = place.stepgate(["runs", "--follow"], "");
    assert!(alone.code == 1 && alone.stderr.contains("stepgate serve"), "{alone:?}");
}

#[test]
fn serve_refuses_what_cannot_be_with_the_way_out() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let (other, taken) = (Place::new(), gateway.address.to_string());
    let rows: [(&Place, &[&str], &str); 5] = [
        (&other, &["serve", "--bind", &taken], "another process listens there"),
        (&other, &["serve", "--bind", "0.0.0.0:0"], "--insecure-bind"),
        (&other, &["serve", "--bind", "[::]:0"], "--insecure-bind"),
        (&other, &["serve", "--bind", "nowhere"], "is not an address"),
        (&place, &["serve", "--bind", "127.0.0.1:0"], "is in use by process"),
    ];
    for (place, args, expected) in rows {
        let output = place.stepgate(args, "");
        assert!(output.code == 1 && output.stderr.contains(expected), "{output:?}");
    }
    std::fs::create_dir_all(other.path()).unwrap();
    std::fs::write(other.path().join("stepgate.toml"), "[serve]\nport = 1\n").unwrap();
    let output = other.stepgate(["serve"], "");
    assert!(
        output.stderr.contains("stepgate.toml") && output.stderr.contains("line 2"),
        "{output:?}"
    );
}

/// Clients that propose until they are told to stop: every answer that they got.
fn load(
    gateway: &Gateway,
    stop: &Arc<AtomicBool>,
) -> Vec<std::thread::JoinHandle<Vec<(String, String)>>> {
    let start = |client: usize| {
        let (address, agent, stop) = (gateway.address, gateway.agent.clone(), Arc::clone(stop));
        std::thread::spawn(move || {
            let mut answers = Vec::new();
            for number in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let args =
                    json!({ "path": format!("/sandbox/{client}-{number}.txt"), "content": "x" });
                let body = proposal("WRITE_FILE", args);
                let request = crate::http_client::request("POST", "/v1/steps", &agent, &[], &body);
                match crate::http_client::exchange(address, request.as_bytes()) {
                    Some(reply) if reply.status == 200 => answers.push((body, reply.body)),
                    Some(reply) => panic!("{reply:?}"),
                    None => break,
                }
            }
            answers
        })
    };
    (0..8).map(start).collect()
}

/// Starts under load, ends in one way, starts again: whoever was answered gets the same answer again.
fn every_answer_stands(end: impl FnOnce(Gateway)) {
    let place = Place::new();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let stop = Arc::new(AtomicBool::new(false));
    let clients = load(&gateway, &stop);
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::read_dir(place.path().join("sandbox")).unwrap().count() < 100 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    end(gateway);
    stop.store(true, Ordering::SeqCst);
    let answers: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    assert!(answers.len() > 50, "{}", answers.len());
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    for (body, answer) in answers.iter().step_by(7) {
        let again = gateway.propose(body);
        assert_eq!((&again.body, again.headers["idempotent-replayed"].as_str()), (answer, "true"));
    }
    let open = gateway.send("GET", "/v1/runs?status=started", &gateway.operator, "").json();
    assert_eq!(open["runs"], json!([]));
    drop(gateway);
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn a_gateway_that_is_told_to_stop_finishes_what_runs() {
    every_answer_stands(|gateway| {
        gateway.signal(Signal::TERM);
        let (code, log) = gateway.end();
        assert_eq!(code, Some(0));
        assert!(!log.contains("left to recovery"), "{log}");
    });
}

#[test]
fn a_gateway_that_is_killed_forgets_nothing_that_it_answered() {
    every_answer_stands(|gateway| {
        gateway.signal(Signal::KILL);
        assert_eq!(gateway.end().0, None);
    });
}
