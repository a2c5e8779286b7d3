//! Notifications: a gateway as a process of its own, and receivers that a test holds in its hands.

pub(crate) mod nodes;
pub(crate) mod receivers;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::binary::{Place, finish};
use crate::http_client::{Gateway, proposal};
use crate::mcp_scene::{fixture, installed};
use crate::scene::{Scene, approve, kill, until};
use receivers::{MailSink, Sink, free_address};

/// The key of every webhook here.
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";
/// What no message may contain: it is an argument.
const CONTENT: &str = "the-content-that-stays-here";
/// What a policy says, in the words of an operator who likes markup.
const REASON: &str = "*bold* <!channel> [x](http://evil.example) & `code`";

/// A place whose agent must ask before it writes.
fn place(config: &str) -> Place {
    let place = Place::new();
    configure(&place, config);
    place
}

fn configure(place: &Place, config: &str) {
    fs::create_dir_all(place.path().join("policies")).unwrap();
    let policies = format!(
        "@id(\"ask\") @approval({REASON:?})\n\
         permit (principal, action == Action::\"WRITE_FILE\", resource);\n\
         @id(\"think\") permit (principal, action == Action::\"THINK\", resource);"
    );
    fs::write(place.path().join("policies/all.cedar"), policies).unwrap();
    fs::write(place.path().join("webhook.key"), KEY).unwrap();
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
}

fn webhook(name: &str, address: &str, more: &str) -> String {
    format!(
        "[[notify]]\nname = {name:?}\nkind = \"webhook\"\nurl = \"http://{address}/hook\"\n\
         secret = {{ file = \"webhook.key\" }}\n{more}\n"
    )
}

/// Asks for a file to be written; the approval that this waits for.
fn ask(gateway: &Gateway) -> String {
    let path = format!("/sandbox/{}.txt", uuid::Uuid::new_v4());
    let args = json!({ "path": path, "content": CONTENT });
    let reply = gateway.propose(&proposal("WRITE_FILE", args)).json();
    reply["result"]["approval_id"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// The approvals that a webhook was told of, by the type of the message.
fn told(sink: &Sink, kind: &str) -> BTreeSet<String> {
    let bodies = sink.requests().into_iter().map(|request| request.json());
    let of_kind = bodies.filter(|body| body["type"] == kind);
    of_kind.map(|body| body["data"]["approval_id"].as_str().unwrap().to_owned()).collect()
}

fn verify_by_library(headers: &[(String, String)], body: &str) -> Option<Value> {
    let headers: serde_json::Map<String, Value> =
        headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let asked = json!({ "secret": KEY, "headers": headers, "body": body }).to_string();
    let mut python = Command::new(installed().join("python-notify/bin/python"));
    let output = finish(python.arg(fixture("verify_webhook.py")), asked.as_bytes());
    (output.code == 0).then(|| serde_json::from_str(&output.stdout).unwrap())
}

#[test]
fn a_webhook_is_verified_by_the_official_library() {
    let sink = Sink::start();
    let place = place(&webhook("on-call", &sink.address, ""));
    let gateway = Gateway::start(&place);
    let approval = ask(&gateway);
    until("the webhook is told", || !sink.requests().is_empty());
    let request = sink.requests().remove(0);
    let body = verify_by_library(&request.headers, &request.body).expect("the library accepts it");
    assert_eq!(body["type"], "approval_requested");
    let data = &body["data"];
    assert_eq!(data["url"], format!("{}/approvals/{approval}", gateway.url()));
    assert_eq!(data["reason"], REASON);
    assert_eq!((&data["tool"], &data["principal_id"]), (&"WRITE_FILE".into(), &"agent".into()));
    assert_eq!(data["title"], "Approval needed: WRITE_FILE");
    assert!(data["expires_at"].is_string() && data["status"] == "pending");
    let altered = request.body.replace("WRITE_FILE", "READ_FILE");
    assert_eq!(verify_by_library(&request.headers, &altered), None);
}

#[test]
fn every_kind_is_told_and_none_of_an_argument() {
    let (sink, mail) = (Sink::start(), MailSink::start());
    let address = &sink.address;
    let config = webhook("hook", address, "")
        + &format!(
            "[[notify]]\nname = \"chat\"\nkind = \"slack\"\nsecret_url = {{ file = \"slack.url\" }}\n\
             [[notify]]\nname = \"phone\"\nkind = \"ntfy\"\nurl = \"http://{address}/topic\"\n\
             [[notify]]\nname = \"mail\"\nkind = \"mail\"\nhost = \"127.0.0.1\"\nport = {}\n\
             encryption = \"none\"\nfrom = \"Stepgate <gate@example.com>\"\n\
             to = [\"ann@example.com\", \"Bob <bob@example.com>\"]\n",
            mail.port
        );
    let place = place(&config);
    fs::write(place.path().join("slack.url"), format!("http://{address}/services/T/B/x\n"))
        .unwrap();
    let gateway = Gateway::start(&place);
    let approval = ask(&gateway);
    let link = format!("{}/approvals/{approval}", gateway.url());
    until("three kinds are told", || sink.requests().len() == 3);
    let request = |path: &str| {
        let found = sink.requests().into_iter().find(|request| request.path == path);
        found.unwrap_or_else(|| panic!("nothing came to {path}"))
    };
    let chat = request("/services/T/B/x").json()["text"].as_str().unwrap().to_owned();
    // The operator's markup is text: in a code span, escaped, and the span has no end inside.
    let reason = "Reason: `*bold* &lt;!channel&gt; [x](http://evil.example) &amp; 'code'`";
    assert!(chat.contains(reason) && chat.contains(&link), "{chat}");
    let phone = request("/").json();
    assert_eq!((&phone["topic"], &phone["click"]), (&"topic".into(), &link.clone().into()));
    let letter = mail.next();
    assert_eq!(letter["to"], json!(["ann@example.com", "bob@example.com"]));
    let header = |name: &str| {
        let headers = letter["headers"].as_array().unwrap();
        headers.iter().find(|header| header[0] == name).map(|header| header[1].clone())
    };
    assert_eq!(header("Subject"), Some("[Stepgate] Approval needed: WRITE_FILE".into()));
    assert_eq!(header("Auto-Submitted"), Some("auto-generated".into()));
    let text = letter["text"].as_str().unwrap();
    assert!(text.contains(REASON) && text.contains(&link), "{text}");
    for request in sink.requests() {
        assert!(!format!("{request:?}").contains(CONTENT), "{request:?}");
    }
    assert!(!letter.to_string().contains(CONTENT));
}

/// A receiver, as `notify list` has it.
fn listed(place: &Place, name: &str) -> Value {
    let listed = place.stepgate(["notify", "list", "--json"], "").stdout;
    let mut lines = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["name"] == name).unwrap()
}

#[test]
fn nothing_is_lost_while_a_receiver_is_down_and_the_gateway_is_killed() {
    let (down, up) = (free_address(), Sink::start());
    let place = place(&(webhook("down", &down, "") + &webhook("up", &up.address, "")));
    let mut asked = BTreeSet::new();
    for _ in 0..2 {
        let mut gateway = Gateway::start(&place);
        asked.extend((0..3).map(|_| ask(&gateway)));
        gateway.until_it_says("notifications to down fail, and are tried again");
        // One that is broken does not hold up another.
        until("the other receiver is told", || told(&up, "approval_requested") == asked);
        until("its cursor is moved", || listed(&place, "up")["waiting"] == 0);
        kill(gateway);
    }
    let waiting = listed(&place, "down");
    assert!(waiting["waiting"] == 6 && waiting["last_error"].is_string(), "{waiting}");
    let sink = Sink::at(&down);
    let gateway = Gateway::start(&place);
    until("everything has arrived", || told(&sink, "approval_requested") == asked);
    // In their order, and what arrived is not sent again after the next start.
    let ids: Vec<_> = sink.requests().iter().map(|it| it.header("webhook-id")).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    until("the cursor is moved", || listed(&place, "down")["waiting"] == 0);
    kill(gateway);
    let gateway = Gateway::start(&place);
    asked.insert(ask(&gateway));
    until("the last one has arrived", || told(&sink, "approval_requested") == asked);
    assert!(sink.requests().len() <= asked.len() + 1, "{}", sink.requests().len());
    drop(gateway);
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn a_slow_receiver_does_not_slow_a_step() {
    let sink = Sink::start();
    sink.answer_after(Duration::from_secs(60));
    let place = place(&webhook("slow", &sink.address, "timeout_ms = 60000"));
    let gateway = Gateway::start(&place);
    ask(&gateway);
    until("it is called", || !sink.requests().is_empty());
    let begin = Instant::now();
    for _ in 0..20 {
        ask(&gateway);
        assert_eq!(gateway.propose(&proposal("THINK", json!({}))).status, 200);
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(sink.requests().len(), 1);
}

#[test]
fn what_a_receiver_refuses_for_good_is_skipped_and_told() {
    let sink = Sink::start();
    sink.answer(400);
    let place = place(&webhook("picky", &sink.address, ""));
    let mut gateway = Gateway::start(&place);
    ask(&gateway);
    gateway.until_it_says("picky refuses a notification, which is skipped: it answered 400");
    assert_eq!(sink.requests().len(), 5);
    let count = |outcome: &str| {
        let label = format!("{{receiver=\"picky\",outcome=\"{outcome}\"}}");
        gateway.metric(&format!("stepgate_notifications_total{label}"))
    };
    assert_eq!((count("skipped"), count("failed"), count("delivered")), (1, 5, 0));
    assert_eq!(gateway.metric("stepgate_notify_receivers_failing{receiver=\"picky\"}"), 1);
    assert!(place.stepgate(["notify", "list"], "").stdout.contains("a message was skipped"));
    sink.answer(200);
    let second = ask(&gateway);
    gateway.until_it_says("notifications to picky arrive again");
    assert!(told(&sink, "approval_requested").contains(&second));
}

#[test]
fn a_receiver_of_a_new_name_is_told_from_now_on() {
    let sink = Sink::start();
    let place = place("");
    let gateway = Gateway::start(&place);
    ask(&gateway);
    drop(gateway);
    configure(&place, &webhook("new", &sink.address, ""));
    let gateway = Gateway::start(&place);
    let cursor = || place.stepgate(["notify", "list"], "").stdout;
    until("it has begun", || !cursor().contains("never started"));
    let second = ask(&gateway);
    until("it is told", || !sink.requests().is_empty());
    assert_eq!(told(&sink, "approval_requested"), [second].into());
    assert_eq!(sink.requests().len(), 1);
}

#[test]
fn what_is_not_decided_is_escalated_and_reminded_of_across_a_crash() {
    let (first, second) = (Sink::start(), Sink::start());
    let more = "events = [\"approval_requested\"]\nremind_before_ms = 6000\n\
                escalate_after_ms = 3000\nescalate_to = [\"second\"]";
    let config = "[limits]\napproval_ttl_ms = 12000\n".to_owned()
        + &webhook("first", &first.address, more)
        + &webhook("second", &second.address, "events = []");
    let place = place(&config);
    let gateway = Gateway::start(&place);
    let (open, decided) = (ask(&gateway), ask(&gateway));
    assert_eq!(approve(&gateway, &decided).status, 200);
    until("the first is told", || told(&first, "approval_requested").len() == 2);
    assert!(second.requests().is_empty());
    // No process runs when it becomes due.
    kill(gateway);
    std::thread::sleep(Duration::from_secs(4));
    let gateway = Gateway::start(&place);
    until("the second is told", || !second.requests().is_empty());
    until("the first is reminded", || !told(&first, "approval_reminder").is_empty());
    drop(gateway);
    assert_eq!(told(&second, "approval_escalated"), [open.clone()].into());
    assert_eq!(told(&first, "approval_reminder"), [open].into());
    let title = second.requests()[0].json()["data"]["title"].clone();
    assert_eq!(title, "Approval not decided since first was told: WRITE_FILE");
    // The kill may have come between a message and its cursor: that message has come twice, with one id.
    let ids = |sink: &Sink| {
        let ids = sink.requests().into_iter().map(|request| request.header("webhook-id"));
        ids.collect::<BTreeSet<_>>().len()
    };
    assert_eq!((ids(&second), ids(&first)), (1, 3));
}

#[test]
fn a_call_in_doubt_is_told_with_its_tool_and_none_of_its_arguments() {
    let sink = Sink::start();
    let scene = Scene::new("in_doubt = \"ask\"");
    let file = scene.place.path().join("stepgate.toml");
    let config = fs::read_to_string(&file).unwrap() + &webhook("on-call", &sink.address, "");
    fs::write(&file, config).unwrap();
    fs::write(scene.place.path().join("webhook.key"), KEY).unwrap();
    fs::write(scene.file("hold-after"), "").unwrap();
    let gateway = Gateway::start(&scene.place);
    let reply = gateway.propose(&proposal("fixture.act", json!({ "value": 97 }))).json();
    approve(&gateway, reply["result"]["approval_id"].as_str().unwrap());
    until("the tool has acted", || scene.effects() == 1);
    kill(gateway);
    fs::remove_file(scene.file("hold-after")).unwrap();
    let _gateway = Gateway::start(&scene.place);
    let in_doubt = || {
        let bodies = sink.requests().into_iter().map(|request| request.json());
        bodies.into_iter().find(|body| body["type"] == "run_needs_person")
    };
    until("a person is told", || in_doubt().is_some());
    let data = in_doubt().unwrap()["data"].clone();
    assert_eq!(data["title"], "A run needs a person: fixture.act");
    assert_eq!((&data["reason"], &data["principal_id"]), (&"in doubt".into(), &"agent".into()));
    assert_eq!(data["run_id"], reply["result"]["run_id"]);
    assert!(sink.requests().iter().all(|request| !request.body.contains("value")));
}

#[test]
fn a_test_message_says_for_each_receiver_whether_it_arrived() {
    let (sink, mail) = (Sink::start(), MailSink::start());
    let config = webhook("fine", &sink.address, "")
        + &webhook("down", &free_address(), "")
        + &format!(
            "[[notify]]\nname = \"mail\"\nkind = \"mail\"\nhost = \"127.0.0.1\"\nport = {}\n\
             encryption = \"starttls\"\nfrom = \"gate@example.com\"\nto = [\"ann@example.com\"]\n",
            mail.port
        );
    let place = place(&config);
    let one = place.stepgate(["notify", "test", "fine"], "");
    assert_eq!((one.code, one.stdout.as_str()), (0, "fine: arrived\n"), "{one:?}");
    assert_eq!(sink.requests()[0].json()["type"], "test");
    let all = place.stepgate(["notify", "test"], "");
    assert_eq!(all.code, 1, "{all:?}");
    let lines: Vec<&str> = all.stdout.lines().collect();
    assert!(lines[0].starts_with("down: did not arrive: ") && lines[1] == "fine: arrived");
    // A server that does not offer encryption gets nothing.
    assert!(lines[2].starts_with("mail: did not arrive: "), "{lines:?}");
    fs::remove_file(place.path().join("webhook.key")).unwrap();
    let without_key = place.stepgate(["notify", "test", "fine"], "");
    assert!(without_key.code == 1 && without_key.stdout.contains("webhook.key`: No such file"));
    let none = place.stepgate(["notify", "test", "nobody"], "");
    assert_eq!(none.code, 1);
    assert!(none.stderr.contains("the configuration has fine, down, mail"), "{none:?}");
}
