use super::*;
use crate::page;

#[tokio::test]
async fn a_handler_that_panics_ends_its_own_request_alone() {
    let house = House::new().await;
    let handler = axum::routing::get(async || -> StatusCode { panic!("by a test") });
    let route = Route::new("GET", "/panics", Access::Reader, handler).named("panic", "Panic");
    let public_url = PublicUrl::parse("http://127.0.0.1:7420").unwrap();
    let (service, limits) = (house.app.service.clone(), ServeConfig::default());
    let app = App::new(service, limits, public_url, AccessLog::Silent, vec![route]);
    let house = House { router: router(&app), app, ..house };
    let [panicked, other] = [
        house.get(&house.alice, "/panics").await,
        house.propose(&house.alice, &proposal("LIST_FILES", json!({ "path": "/sandbox/" }))).await,
    ];
    assert_eq!((panicked.status.as_u16(), other.status.as_u16()), (500, 200));
    assert_eq!(panicked.json()["code"], "INTERNAL");
    let metrics = house.get(&house.olga, "/metrics").await.body;
    assert!(metrics.contains("\nstepgate_panics "), "{metrics}");
}

#[tokio::test]
async fn a_principal_that_asks_too_often_waits_and_another_does_not() {
    let serve =
        ServeConfig { requests_per_second_max: 1, requests_burst_max: 3, ..ServeConfig::default() };
    let house = House::with(serve, Limits::default()).await;
    for _ in 0..3 {
        // Refused proposals count towards the limit.
        assert_eq!(house.propose(&house.alice, "{").await.status, 400);
    }
    let reply = house.propose(&house.alice, "{").await;
    assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (429, Some("1")));
    assert_eq!(reply.json()["code"], "TOO_MANY_REQUESTS");
    assert_eq!(house.propose(&house.bob, "{").await.status, 400);
    let runs = house.get(&house.olga, "/v1/runs").await.json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_principal_with_half_of_the_connections_gets_no_more_and_others_do() {
    let serve = ServeConfig { connections_max: 5, ..ServeConfig::default() };
    let house = House::with(serve, Limits::default()).await;
    let listen = async || {
        let request = house.request("GET", "/v1/events", &house.alice, String::new());
        house.router.clone().oneshot(request).await.unwrap()
    };
    let [first, second] = [listen().await, listen().await];
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    let refused = house.get(&house.alice, "/v1/runs").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("1")));
    assert_eq!(house.get(&house.bob, "/v1/runs").await.status, 200);
    assert_eq!(house.get("", "/healthz").await.status, 200);
    drop(first);
    // A response that is complete holds no place.
    for _ in 0..3 {
        assert_eq!(house.get(&house.alice, "/v1/runs").await.status, 200);
    }
    drop(second);
}

#[tokio::test]
async fn what_agents_leave_free_is_for_operators_and_auditors() {
    let serve =
        ServeConfig { connections_max: 4, connections_reserved: 2, ..ServeConfig::default() };
    let house = House::with(serve, Limits::default()).await;
    let listen = async |token: &str| {
        let request = house.request("GET", "/v1/events", token, String::new());
        house.router.clone().oneshot(request).await.unwrap()
    };
    let [first, second] = [listen(&house.alice).await, listen(&house.bob).await];
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let carol = house.get(&house.bob, "/v1/runs").await;
    assert_eq!((carol.status.as_u16(), &carol.json()["code"]), (429, &json!("TOO_MANY_REQUESTS")));
    for token in [&house.olga, &house.anna] {
        assert_eq!(house.get(token, "/v1/runs").await.status, 200);
    }
    let metrics = house.get(&house.olga, "/metrics").await.body;
    let counted = "stepgate_refusals_total{limit=\"requests_under_way\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
}

/// A body that begins like this and never ends. The receiver is told when it was read so far.
fn unfinished(begin: String) -> (Body, tokio::sync::oneshot::Receiver<()>) {
    let (sender, read) = tokio::sync::oneshot::channel();
    let (mut begin, mut sender) = (Some(begin), Some(sender));
    let stream = futures_util::stream::poll_fn(move |_| match begin.take() {
        Some(begin) => std::task::Poll::Ready(Some(Ok::<_, std::io::Error>(begin))),
        None => {
            let _ = sender.take().map(|sender| sender.send(()));
            std::task::Poll::Pending
        }
    });
    (Body::from_stream(stream), read)
}

#[tokio::test]
async fn unfinished_bodies_of_one_caller_take_its_share_of_memory_and_no_more() {
    // 8,000 bytes, of which 1,000 are for operators: an agent may have 3,500.
    let serve =
        ServeConfig { body_bytes_max: 2000, body_memory_bytes_max: 8000, ..ServeConfig::default() };
    let house = House::with(serve, Limits::default()).await;
    let begun = |token: &str, path: &str, begin: usize| {
        let (body, read) = unfinished("x".repeat(begin));
        let request = house.request("POST", path, token, String::new()).map(|_| body);
        (tokio::spawn(house.router.clone().oneshot(request)), read)
    };
    let (first, read) = begun(&house.alice, "/v1/steps", 2000);
    read.await.unwrap();
    // Read and found to be no proposal: 400. Not read: 429.
    for (bytes, status) in [(1499, 400), (1500, 400), (1501, 429)] {
        let reply = house.propose(&house.alice, &"x".repeat(bytes)).await;
        assert_eq!(reply.status.as_u16(), status, "{bytes}: {}", reply.body);
        assert_eq!(reply.header("retry-after"), (status == 429).then_some("1"));
    }
    // One who has no token has a share, too.
    let (second, read) = begun("", "/login", 1999);
    read.await.unwrap();
    for (token, bytes) in [(&house.bob, 1500), (&house.olga, 2000)] {
        assert_eq!(house.propose(token, &"x".repeat(bytes)).await.status, 400);
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(house.propose(&house.alice, &"x".repeat(1501)).await.status, 400);
    second.abort();
    let metrics = house.get(&house.olga, "/metrics").await.body;
    assert!(metrics.contains("stepgate_refusals_total{limit=\"body_memory\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn an_agent_that_sent_and_received_too_much_in_an_hour_waits_and_operators_never_do() {
    let think = proposal("THINK", json!({}));
    let exchanged = {
        let house = House::new().await;
        think.len() + house.propose(&house.alice, &think).await.body.len()
    };
    let hourly = u64::try_from(exchanged).unwrap();
    // Below, at and above: the first exchange leaves something, nothing, or a debt.
    for (hourly, second) in [(hourly + 60, 200), (hourly, 200), (hourly - 60, 429)] {
        let serve = ServeConfig { agent_bytes_per_hour_max: hourly, ..ServeConfig::default() };
        let house = House::with(serve, Limits::default()).await;
        for status in [200, second] {
            let reply = house.propose(&house.alice, &think).await;
            assert_eq!(reply.status.as_u16(), status, "{hourly}: {}", reply.body);
            assert_eq!(reply.header("retry-after").is_some(), status == 429);
        }
        // To look stores nothing.
        assert_eq!(house.get(&house.alice, "/v1/runs").await.status, 200);
        for token in [&house.bob, &house.olga, &house.olga, &house.olga] {
            let proposed = house.propose(token, &proposal("THINK", json!({}))).await;
            assert_eq!(proposed.status, 200, "{}", proposed.body);
        }
    }
}

#[tokio::test]
async fn a_page_of_long_rows_ends_early_and_the_next_one_goes_on() {
    let house = House::new().await;
    let count = 12;
    let text = "x".repeat(page::BYTES_MAX / 5);
    let mut asked = Vec::new();
    for number in 0..count {
        let args = json!({ "path": format!("/sandbox/{number}.txt"), "content": text });
        assert_eq!(house.propose(&house.alice, &proposal("WRITE_FILE", args)).await.status, 200);
        asked.push(house.ask(&house.alice, &format!("d{number}")).await.0);
    }
    let mut path = "/v1/runs?limit=1000&tool=WRITE_FILE".to_owned();
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let reply = house.get(&house.alice, &path).await;
        // The last row of a page may be as long as a row can be.
        assert!(reply.body.len() < 3 * page::BYTES_MAX, "{}", reply.body.len());
        let page = reply.json();
        let runs = page["runs"].as_array().unwrap();
        seen.extend(runs.iter().map(|run| run["step_index"].as_u64().unwrap()));
        pages += 1;
        let Some(next) = page["next_before"].as_str() else { break };
        path = format!("/v1/runs?limit=1000&tool=WRITE_FILE&before={next}");
    }
    assert_eq!(seen, (0..count).rev().map(|number| 2 * number + 1).collect::<Vec<_>>());
    assert!(pages >= 4, "{pages}");
    let first = house.get(&house.olga, "/v1/approvals?limit=9").await.json();
    let before = first["next_before"].as_str().unwrap();
    let rest = house.get(&house.olga, &format!("/v1/approvals?before={before}")).await.json();
    assert_eq!(rest["next_before"], Value::Null);
    let ids = [&first, &rest].into_iter().flat_map(|page| page["approvals"].as_array().unwrap());
    let ids: Vec<_> = ids.map(|approval| approval["approval_id"].as_str().unwrap()).collect();
    assert_eq!(ids, asked.iter().rev().map(String::as_str).collect::<Vec<_>>());
}

#[tokio::test]
async fn failures_to_say_who_one_is_have_a_stricter_limit_and_hinder_nobody_else() {
    let serve = ServeConfig { failed_auth_per_minute_max: 2, ..ServeConfig::default() };
    let house = House::with(serve, Limits::default()).await;
    for expected in [401, 401, 429, 429] {
        assert_eq!(house.get("sg_wrong", "/v1/runs").await.status, expected);
    }
    assert_eq!(house.get(&house.alice, "/v1/runs").await.status, 200);
}

#[tokio::test]
async fn json_bodies_are_strict() {
    let house = House::new().await;
    let (approval, _) = house.ask(&house.alice, "d").await;
    let path = format!("/v1/approvals/{approval}/approve");
    for body in [
        r#"{"note":"a","note":"b"}"#,
        r#"{"note":1}"#,
        r#"{"notes":"a"}"#,
        "[]",
        "{",
        "\u{feff}{}",
        r#"{"note":"a"} x"#,
    ] {
        let reply = house.post(&house.olga, &path, body).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["code"]), (400, &json!("MALFORMED")));
    }
    let long = json!({ "note": "x".repeat(5000) });
    assert_eq!(house.post(&house.olga, &path, long).await.status, 400);
    let huge = json!({ "note": "x".repeat(300_000) });
    assert_eq!(house.post(&house.olga, &path, huge).await.status, 413);
    let mut form = house.request("POST", &path, &house.olga, "note=a".into());
    form.headers_mut().insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
    assert_eq!(house.send(form).await.status, 415);
    let mut packed = house.request("POST", "/v1/steps", &house.alice, "x".into());
    packed.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    assert_eq!(house.send(packed).await.status, 415);
    assert_eq!(house.post(&house.olga, &path, "").await.status, 200);
}

#[tokio::test]
async fn queries_are_strict() {
    let house = House::new().await;
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "status=done",
        "before=x",
        "session=x",
        "page=2",
        "limit=1&limit=2",
    ] {
        let reply = house.get(&house.olga, &format!("/v1/runs?{query}")).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["code"]), (400, &json!("MALFORMED")));
    }
    for id in ["x", "..", "%2e%2e", "550e8400-e29b-41d4-a716-446655440000"] {
        assert_eq!(house.get(&house.olga, &format!("/v1/runs/{id}")).await.status, 404, "{id}");
    }
}

#[tokio::test]
async fn lists_go_on_where_the_page_before_ended() {
    let house = House::new().await;
    for _ in 0..5 {
        house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/runs?limit=2".to_owned();
    loop {
        let page = house.get(&house.alice, &path).await.json();
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["step_index"].clone()));
        let Some(next) = page["next_before"].as_str() else { break };
        path = format!("/v1/runs?limit=2&before={next}");
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let house = House::new().await;
    for (method, path, allowed) in [
        ("PUT", "/v1/runs", "GET"),
        ("GET", "/v1/steps", "POST"),
        ("PATCH", "/v1/tokens", "POST, GET"),
    ] {
        let reply = house.send(house.request(method, path, &house.olga, String::new())).await;
        assert_eq!((reply.status.as_u16(), reply.header("allow")), (405, Some(allowed)));
        assert_eq!(reply.json()["code"], "METHOD_NOT_ALLOWED");
    }
    assert_eq!(house.get(&house.olga, "/v2").await.json()["code"], "NOT_FOUND");
}
