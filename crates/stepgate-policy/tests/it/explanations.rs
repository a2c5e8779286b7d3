//! Why a call is decided as it is.

use serde_json::json;
use stepgate_core::facts::Facts;
use stepgate_policy::{Effect, Outcome, Verdict};

use crate::world::{call, principal, server_call, set, shape};

const POLICIES: &str = r#"
@id("plain") permit (principal, action in Action::"core", resource);
@id("ask") @approval("it moves") permit (principal, action == Action::"RENAME_FILE", resource in Path::"/sandbox/a");
@id("keep") forbid (principal, action == Action::"RENAME_FILE", resource in Path::"/sandbox/b");
@id("music") @cap("volume <= 3") permit (principal, action == Action::"sonos.set_volume", resource)
    when { context.args.volume * 9223372036854775807 > 0 };
"#;

#[test]
fn a_rename_is_explained_at_both_ends() {
    let set = set(POLICIES);
    let rename = call(
        "RENAME_FILE",
        json!({ "source": "/sandbox/a/x.txt", "destination": "/sandbox/b/x.txt" }),
    );
    let explanation = set.explain(&principal("agent"), &rename, &Facts::default());
    assert_eq!(explanation.verdict, Verdict::Deny);
    assert_eq!(explanation.policies, ["keep"]);
    assert_eq!(explanation.policy_hash, set.digest());
    let told: Vec<_> = explanation
        .requests
        .iter()
        .map(|request| {
            let outcomes: Vec<_> = request
                .policies
                .iter()
                .map(|policy| {
                    (policy.name.as_str(), policy.effect, policy.line, policy.outcome.clone())
                })
                .collect();
            (request.resource.as_str(), request.verdict, request.reason.as_deref(), outcomes)
        })
        .collect();
    let row = |ask, keep| {
        vec![
            ("plain", Effect::Permit, Some(2), Outcome::Matched),
            ("ask", Effect::Permit, Some(3), ask),
            ("keep", Effect::Forbid, Some(4), keep),
        ]
    };
    let expected = vec![
        (
            "Path::\"/sandbox/a/x.txt\"",
            Verdict::Approval,
            Some("it moves"),
            row(Outcome::Matched, Outcome::NotMatched),
        ),
        (
            "Path::\"/sandbox/b/x.txt\"",
            Verdict::Deny,
            None,
            row(Outcome::NotMatched, Outcome::Matched),
        ),
    ];
    assert_eq!(told, expected);
}

#[test]
fn an_error_is_explained_and_serialised() {
    let set = set(POLICIES);
    let explanation = set.explain(
        &principal("agent"),
        &call("sonos.set_volume", json!({ "volume": 2 })),
        &Facts::default(),
    );
    let policy = &explanation.requests[0].policies[0];
    let value = serde_json::to_value(&explanation).unwrap();
    assert!(matches!(&policy.outcome, Outcome::Errored(message) if message.contains("overflow")));
    assert_eq!(value["verdict"], "deny");
    assert_eq!(value["policies"], json!(["music"]));
    assert_eq!(value["caps"], json!({}));
    assert_eq!(value["requests"][0]["policies"][0]["caps"], json!({ "volume": 3 }));
    assert_eq!(value["requests"][0]["policies"][0]["line"], json!(5));
}

#[test]
fn a_tool_that_was_not_known_is_explained() {
    let unknown = shape("radio.play", stepgate_core::tool::Mode::Draft, json!({}));
    let explanation = set(POLICIES).explain(
        &principal("agent"),
        &server_call(&unknown, serde_json::Map::new()),
        &Facts::default(),
    );
    let why = "the policies were loaded without this tool; reload them";
    assert_eq!(explanation.not_asked.as_deref(), Some(why));
    assert_eq!((explanation.verdict, explanation.requests.len()), (Verdict::Deny, 0));
}
