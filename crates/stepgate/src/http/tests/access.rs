use stepgate_core::ports::EventQuery;

use super::*;
use crate::http::routes::{self, Access};

/// What a route answers to someone who may not use it, or nothing where they may.
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
    for route in routes::all() {
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
                    let error = body.pointer("/errors/0").unwrap_or(&body["error"]);
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
        // Only a local connection can say as whom it acts.
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
async fn a_local_connection_acts_as_it_says() {
    let house = House::new().await;
    let rows = [(Some("operator"), 200), (Some("agent"), 403), (Some("root"), 401), (None, 401)];
    for (local, expected) in rows {
        let mut request = house.request("GET", "/v1/tokens", "", String::new());
        request.extensions_mut().insert(Peer::Local);
        if let Some(local) = local {
            request.headers_mut().insert("stepgate-local", local.parse().unwrap());
        }
        assert_eq!(house.send(request).await.status, expected, "{local:?}");
    }
}

#[tokio::test]
async fn an_agent_sees_its_own_objects_and_another_s_are_not_there() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "hers").await;
    let detail = house.get(&house.alice, &format!("/v1/runs/{run}")).await;
    let session = detail.json()["run"]["session_id"].as_str().unwrap().to_owned();
    let nothing = house.get(&house.bob, &format!("/v1/runs/{}", fresh_id())).await;
    for path in [
        format!("/v1/runs/{run}"),
        format!("/v1/runs/{run}/export"),
        format!("/v1/sessions/{session}"),
    ] {
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
    // Her session is no place for his steps, and her id is not his.
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
    let again = crate::tokens::Tokens::load(&house.app.service.gate).await.unwrap();
    assert_eq!(again.list(), house.app.service.tokens.list());
    let path = format!("/v1/tokens/{id}");
    let revoke = || house.send(house.request("DELETE", &path, &house.olga, String::new()));
    assert_eq!(revoke().await.status, 204);
    assert_eq!(house.get(token, "/v1/runs").await.status, 401);
    assert_eq!(revoke().await.status, 404);
    let again = crate::tokens::Tokens::load(&house.app.service.gate).await.unwrap();
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
