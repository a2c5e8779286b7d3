use axum::response::IntoResponse;
use stepgate_core::event::EventType;

use super::*;
use crate::events::{Following, StreamParams};
use crate::{Caller, Metrics};

/// Reads the stream's events as they come: `(id, type)`.
struct Reading {
    body: Body,
    text: String,
}

impl Reading {
    async fn begin(house: &House, token: &str, after: Option<&str>, last_id: Option<&str>) -> Self {
        let query = after.map_or_else(String::new, |after| format!("after={after}"));
        Self::asked(house, token, &query, last_id).await
    }

    async fn asked(house: &House, token: &str, query: &str, last_id: Option<&str>) -> Self {
        let path = format!("/v1/events?{query}");
        let mut request = house.request("GET", &path, token, String::new());
        if let Some(id) = last_id {
            request.headers_mut().insert("last-event-id", id.parse().unwrap());
        }
        let response = house.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event; none at the end of the stream.
    async fn next(&mut self) -> Option<(u64, String)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap().trim().to_owned()
                };
                let read = (field("id:").parse().unwrap(), field("event:"));
                self.text = rest.to_owned();
                return Some(read);
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame());
            let frame = frame.await.expect("no event came")?.unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// Whether nothing comes for a while.
    async fn is_silent(&mut self) -> bool {
        let frame = tokio::time::timeout(Duration::from_millis(50), self.body.frame());
        self.text.is_empty() && frame.await.is_err()
    }

    /// The data of the next event.
    async fn data(&mut self) -> Value {
        while !self.text.contains("\n\n") {
            let frame = self.body.frame().await.unwrap().unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        let data = self.text.lines().find_map(|line| line.strip_prefix("data:"));
        let data = serde_json::from_str(data.unwrap()).unwrap();
        self.next().await;
        data
    }

    async fn until(&mut self, event_type: &str) -> u64 {
        loop {
            let (id, found) = self.next().await.expect("the stream ended");
            if found == event_type {
                return id;
            }
        }
    }
}

#[tokio::test]
async fn a_stream_is_taken_up_where_it_was_left() {
    let house = House::new().await;
    let mut first = Reading::begin(&house, &house.olga, None, None).await;
    house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    let seen = first.until("tool_succeeded").await;
    drop(first);
    house.ask(&house.alice, "d").await;
    let seen_text = seen.to_string();
    for (after, last_id) in [(Some(seen_text.as_str()), None), (None, Some(seen_text.as_str()))] {
        let mut again = Reading::begin(&house, &house.olga, after, last_id).await;
        let (id, event_type) = again.next().await.unwrap();
        assert!(id > seen && event_type == "approval_requested", "{id} {event_type}");
    }
    let mut latest = Reading::begin(&house, &house.olga, Some("latest"), None).await;
    house.propose(&house.alice, &proposal("FINISH", json!({ "response": "x" }))).await;
    assert_eq!(latest.next().await.unwrap().1, "tool_called");
    for bad in ["x", "-1", "99999999999999999999"] {
        let reply = house.get(&house.olga, &format!("/v1/events?after={bad}")).await;
        assert_eq!(reply.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn what_shadow_policies_would_have_decided_is_for_operators_and_auditors() {
    let house = House::new().await;
    let body = proposal("READ_FILE", json!({ "path": "/sandbox/differs.txt" }));
    assert_eq!(house.propose(&house.alice, &body).await.status, 200);
    let rows = [
        (&house.alice, vec!["tool_called", "tool_failed"]),
        (&house.olga, vec!["policy_differs", "tool_called", "tool_failed"]),
        (&house.anna, vec!["policy_differs", "tool_called", "tool_failed"]),
    ];
    for (token, expected) in rows {
        let mut stream = Reading::asked(&house, token, "principal=alice", None).await;
        for expected in expected {
            assert_eq!(stream.next().await.unwrap().1, expected);
        }
        assert!(stream.is_silent().await);
    }
    let path = "/v1/policy/shadow?all=true";
    assert_eq!(house.get(&house.alice, path).await.status, 403);
    for token in [&house.olga, &house.anna] {
        let reply = house.get(token, path).await.json();
        assert_eq!(reply["shadow"], json!(null));
        assert_eq!(reply["differences"]["count"], 1);
        assert_eq!(reply["differences"]["newest"][0]["principal_id"], "alice");
    }
    let now = house.get(&house.olga, "/v1/policy/shadow").await.json();
    assert_eq!(now["differences"]["count"], 0, "there is no candidate now");
    for (limit, status) in [("0", 200), ("1000", 200), ("1001", 400), ("x", 400)] {
        let path = format!("/v1/policy/shadow?limit={limit}");
        assert_eq!(house.get(&house.olga, &path).await.status, status, "{limit}");
    }
}

#[tokio::test]
async fn a_stream_is_filtered_and_taken_up_where_it_was_left() {
    let house = House::new().await;
    let think = house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    let (_, hers) = house.ask(&house.alice, "hers").await;
    let (_, his) = house.ask(&house.bob, "his").await;
    house.propose(&house.bob, &proposal("FINISH", json!({ "response": "x" }))).await;
    let session = think.header("stepgate-session").unwrap();
    let rows = [
        ("kind=approval_requested".to_owned(), vec!["approval_requested"; 2]),
        ("kind=approval_requested&principal=bob".to_owned(), vec!["approval_requested"]),
        (
            "kind=approval_requested&kind=tool_succeeded&principal=bob".to_owned(),
            vec!["approval_requested", "tool_succeeded"],
        ),
        (format!("run={hers}"), vec!["approval_requested"]),
        (format!("run={his}&principal=alice"), vec![]),
        (format!("session={session}"), vec!["tool_called", "tool_succeeded", "approval_requested"]),
    ];
    for (query, expected) in rows {
        let mut stream = Reading::asked(&house, &house.olga, &query, None).await;
        let mut ids = Vec::new();
        for expected in &expected {
            let (id, kind) = stream.next().await.unwrap();
            assert_eq!(kind, *expected, "{query}");
            ids.push(id);
        }
        assert!(stream.is_silent().await, "{query}");
        // With the id of the first, it goes on with the second.
        if let [first, second, ..] = ids[..] {
            let last_id = first.to_string();
            let mut again = Reading::asked(&house, &house.olga, &query, Some(&last_id)).await;
            assert_eq!(again.next().await.unwrap().0, second, "{query}");
        }
    }
    for query in ["kind=x", "run=x", "session=x", "principal=a/b", "colour=red", "run=a&run=b"] {
        let reply = house.get(&house.olga, &format!("/v1/events?{query}")).await;
        assert_eq!(reply.status, 400, "{query}: {}", reply.body);
    }
    assert_eq!(house.get(&house.alice, "/v1/events?principal=bob").await.status, 403);
}

#[tokio::test]
async fn a_filtered_stream_has_heartbeats_whose_id_is_past_what_was_left_out() {
    let house = House::new().await;
    house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    let caller = Caller {
        principal_id: PrincipalId::parse("olga").unwrap(),
        role: Role::Operator,
        token_id: None,
        is_owner: false,
    };
    let mut params = StreamParams::default();
    params.kind.push(EventType::LateResult);
    let mut following = Following::begin(Arc::clone(&house.app), caller, params, 0).unwrap();
    following.heartbeat = Duration::from_millis(10);
    let mut body = following.send().into_response().into_body();
    let last = house.app.service.gate.store.last_position().await.unwrap();
    for _ in 0..2 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, format!("id: {last}\n\n"));
    }
}

#[tokio::test]
async fn the_request_of_an_approval_says_who_what_until_when_and_where() {
    let house = House::new().await;
    let args = json!({ "path": "/sandbox/d" });
    let reply = house.propose(&house.alice, &proposal("CREATE_DIRECTORY", args.clone())).await;
    let approval = reply.json()["result"]["approval_id"].as_str().unwrap().to_owned();
    let shown = house.get(&house.olga, &format!("/v1/approvals/{approval}")).await.json();
    for token in [&house.olga, &house.alice] {
        let query = "kind=approval_requested";
        let mut stream = Reading::asked(&house, token, query, None).await;
        let payload = stream.data().await["payload"].clone();
        let expected = json!({
            "approval_digest": payload["approval_digest"],
            "approval_id": approval,
            "args": args,
            "expires_at": shown["expires_at"],
            "principal_id": "alice",
            "reason": shown["context"]["reason"],
            "tool": "CREATE_DIRECTORY",
            "url": format!("http://127.0.0.1:7420/approvals/{approval}"),
        });
        assert_eq!(payload, expected);
    }
}

#[tokio::test]
async fn an_agent_s_stream_has_its_own_events_alone() {
    let house = House::new().await;
    let mut hers = Reading::begin(&house, &house.alice, None, None).await;
    let mut all = Reading::begin(&house, &house.anna, None, None).await;
    house.ask(&house.bob, "his").await;
    all.until("approval_requested").await;
    house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    assert_eq!(hers.next().await.unwrap().1, "tool_called");
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_the_process() {
    let house = House::new().await;
    let made =
        house.post(&house.olga, "/v1/tokens", json!({ "name": "ci", "role": "auditor" })).await;
    let made = made.json();
    let mut stream =
        Reading::begin(&house, made["token"].as_str().unwrap(), Some("latest"), None).await;
    let path = format!("/v1/tokens/{}", made["token_id"].as_str().unwrap());
    let mut slow = Reading::begin(&house, made["token"].as_str().unwrap(), None, None).await;
    slow.next().await.unwrap();
    let mut events = Reading::begin(&house, &house.olga, Some("latest"), None).await;
    house.send(house.request("DELETE", &path, &house.olga, String::new())).await;
    // The streams end without another event, and events read before the revocation are not sent.
    while stream.next().await.is_some() {}
    assert_eq!(slow.next().await, None);
    events.until("token_revoked").await;
    let mut stream = Reading::begin(&house, &house.olga, Some("latest"), None).await;
    house.app.service.leave();
    assert_eq!(stream.next().await, None);
    assert_eq!(house.get("", "/readyz").await.status, 503);
    assert_eq!(house.get("", "/healthz").await.status, 200);
}

#[tokio::test]
async fn metrics_count_outcomes_statuses_and_what_waits() {
    let house = House::new().await;
    house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    house.propose(&house.alice, "{").await;
    house.ask(&house.alice, "d").await;
    house.get("", "/v1/runs").await;
    let text = house.get(&house.anna, "/metrics").await.body;
    for line in [
        "stepgate_steps_total{outcome=\"SUCCESS\",action=\"THINK\",server=\"core\",tool=\"THINK\"} 1",
        "stepgate_steps_total{outcome=\"VALIDATION_ERROR\",action=\"unknown\",server=\"unknown\",tool=\"unknown\"} 1",
        "# TYPE stepgate_steps_total counter",
        "stepgate_http_requests_total{status=\"401\"} 1",
        "stepgate_http_requests_total{status=\"202\"} 1",
        "stepgate_approvals_open 1",
        "stepgate_steps_running 0",
        "stepgate_http_request_duration_seconds_count 4",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let age = text.lines().find_map(|it| it.strip_prefix("stepgate_approvals_oldest_age_seconds "));
    // It may be less than a millisecond old.
    assert!((0.0..60.0).contains(&age.unwrap().parse::<f64>().unwrap()), "{text}");
    let _: &Metrics = &house.app.metrics;
}
