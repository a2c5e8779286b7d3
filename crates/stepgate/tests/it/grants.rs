//! Grants and quorums, seen from outside: real gateways, real callers, real kills.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::binary::Place;
use crate::http_client::{Gateway, Reply, exchange, proposal, request};
use crate::nodes::House;
use crate::scene::{approve, kill, until};
use crate::terminal::at_a_terminal;

/// How many calls the grant of these tests permits.
const USES: u64 = 20;
/// Callers of each gateway, and the calls that each of them makes.
const CALLERS: usize = 4;
const CALLS: usize = 10;

/// Makes every write a question.
fn asking(place: &Place) {
    asking_under(place, "");
}

/// Makes every write a question, with these annotations. A directory gets its first policies at its first start; their
/// cases permit every write.
fn asking_under(place: &Place, annotations: &str) {
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    let policies = place.path().join("policies");
    fs::remove_file(policies.join("defaults.cases.toml")).unwrap();
    let policy = format!(
        "@id(\"ask\") @approval(\"a file is written\") {annotations}
         permit (principal, action == Action::\"WRITE_FILE\", resource);"
    );
    fs::write(policies.join("ask.cedar"), policy).unwrap();
}

fn write(content: &str) -> String {
    proposal("WRITE_FILE", json!({ "path": "/sandbox/log.txt", "content": content }))
}

/// A call that was approved.
fn approved(gateway: &Gateway) -> String {
    let asked = gateway.propose(&write("log 0"));
    assert_eq!(asked.status, 202, "{asked:?}");
    let approval = asked.json()["result"]["approval_id"].as_str().unwrap().to_owned();
    assert_eq!(approve(gateway, &approval).status, 200);
    let path = format!("/v1/approvals/{approval}");
    until("the call is not over", || {
        let run = gateway.send("GET", &path, &gateway.operator, "").json()["tool_run_id"].clone();
        let path = format!("/v1/runs/{}", run.as_str().unwrap());
        gateway.send("GET", &path, &gateway.operator, "").json()["run"]["status"] == "ok"
    });
    approval
}

fn grant(gateway: &Gateway, approval: &str, more: Value) -> Reply {
    let mut body = json!({
        "approval_id": approval,
        "args": { "content": { "starts_with": "log " } },
        "uses_max": USES,
        "life_s": 3600,
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    gateway.send("POST", "/v1/grants", &gateway.operator, &body.to_string())
}

fn grants(gateway: &Gateway) -> Vec<Value> {
    let reply = gateway.send("GET", "/v1/grants", &gateway.operator, "");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["grants"].as_array().unwrap().clone()
}

/// Many callers at once. Each repeats a call until it has an answer, at any of these addresses, and counts those that
/// were executed without a question.
fn storm(gateways: &[(SocketAddr, String)], trouble: impl FnOnce()) -> usize {
    let (answered, executed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for caller in 0..CALLERS * gateways.len() {
            let (address, agent) = &gateways[caller % gateways.len()];
            let (answered, executed) = (&answered, &executed);
            scope.spawn(move || {
                for call in 0..CALLS {
                    let body = write(&format!("log {caller} {call}"));
                    let bytes = request("POST", "/v1/steps", agent, &[], &body);
                    let status = loop {
                        match exchange(*address, bytes.as_bytes()) {
                            Some(reply) if [200, 202].contains(&reply.status) => {
                                break reply.status;
                            }
                            // Killed, or about to be ended by recovery.
                            Some(_) | None => {
                                std::thread::sleep(std::time::Duration::from_millis(20))
                            }
                        }
                    };
                    answered.fetch_add(1, Ordering::SeqCst);
                    executed.fetch_add(usize::from(status == 200), Ordering::SeqCst);
                }
            });
        }
        until("nothing is answered", || answered.load(Ordering::SeqCst) >= CALLERS);
        trouble();
    });
    executed.into_inner()
}

/// As many calls were executed as the grant says, and everything verifies.
fn used_up(place: &Place, gateway: &Gateway, executed: usize) {
    let listed = grants(gateway);
    let (used, status) = (&listed[0]["used"], &listed[0]["status"]);
    assert_eq!((used.as_u64(), status.as_str()), (Some(USES), Some("used_up")), "{listed:?}");
    assert_eq!(executed as u64, USES);
    let runs =
        gateway.send("GET", "/v1/runs?status=ok&tool=WRITE_FILE&limit=1000", &gateway.operator, "");
    // The call that was approved, and those under the grant.
    assert_eq!(runs.json()["runs"].as_array().unwrap().len() as u64, 1 + USES);
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn a_grant_is_never_used_once_too_often_across_a_kill() {
    let place = Place::new();
    asking(&place);
    let gateway = Gateway::start(&place);
    let made = grant(&gateway, &approved(&gateway), json!({}));
    assert_eq!(made.status, 201, "{made:?}");
    let (address, agent) = (gateway.address, gateway.agent.clone());
    let mut again = None;
    // The gateway is killed in the middle, and comes back at its address.
    let executed = storm(&[(address, agent)], || {
        kill(gateway);
        again = Some(Gateway::start_at(&place, &address.to_string(), &[]));
    });
    let gateway = again.unwrap();
    used_up(&place, &gateway, executed);
}

#[test]
fn two_nodes_use_a_grant_as_often_as_it_says_though_one_is_killed() {
    let house = House::new();
    let places = house.two();
    places.iter().for_each(asking);
    let [first, second] = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    let made = grant(&first, &approved(&first), json!({}));
    assert_eq!(made.status, 201, "{made:?}");
    let address = second.address;
    let mut again = None;
    let callers = [&first, &second].map(|node| (node.address, node.agent.clone()));
    let executed = storm(&callers, || {
        kill(second);
        again = Some(Gateway::start_at(&places[1], &address.to_string(), &[]));
    });
    used_up(&places[0], &first, executed);
    // Nobody has to ask the node that made it.
    used_up(&places[1], &again.unwrap(), executed);
}

#[test]
fn a_grant_covers_nothing_else_and_ends_when_it_is_revoked() {
    let place = Place::new();
    asking(&place);
    let other = place.own_token("other", "agent");
    let gateway = Gateway::start(&place);
    let approval = approved(&gateway);
    for (more, status) in [
        (json!({ "uses_max": 0 }), 400),
        (json!({ "uses_max": 101 }), 400),
        (json!({ "life_s": 8 * 24 * 3600 }), 400),
        (json!({ "args": { "content": { "starts_with": "" } } }), 400),
        (json!({ "args": { "content": { "starts_with": "other" } } }), 400),
        (json!({ "args": { "unknown": { "equals": 1 } } }), 400),
        (json!({ "args": { "content": { "matches": ".*" } } }), 400),
        (json!({ "approval_id": "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10" }), 404),
    ] {
        let refused = grant(&gateway, &approval, more.clone());
        assert_eq!(refused.status, status, "{more}: {refused:?}");
    }
    let body = json!({ "approval_id": approval, "uses_max": 1, "life_s": 60 }).to_string();
    assert_eq!(gateway.send("POST", "/v1/grants", &gateway.agent, &body).status, 403);
    assert_eq!(grants(&gateway), [] as [Value; 0]);
    let made = grant(&gateway, &approval, json!({})).json();
    assert_eq!(made["args"]["path"], json!({ "equals": "/sandbox/log.txt" }), "{made}");
    assert_eq!(made["status"], "active");

    assert_eq!(gateway.propose(&write("log 1")).status, 200);
    for args in [
        json!({ "path": "/sandbox/log.txt", "content": "Log 1" }),
        json!({ "path": "/sandbox/log.txt", "content": "log 1\n<script>" }),
        json!({ "path": "/sandbox/Log.txt", "content": "log 1" }),
        json!({ "path": "/sandbox/other.txt", "content": "log 1" }),
    ] {
        let reply = gateway.propose(&proposal("WRITE_FILE", args.clone()));
        assert_eq!(reply.status, 202, "{args}: {reply:?}");
    }
    assert_eq!(gateway.send("POST", "/v1/steps", &other, &write("log 1")).status, 202);

    // Whoever made the grant does not use it with a token of its own.
    let of_the_agent = json!({ "name": "agent", "role": "agent" }).to_string();
    let impersonates = || gateway.send("POST", "/v1/tokens", &gateway.operator, &of_the_agent);
    let refused = impersonates();
    assert!(refused.status == 400 && refused.body.contains("a grant of yours"), "{refused:?}");
    let path = format!("/v1/grants/{}", made["grant_id"].as_str().unwrap());
    assert_eq!(gateway.send("DELETE", &path, &gateway.agent, "").status, 403);
    assert_eq!(gateway.send("DELETE", &path, &gateway.operator, "").status, 204);
    assert_eq!(impersonates().status, 201);
    assert_eq!(gateway.send("DELETE", &path, &gateway.operator, "").status, 404);
    assert_eq!(gateway.propose(&write("log 2")).status, 202);
    let listed = grants(&gateway);
    assert_eq!((&listed[0]["status"], &listed[0]["used"]), (&json!("revoked"), &json!(1)));
    assert_eq!(listed[0]["revocation"]["revoked_by"], "operator");
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

#[test]
fn a_quorum_needs_different_people_of_the_named_groups() {
    let place = Place::new();
    asking_under(&place, r#"@approvers("finance, carl") @quorum("2")"#);
    fs::write(place.path().join("stepgate.toml"), "[groups]\nfinance = [\"ann\", \"bob\"]\n")
        .unwrap();
    let [ann, bob, carl] = ["ann", "bob", "carl"].map(|name| place.own_token(name, "operator"));
    let gateway = Gateway::start(&place);
    let ask = || {
        let asked = gateway.propose(&write("log 0"));
        assert_eq!(asked.status, 202, "{asked:?}");
        asked.json()["result"]["approval_id"].as_str().unwrap().to_owned()
    };
    let decide = |approval: &str, word: &str, token: &str| {
        let path = format!("/v1/approvals/{approval}/{word}");
        gateway.send("POST", &path, token, r#"{"note":"seen"}"#)
    };
    let approval = ask();
    // Somebody who is not named neither approves nor denies.
    assert_eq!(decide(&approval, "approve", &gateway.operator).status, 403);
    assert_eq!(decide(&approval, "deny", &gateway.operator).status, 403);
    for _ in 0..2 {
        let voted = decide(&approval, "approve", &ann);
        assert_eq!(voted.status, 200, "{voted:?}");
        assert_eq!(voted.json()["status"], "pending", "{voted:?}");
        assert_eq!(voted.json()["approved_by"], json!(["ann"]));
    }
    let shown = gateway.send("GET", &format!("/v1/approvals/{approval}"), &gateway.agent, "").body;
    assert!(!shown.contains("ann") && !shown.contains("finance"), "{shown}");
    let decided = decide(&approval, "approve", &carl);
    assert_eq!(decided.json()["status"], "approved", "{decided:?}");
    let run = decided.json()["tool_run_id"].as_str().unwrap().to_owned();
    until("the call is not over", || {
        let run = gateway.send("GET", &format!("/v1/runs/{run}"), &gateway.operator, "");
        run.json()["run"]["status"] == "ok"
    });
    let exported = gateway.send("GET", &format!("/v1/runs/{run}"), &gateway.operator, "").body;
    assert!(exported.contains(r#""approver_ids":["ann","carl"]"#), "{exported}");
    // One person's grant does not stand for two.
    assert_eq!(grant(&gateway, &approval, json!({})).status, 403);
    // One of them denies, and that is that.
    let approval = ask();
    assert_eq!(decide(&approval, "approve", &bob).json()["status"], "pending");
    assert_eq!(decide(&approval, "deny", &ann).json()["status"], "denied");
    assert_eq!(decide(&approval, "approve", &carl).status, 409);
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn the_terminal_makes_lists_and_revokes_grants() {
    let place = Place::new();
    asking(&place);
    let gateway = Gateway::start(&place);
    let approval = approved(&gateway);
    let run = |args: &[&str]| place.stepgate(args.iter().copied(), "");
    assert_eq!(run(&["grants"]).stdout, "no grants\n");
    let allow = "content=log *";
    let refused = run(&["grants", "create", &approval, "--allow", "content=log"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let made =
        run(&["grants", "create", &approval, "--uses", "3", "--for", "2h", "--allow", allow]);
    assert_eq!(made.code, 0, "{made:?}");
    for words in [
        "active  WRITE_FILE by agent, 0 of 3 used",
        "granted by operator",
        "content begins with \"log \"",
        "path is exactly \"/sandbox/log.txt\"",
    ] {
        assert!(made.stdout.contains(words), "{words}: {made:?}");
    }
    assert_eq!(gateway.propose(&write("log 1")).status, 200);
    let listed = run(&["grants"]);
    assert!(listed.stdout.contains("1 of 3 used"), "{listed:?}");
    let json: Value = serde_json::from_str(&run(&["--json", "grants"]).stdout).unwrap();
    let id = json["grant_id"].as_str().unwrap();
    let revoked = run(&["grants", "revoke", id]);
    assert_eq!((revoked.code, revoked.stdout), (0, format!("revoked {id}\n")));
    assert_eq!(run(&["grants"]).stdout, "no grants\n");
    let past = run(&["grants", "--all"]);
    assert!(past.stdout.contains("revoked  WRITE_FILE"), "{past:?}");
    assert_eq!(gateway.propose(&write("log 2")).status, 202);
    approved(&gateway);
    for (args, answer, said) in [
        (&["grants", "create", "last"][..], "n\n", "WRITE_FILE"),
        (&["grants", "create", "last"], "y\n", "0 of 5 used"),
        (&["grants", "revoke", "last"], "n\n", "0 of 5 used"),
        (&["grants", "revoke", "last"], "y\n", "revoked"),
    ] {
        let done = at_a_terminal(&place.bare_command(args), answer);
        assert_eq!(done.code == 0, answer == "y\n", "{args:?} {answer}: {done:?}");
        assert!(done.stdout.contains(said), "{args:?}: {done:?}");
    }
    assert_eq!(run(&["grants"]).stdout, "no grants\n");
}

#[test]
fn people_of_each_policy_that_asks_must_approve() {
    let place = Place::new();
    asking_under(&place, r#"@approvers("ann")"#);
    let policy = "@id(\"second\") @approval(\"it is kept\") @approvers(\"bob\")
                  permit (principal, action == Action::\"WRITE_FILE\", resource);";
    fs::write(place.path().join("policies/second.cedar"), policy).unwrap();
    let [ann, bob] = ["ann", "bob"].map(|name| place.own_token(name, "operator"));
    let gateway = Gateway::start(&place);
    for people in [[&ann, &bob], [&bob, &ann]] {
        let asked = gateway.propose(&write("log 0"));
        assert_eq!(asked.status, 202, "{asked:?}");
        let id = asked.json()["result"]["approval_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/approvals/{id}/approve");
        assert_eq!(gateway.send("POST", &path, &gateway.operator, "{}").status, 403);
        let standing = people.map(|token| {
            let reply = gateway.send("POST", &path, token, "{}");
            assert_eq!(reply.status, 200, "{reply:?}");
            reply.json()["status"].clone()
        });
        assert_eq!(standing, ["pending", "approved"]);
    }
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

#[test]
fn linked_tokens_count_once_however_they_vote_and_nobody_is_impersonated() {
    let place = Place::new();
    asking_under(&place, r#"@quorum("2")"#);
    let ann = place.own_token("ann", "operator");
    let gateway = Gateway::start(&place);
    let make = |name: &str, role: &str| {
        let body = json!({ "name": name, "role": role }).to_string();
        gateway.send("POST", "/v1/tokens", &gateway.operator, &body)
    };
    // Ann decides, so only her own token can make another one in her name.
    assert_eq!(make("ann", "operator").status, 400);
    assert_eq!(make("ann", "agent").status, 400);
    let token = |reply: Reply| reply.json()["token"].as_str().unwrap().to_owned();
    let pair = [token(make("left", "operator")), token(make("right", "operator"))];
    for _ in 0..20 {
        let asked = gateway.propose(&write("log 0"));
        let id = asked.json()["result"]["approval_id"].as_str().unwrap().to_owned();
        let approve =
            |token: &str| gateway.send("POST", &format!("/v1/approvals/{id}/approve"), token, "{}");
        std::thread::scope(|scope| {
            for token in &pair {
                scope.spawn(|| approve(token));
            }
        });
        let path = format!("/v1/approvals/{id}");
        let status = || gateway.send("GET", &path, &gateway.operator, "").json()["status"].clone();
        assert_eq!(status(), "pending", "two tokens of one maker were two people");
        assert_eq!(approve(&ann).json()["status"], "approved");
    }
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
}
