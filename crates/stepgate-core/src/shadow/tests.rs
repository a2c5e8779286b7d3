use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::call::ServerCall;
use crate::digest::Digest;
use crate::facts::Facts;
use crate::ids::PrincipalId;
use crate::json::Map;
use crate::ports::PolicyErasable;
use crate::tool::{Tool, ToolName};

fn call() -> Call {
    let name = ToolName::parse("sonos.set_volume").unwrap();
    let args = Map::from_iter([("volume".to_owned(), json!(50))]);
    Call::Server(ServerCall { tool: Arc::new(Tool::gone(name)), args })
}

fn decision(verdict: PolicyVerdict) -> PolicyDecision {
    PolicyDecision {
        verdict,
        policies: vec!["one".into()],
        policy_hash: Digest::ZERO,
        caps: BTreeMap::new(),
        detail: None,
        defaults: Map::new(),
        due: vec![],
        erasable: PolicyErasable::default(),
    }
}

fn ask(reason: &str, approver: &str, quorum: u32) -> PolicyDecision {
    let required = vec![Required { approvers: BTreeSet::from([approver.to_owned()]), quorum }];
    decision(PolicyVerdict::RequireApproval(ApprovalNeed { reason: reason.to_owned(), required }))
}

fn capped(verdict: PolicyVerdict, max: i64) -> PolicyDecision {
    let caps = BTreeMap::from([("volume".to_owned(), max), ("bass".to_owned(), max)]);
    PolicyDecision { caps, ..decision(verdict) }
}

#[test]
fn decisions_differ_in_answer_arguments_and_approvers_and_in_nothing_else() {
    use PolicyVerdict::{Deny, Permit};
    let renamed = PolicyDecision {
        policies: vec!["another".into()],
        policy_hash: Digest::of("another"),
        detail: Some("another".into()),
        ..decision(Permit)
    };
    let rows = [
        (decision(Permit), renamed, false),
        (decision(Permit), decision(Deny), true),
        (decision(Permit), decision(PolicyVerdict::RequireApproval("why".into())), true),
        (decision(Deny), ask("why", "ann", 1), true),
        (ask("why", "ann", 1), ask("because", "ann", 1), false),
        (ask("why", "ann", 1), ask("why", "bob", 1), true),
        (ask("why", "ann", 1), ask("why", "ann", 2), true),
        (ask("why", "ann", 1), decision(PolicyVerdict::RequireApproval("why".into())), true),
        (decision(Permit), capped(Permit, 30), true),
        (capped(Permit, 30), capped(Permit, 40), true),
        // 50 is not lowered by either, and there is no bass.
        (decision(Permit), capped(Permit, 50), false),
        (capped(Permit, 50), capped(Permit, 60), false),
    ];
    for (one, other, expected) in rows {
        assert_eq!(differs(&call(), &one, &other), expected, "{one:?} {other:?}");
        assert_eq!(differs(&call(), &other, &one), expected, "{other:?} {one:?}");
    }
}

#[test]
fn an_event_has_the_answer_and_what_it_requires_of_both() {
    let principal_id = PrincipalId::parse("agent").unwrap();
    let call = call();
    let request =
        PolicyRequest { principal_id: &principal_id, call: &call, facts: &Facts::default() };
    let shadow = ask("loud", "ann", 2);
    let stored = difference(request, &capped(PolicyVerdict::Permit, 30), &shadow);
    let expected = json!({
        "in_force": {
            "caps": { "volume": 30 }, "detail": null, "policies": ["one"], "policy_hash": Digest::ZERO,
            "reason": null, "required": [], "verdict": "permit",
        },
        "principal_id": "agent",
        "shadow": {
            "caps": {}, "detail": null, "policies": ["one"], "policy_hash": Digest::ZERO,
            "reason": "loud", "required": [{ "approvers": ["ann"], "quorum": 2 }],
            "verdict": "approval",
        },
        "tool": "sonos.set_volume",
    });
    assert_eq!(serde_json::to_value(stored).unwrap(), expected);
}
