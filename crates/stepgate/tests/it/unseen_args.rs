//! Arguments that policies cannot see, declared defaults and caps, from the proposal to the record.

use std::fs;

use serde_json::{Value, json};

use crate::console::{log_in, page};
use crate::gate::{id, proposal};
use crate::http_client::{Gateway, Reply};
use crate::scene::Scene;

const POLICIES: &str = r#"
    @id("act") permit (principal, action == Action::"fixture.act", resource);
    @id("large") @approval("it is much")
    permit (principal, action == Action::"fixture.act", resource)
    when { context.args.value.greaterThan(decimal("100.0")) };
    @id("fee") @approval("it is dear")
    permit (principal, action == Action::"fixture.act", resource)
    when { context.args has fee && context.args.fee > 100 };
    @id("few") @cap("count <= 30")
    permit (principal, action == Action::"fixture.act", resource)
    when { context.args has count };
    @id("thirty") @approval("it is thirty")
    permit (principal, action == Action::"fixture.act", resource)
    when { context.args has count && context.args.count == 30 };
    @id("core") permit (principal, action in Action::"core", resource);
"#;

fn scene() -> Scene {
    let scene = Scene::with("honours_key = true", &["--numbers"]);
    fs::write(scene.place.path().join("policies/all.cedar"), POLICIES).unwrap();
    scene
}

/// Proposes these arguments, as they are spelled.
fn ask(gateway: &Gateway, number: u32, args: &str) -> Reply {
    let payload = proposal(number, "fixture.act", json!({}));
    gateway.propose(&payload.replace("\"args\":{}", &format!("\"args\":{args}")))
}

#[test]
fn no_spelling_of_a_number_reaches_the_tool_around_a_policy() {
    let scene = scene();
    let gateway = Gateway::start(&scene.place);
    let rows = [
        (r#"{"value":100,"fee":1}"#, 200),
        (r#"{"value":1e2,"fee":1}"#, 200),
        (r#"{"value":101,"fee":1}"#, 202),
        (r#"{"value":100.01,"fee":1}"#, 202),
        (r#"{"value":100.00001,"fee":1}"#, 403),
        (r#"{"value":1e300,"fee":1}"#, 403),
    ];
    for (number, (args, status)) in (1..).zip(rows) {
        let reply = ask(&gateway, number, args);
        assert_eq!(reply.status, status, "{args}: {}", reply.body);
    }
    assert_eq!(scene.effects(), 2);

    // The record names the argument, the cause and the policy; the agent is not told.
    let why = "policies cannot see `value`, because it is beyond ±922337203685477.5807, and `large` reads it";
    let denied = ask(&gateway, 6, r#"{"value":1e300,"fee":1}"#);
    assert!(!denied.body.contains("cannot see"), "{}", denied.body);
    let run = denied.headers["stepgate-run"].clone();
    let shown = scene.stepgate(&["runs", "show", &run]);
    assert!(shown.stdout.contains(why), "{}", shown.stdout);
    let explained =
        scene.stepgate(&["policy", "explain", "fixture.act", "value=1e-5", "fee=1"]).stdout;
    let why = "policies cannot see `value`: it is more precise than four decimal places";
    assert!(explained.contains(why), "{explained}");
    drop(gateway);
    scene.verified();
}

#[test]
fn the_default_that_a_tool_declares_is_decided_on_and_shown() {
    let scene = scene();
    let gateway = Gateway::start(&scene.place);
    assert_eq!(ask(&gateway, 1, r#"{"value":1,"fee":100}"#).status, 200);
    let asked = ask(&gateway, 2, r#"{"value":1}"#);
    assert_eq!((asked.status, scene.effects()), (202, 1), "{}", asked.body);
    let approvals = scene.stepgate(&["approvals"]).stdout;
    assert!(approvals.contains(r#"by default  {"/fee":500}"#), "{approvals}");
    let path = format!("/approvals/{}", scene.pending());
    let (_, cookie) = log_in(&gateway, &gateway.operator, &path);
    let page = page(&gateway, &path, &cookie).body;
    assert!(page.contains("not given; the tool") && page.contains("500"), "{page}");
    let explained = scene.stepgate(&["policy", "explain", "fixture.act", "value=1"]).stdout;
    let told = "`fee` is not given: policies see the tool's default, 500";
    assert!(explained.contains(told), "{explained}");
    drop(gateway);
    scene.verified();
}

#[test]
fn what_a_cap_makes_of_the_arguments_is_decided_on_again() {
    let scene = scene();
    let gateway = Gateway::start(&scene.place);
    assert_eq!(ask(&gateway, 1, r#"{"value":1,"fee":1,"count":29}"#).status, 200);
    let asked = ask(&gateway, 2, r#"{"value":1,"fee":1,"count":50}"#);
    assert_eq!((asked.status, scene.effects()), (202, 1), "{}", asked.body);
    let pending = scene.stepgate(&["approvals", "--json"]).stdout;
    let pending: Value = serde_json::from_str(&pending).unwrap();
    assert_eq!(pending["context"]["args"]["count"], 30, "{pending}");
    assert_eq!(asked.json()["proposal_id"], id(2));
    drop(gateway);
    scene.verified();
}
