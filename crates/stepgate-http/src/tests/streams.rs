use super::*;
use crate::Metrics;

/// Reads the stream's events as they come: `(id, type)`.
struct Reading {
    body: Body,
    text: String,
}

impl Reading {
    async fn begin(house: &House, token: &str, after: Option<&str>, last_id: Option<&str>) -> Self {
        let path =
            after.map_or("/v1/events".to_owned(), |after| format!("/v1/events?after={after}"));
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
        "stepgate_steps_total{outcome=\"SUCCESS\"} 1",
        "stepgate_steps_total{outcome=\"VALIDATION_ERROR\"} 1",
        "stepgate_http_requests_total{status=\"401\"} 1",
        "stepgate_http_requests_total{status=\"202\"} 1",
        "stepgate_approvals_open 1",
        "stepgate_steps_running 0",
        "stepgate_http_request_duration_seconds_count 4",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let _: &Metrics = &house.app.metrics;
}
