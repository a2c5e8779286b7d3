use stepgate_core::ports::EventQuery;

use super::*;
use crate::routes::{self, Access};

/// The status for a role that may not use a route; none if it may.
fn refusal(access: Access, role: Option<Role>) -> Option<u16> {
    match (access, role) {
        (Access::Public, _) => None,
        (Access::Reader | Access::Proposer | Access::Operator | Access::Watcher, None) => Some(401),
        (Access::Reader, Some(_)) | (_, Some(Role::Operator)) => None,
        (Access::Proposer, Some(role)) => (role == Role::Auditor).then_some(403),
        (Access::Operator, Some(_)) => Some(403),
        (Access::Watcher, Some(role)) => (role == Role::Agent).then_some(403),
    }
}

#[tokio::test]
async fn every_route_is_closed_to_those_it_is_not_for_and_says_nothing_more() {
    let house = House::new().await;
    let who = [
        (None, String::new()),
        (Some(Role::Agent), house.alice.clone()),
        (Some(Role::Operator), house.olga.clone()),
        (Some(Role::Auditor), house.anna.clone()),
    ];
    let mut refused = 0;
    for route in routes::all(&mounted()) {
        let path = route.path.replace("{id}", &fresh_id());
        for (role, token) in &who {
            let request = house.request(route.method, &path, token, String::new());
            // A stream never ends, so only its head is read.
            let response = house.router.clone().oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let place = format!("{} {path} as {role:?}", route.method);
            match refusal(route.access, *role) {
                Some(expected) => {
                    assert_eq!(status, expected, "{place}");
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    let code = if expected == 401 { "UNAUTHENTICATED" } else { "FORBIDDEN" };
                    let error = body.pointer("/errors/0").unwrap_or(&body);
                    assert_eq!(error["code"], code, "{place}");
                    refused += 1;
                }
                None => assert!(![401, 403].contains(&status), "{place}: {status}"),
            }
        }
    }
    assert!(refused > 30, "{refused}");
}

#[tokio::test]
async fn a_request_without_a_good_token_is_told_how_to_bring_one() {
    let house = House::new().await;
    let rows = [
        None,
        Some("Bearer".to_owned()),
        Some("Bearer sg_0000".to_owned()),
        Some(format!("Basic {}", house.olga)),
        Some(format!("Bearer {}x", house.olga)),
        Some(format!("Bearer {}", house.olga.to_uppercase())),
    ];
    for value in rows {
        let mut request = house.request("GET", "/v1/runs", "", String::new());
        if let Some(value) = &value {
            request.headers_mut().insert("authorization", value.parse().unwrap());
        }
        // Only a local connection can claim a role with this header.
        request.headers_mut().insert("stepgate-local", "operator".parse().unwrap());
        let reply = house.send(request).await;
        assert_eq!(reply.status, 401, "{value:?}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"stepgate\""));
    }
    let mut twice = house.request("GET", "/v1/runs", &house.olga, String::new());
    let again = format!("Bearer {}", house.olga).parse().unwrap();
    twice.headers_mut().append("authorization", again);
    assert_eq!(house.send(twice).await.status, 401);
}

#[tokio::test]
async fn the_history_says_who_made_and_who_revoked_a_token() {
    let house = House::new().await;
    let made =
        house.post(&house.olga, "/v1/tokens", json!({ "name": "ci", "role": "agent" })).await;
    let id = made.json()["token_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/tokens/{id}");
    let revoked = house.send(house.request("DELETE", &path, &house.otto, String::new())).await;
    assert_eq!((made.status.as_u16(), revoked.status.as_u16()), (201, 204));
    let query = EventQuery { loose_only: true, limit: 1000, ..EventQuery::default() };
    let events = house.app.service.gate.store.events(query).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|placed| &placed.event.payload)
        .filter(|payload| payload["token_id"] == json!(id))
        .map(|payload| (payload["created_by"].as_str(), payload["revoked_by"].as_str()))
        .collect();
    assert_eq!(told, [(Some("olga"), None), (None, Some("otto"))]);
}

#[tokio::test]
async fn a_local_connection_proposes_and_reads_and_decides_only_where_a_person_can_be() {
    let house = House::new().await;
    // A process that has ended has no terminal.
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let process = Process::of(i32::try_from(ended.id()).unwrap()).unwrap();
    ended.wait().unwrap();
    let rows = [
        (Some("operator"), 403),
        (Some("auditor"), 200),
        (Some("agent"), 403),
        (Some("root"), 401),
        (None, 401),
    ];
    for (local, expected) in rows {
        let mut request = house.request("GET", "/v1/tokens", "", String::new());
        request.extensions_mut().insert(Peer::Local(process));
        if let Some(local) = local {
            request.headers_mut().insert("stepgate-local", local.parse().unwrap());
        }
        let reply = house.send(request).await;
        assert_eq!(reply.status, expected, "{local:?}");
        assert_eq!(reply.body.contains("--token-file"), local == Some("operator"), "{local:?}");
    }
    // With a token, the token decides.
    let mut request = house.request("GET", "/v1/tokens", &house.olga, String::new());
    request.extensions_mut().insert(Peer::Local(process));
    assert_eq!(house.send(request).await.status, 200);
}

/// Creates a token over the network.
async fn made(house: &House, by: &str, name: &str, role: &str) -> String {
    let reply = house.post(by, "/v1/tokens", json!({ "name": name, "role": role })).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply.json()["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn whoever_is_behind_a_request_does_not_decide_on_it() {
    let house = House::new().await;
    // olga creates an agent and an operator; that operator creates another of each.
    let agent = made(&house, &house.olga, "agent-1", "agent").await;
    let second = made(&house, &house.olga, "second", "operator").await;
    let third = made(&house, &second, "third", "operator").await;
    let agent_2 = made(&house, &second, "agent-2", "agent").await;
    let rows = [
        ("her own", &house.olga, &house.olga, false),
        ("of a token that she made", &agent, &house.olga, false),
        ("her own, with a token that she made", &house.olga, &second, false),
        ("her own, through a chain", &house.olga, &third, false),
        ("of a token that her token made", &agent_2, &house.olga, false),
        ("of one maker, who has both", &agent, &second, false),
        ("of another", &agent, &house.otto, true),
        ("of the first start", &house.alice, &house.olga, true),
        ("of the first start, with a token that was made", &house.alice, &third, true),
        ("of another operator", &house.otto, &third, true),
    ];
    for (number, (what, asker, decider, may)) in rows.into_iter().enumerate() {
        let (approval, run) = house.ask(asker, &format!("row-{number}")).await;
        let one = house.post(decider, &format!("/v1/approvals/{approval}/approve"), "").await;
        assert_eq!(one.status, if may { 200 } else { 403 }, "{what}: {}", one.body);
        if may {
            continue;
        }
        assert!(one.body.contains("another operator"), "{what}: {}", one.body);
        let deny = house.post(decider, &format!("/v1/approvals/{approval}/deny"), "").await;
        let batch = json!({ "decision": "approve", "ids": [approval] });
        let batch = house.post(decider, "/v1/approvals/decide", batch).await;
        assert_eq!((deny.status, &batch.json()["results"][0]["status"]), (one.status, &json!(403)));
        house.until(&run, "approval_required").await;
    }
    // A revoked token keeps its creator, and another process knows that too.
    let listed = house.get(&house.olga, "/v1/tokens").await.json();
    let is_it = |token: &&Value| token["principal_id"] == "agent-1";
    let id = listed["tokens"].as_array().unwrap().iter().find(is_it).unwrap()["token_id"].clone();
    let path = format!("/v1/tokens/{}", id.as_str().unwrap());
    house.send(house.request("DELETE", &path, &house.olga, String::new())).await;
    let again =
        stepgate_gateway::tokens::Tokens::load(&*house.app.service.gate.store).await.unwrap();
    let name = |name: &str| PrincipalId::parse(name).unwrap();
    for tokens in [&house.app.service.tokens, &again] {
        assert!(tokens.are_linked(&name("olga"), &name("agent-1")));
        assert!(!tokens.are_linked(&name("otto"), &name("agent-1")));
    }
}

#[tokio::test]
async fn a_token_of_a_store_that_knew_no_makers_is_good_and_has_none() {
    let house = House::new().await;
    let gate = &house.app.service.gate;
    let payload = json!({
        "token_id": fresh_id(),
        "principal_id": "old",
        "role": "agent",
        "hash": stepgate_core::digest::Digest::of_bytes(b"sg_old"),
        "created_by": "olga",
    });
    gate.note(stepgate_core::event::EventType::TokenCreated, payload).await.unwrap();
    house.app.service.tokens.read_on(&*gate.store).await.unwrap();
    let (approval, _) = house.ask("sg_old", "d").await;
    let path = format!("/v1/approvals/{approval}/approve");
    assert_eq!(house.post(&house.olga, &path, "").await.status, 200);
}

#[tokio::test]
async fn the_owner_of_the_directory_answers_for_no_token_and_decides() {
    let house = House::new().await;
    let mut request = house.request(
        "POST",
        "/v1/tokens",
        &house.olga,
        json!({ "name": "ci", "role": "agent" }).to_string(),
    );
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    request.extensions_mut().insert(Peer::Local(Process::this().unwrap()));
    let made = house.send(request).await.json();
    let (approval, _) = house.ask(made["token"].as_str().unwrap(), "d").await;
    let path = format!("/v1/approvals/{approval}/approve");
    assert_eq!(house.post(&house.olga, &path, "").await.status, 200);
    // A person at the terminal may decide on everything except requests of the owner's own token.
    let tokens = &house.app.service.tokens;
    let name = |name: &str| PrincipalId::parse(name).unwrap();
    let terminal = name(stepgate_gateway::tokens::TERMINAL_OPERATOR);
    assert!(!tokens.are_linked(&name("ci"), &terminal));
    assert!(tokens.are_linked(&name("operator"), &terminal));
    let reply = house
        .post(&house.olga, "/v1/tokens", json!({ "name": terminal, "role": "operator" }))
        .await;
    assert_eq!(reply.status, 400, "no token has the name of the terminal");
}

#[tokio::test]
async fn a_token_ends_at_its_time_with_its_streams_and_says_so() {
    let house = House::new().await;
    let order = json!({ "name": "brief", "role": "agent", "expires_in_s": 1 });
    let made = house.post(&house.olga, "/v1/tokens", order).await.json();
    let token = made["token"].as_str().unwrap();
    assert!(made["expires_at"].as_str() > made["created_at"].as_str(), "{made}");
    let deadline = Instant::now() + Duration::from_secs(20);
    let refused = loop {
        let reply = house.get(token, "/v1/runs").await;
        if reply.status != 200 {
            break reply;
        }
        assert!(Instant::now() < deadline, "it never ends");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("this token expired at 2"), "{}", refused.body);
    let listed = house.get(&house.anna, "/v1/tokens").await.json();
    let listed = listed["tokens"].as_array().unwrap();
    let of = |name: &str| listed.iter().find(|token| token["principal_id"] == name).unwrap();
    assert_eq!(of("brief")["expires_at"], made["expires_at"]);
    assert_eq!(of("olga")["expires_at"], Value::Null);
    let id = made["token_id"].as_str().unwrap().parse().unwrap();
    assert!(!house.app.service.is_live(id), "neither a stream nor a login outlives it");
    for seconds in [json!(0), json!(315_360_001_u64), json!(-1), json!("1d")] {
        let order = json!({ "name": "brief", "role": "agent", "expires_in_s": seconds });
        assert_eq!(house.post(&house.olga, "/v1/tokens", &order).await.status, 400, "{order}");
    }
}

#[tokio::test]
async fn what_is_for_operators_is_in_no_answer_to_an_agent() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "hers").await;
    let note = json!({ "note": "not-for-agents" });
    house.post(&house.olga, &format!("/v1/approvals/{approval}/deny"), note).await;
    house.until(&run, "denied").await;
    let refused = proposal("READ_FILE", json!({ "path": "/sandbox/forbidden.txt" }));
    let refused = house.propose(&house.alice, &refused).await;
    let refused = refused.header("stepgate-run").unwrap().to_owned();
    let paths = [
        format!("/v1/runs/{run}"),
        format!("/v1/runs/{refused}"),
        "/v1/runs".to_owned(),
        "/v1/approvals".to_owned(),
        format!("/v1/approvals/{approval}"),
    ];
    for path in &paths {
        let (hers, all) = (house.get(&house.alice, path).await, house.get(&house.olga, path).await);
        assert_eq!((hers.status.as_u16(), all.status.as_u16()), (200, 200), "{path}");
        for word in ["not-for-agents", "rationale", "needs_approval", "\"detail\"", "policy_hash"] {
            assert!(!hers.body.contains(word), "{word} is in {path}: {}", hers.body);
        }
    }
    let hers = house.get(&house.alice, &paths[0]).await.json();
    assert_eq!(hers["run"]["status"], "denied");
    assert_eq!(hers["approval"]["resolution"]["approver_id"], "olga");
    let all = house.get(&house.olga, &paths[0]).await;
    assert!(all.body.contains("not-for-agents") && all.body.contains("DENIED_BY_OPERATOR"));
    assert!(house.get(&house.olga, &paths[1]).await.body.contains("\"detail\""));
    assert!(house.get(&house.olga, &paths[4]).await.body.contains("not-for-agents"));
    let exported = house.get(&house.alice, &format!("/v1/runs/{run}/export")).await;
    assert_eq!(exported.status, 403);
}

#[tokio::test]
async fn an_agent_sees_its_own_objects_and_another_s_are_not_there() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "hers").await;
    let detail = house.get(&house.alice, &format!("/v1/runs/{run}")).await;
    let session = detail.json()["run"]["session_id"].as_str().unwrap().to_owned();
    let nothing = house.get(&house.bob, &format!("/v1/runs/{}", fresh_id())).await;
    for path in [format!("/v1/runs/{run}"), format!("/v1/sessions/{session}")] {
        for token in [&house.alice, &house.olga, &house.anna] {
            assert_eq!(house.get(token, &path).await.status, 200, "{path}");
        }
        let reply = house.get(&house.bob, &path).await;
        assert_eq!((reply.status, &reply.body), (nothing.status, &nothing.body), "{path}");
    }
    let count = |reply: Reply, list: &str| reply.json()[list].as_array().unwrap().len();
    for (token, expected) in
        [(&house.alice, 1), (&house.bob, 0), (&house.olga, 1), (&house.anna, 1)]
    {
        assert_eq!(count(house.get(token, "/v1/runs").await, "runs"), expected);
        assert_eq!(count(house.get(token, "/v1/approvals").await, "approvals"), expected);
    }
    // Another principal's session and approval are not usable.
    let mut request = house.request("POST", "/v1/steps", &house.bob, proposal("THINK", json!({})));
    request.headers_mut().insert("stepgate-session", session.parse().unwrap());
    let reply = house.send(request).await;
    assert_eq!((reply.status, &reply.body), (nothing.status, &nothing.body));
    assert_eq!(
        house.post(&house.bob, &format!("/v1/approvals/{approval}/approve"), "").await.status,
        403
    );
}

#[tokio::test]
async fn a_token_is_good_from_its_making_to_its_end_and_is_never_written_down() {
    let house = House::new().await;
    let made =
        house.post(&house.olga, "/v1/tokens", json!({ "name": "ci", "role": "auditor" })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let (token, id) = (made["token"].as_str().unwrap(), made["token_id"].as_str().unwrap());
    assert!(token.starts_with("sg_") && token.len() == 67, "{token}");
    assert_eq!(house.get(token, "/v1/runs").await.status, 200);
    let listed = house.get(&house.olga, "/v1/tokens").await;
    assert!(listed.body.contains(id) && !listed.body.contains("sg_"), "{}", listed.body);
    let query = stepgate_core::ports::EventQuery { limit: 1000, ..Default::default() };
    let events = house.app.service.gate.store.events(query).await.unwrap();
    assert!(!format!("{events:?}").contains(token));
    // A second process that reads the same events knows the same tokens.
    let again =
        stepgate_gateway::tokens::Tokens::load(&*house.app.service.gate.store).await.unwrap();
    assert_eq!(again.list(), house.app.service.tokens.list());
    let path = format!("/v1/tokens/{id}");
    let revoke = || house.send(house.request("DELETE", &path, &house.olga, String::new()));
    assert_eq!(revoke().await.status, 204);
    assert_eq!(house.get(token, "/v1/runs").await.status, 401);
    assert_eq!(revoke().await.status, 404);
    let again =
        stepgate_gateway::tokens::Tokens::load(&*house.app.service.gate.store).await.unwrap();
    assert_eq!(again.list(), house.app.service.tokens.list());
}

#[tokio::test]
async fn a_token_that_cannot_be_is_refused() {
    let house = House::new().await;
    for body in [
        json!({ "name": "system", "role": "operator" }),
        json!({ "name": "a/b", "role": "agent" }),
        json!({ "name": "", "role": "agent" }),
        json!({ "name": "a", "role": "root" }),
        json!({ "name": "a" }),
        json!({ "role": "agent" }),
        json!({ "name": "a", "role": "agent", "more": 1 }),
    ] {
        let reply = house.post(&house.olga, "/v1/tokens", &body).await;
        assert_eq!(reply.status, 400, "{body}");
    }
}
