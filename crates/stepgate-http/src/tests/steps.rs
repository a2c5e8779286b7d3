use super::*;

#[tokio::test]
async fn every_outcome_has_its_status_and_its_headers() {
    let house = House::new().await;
    let write = json!({ "path": "/sandbox/a.txt", "content": "hi" });
    let first = proposal("WRITE_FILE", write.clone());
    let other = first.replace("hi", "ho");
    let rows = [
        (first.clone(), 200, "SUCCESS"),
        (proposal("READ_FILE", json!({ "path": "/sandbox/none.txt" })), 200, "EXECUTION_ERROR"),
        ("{".into(), 400, "VALIDATION_ERROR"),
        (String::new(), 400, "VALIDATION_ERROR"),
        (other, 422, "VALIDATION_ERROR"),
        (proposal("READ_FILE", json!({ "path": "/sandbox/forbidden.txt" })), 403, "DENIED"),
        (proposal("DELETE_FILE", json!({ "path": "/sandbox/a.txt" })), 202, "APPROVAL_REQUIRED"),
    ];
    for (index, (body, status, outcome)) in rows.iter().enumerate() {
        let reply = house.propose(&house.alice, body).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["outcome"]), (*status, &json!(outcome)));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("stepgate-step-index").unwrap(), (index + 1).to_string());
        assert_eq!(reply.header("idempotent-replayed"), None, "{body}");
        let run = reply.header("stepgate-run").unwrap();
        let detail = house.get(&house.alice, &format!("/v1/runs/{run}")).await.json();
        assert_eq!(detail["run"]["session_id"], reply.header("stepgate-session").unwrap());
        assert_eq!(detail["run"]["payload_bytes"], body.len());
    }
    let again = house.propose(&house.alice, &first).await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (200, Some("true")));
}

#[tokio::test]
async fn a_payload_beyond_the_gate_s_limit_is_a_recorded_refusal_and_beyond_the_body_s_an_error() {
    let serve = ServeConfig { body_bytes_max: 2000, ..ServeConfig::default() };
    let limits = Limits { payload_bytes_max: 1000, ..Limits::default() };
    let house = House::with(serve, limits).await;
    for (length, status) in [(1000, 400), (1001, 400), (2000, 400), (2001, 413)] {
        let reply = house.propose(&house.alice, &"x".repeat(length)).await;
        assert_eq!(reply.status, status, "{length}");
        if status == 413 {
            assert_eq!(reply.json()["code"], "BODY_TOO_LARGE");
            continue;
        }
        let code = if length > 1000 { "PAYLOAD_TOO_LARGE" } else { "INVALID_JSON" };
        assert_eq!(reply.json()["error"]["error_code"], code);
        let run = reply.header("stepgate-run").unwrap();
        let run = house.get(&house.alice, &format!("/v1/runs/{run}")).await.json()["run"].clone();
        assert_eq!(run["payload_bytes"], length);
        assert_eq!(run["payload"].as_str().unwrap().len(), length.min(1000));
    }
}

#[tokio::test]
async fn a_named_session_is_joined_and_a_bad_one_is_refused() {
    let house = House::new().await;
    let session = fresh_id();
    let think = |session: &str| {
        let mut request =
            house.request("POST", "/v1/steps", &house.alice, proposal("THINK", json!({})));
        request.headers_mut().insert("stepgate-session", session.parse().unwrap());
        house.send(request)
    };
    let reply = think(&session).await;
    assert_eq!(reply.header("stepgate-session"), Some(session.as_str()));
    assert_eq!(think("mine").await.status, 400);
}

#[tokio::test]
async fn a_caller_who_leaves_never_stops_the_step() {
    let house = House::new().await;
    let leave = house.executor.hold_back().await;
    let write = proposal("WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "hi" }));
    let request = house.request("POST", "/v1/steps", &house.alice, write.clone());
    let caller = tokio::spawn(house.router.clone().oneshot(request));
    let deadline = Instant::now() + Duration::from_secs(10);
    while house.app.service.running() == 0 {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    // Until the call is durable, another proposal with the same id would wait for the path.
    while house.get(&house.alice, "/v1/runs").await.json()["runs"] == json!([]) {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    // The same proposal is answered as in progress; with `Prefer: wait` it joins the run.
    let reply = house.propose(&house.alice, &write).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["outcome"]), (409, &json!("IN_PROGRESS")));
    assert_eq!(reply.header("retry-after"), Some("1"));
    let mut request = house.request("POST", "/v1/steps", &house.alice, write);
    request.headers_mut().insert("prefer", "respond-async, wait=20".parse().unwrap());
    let (joined, ()) = tokio::join!(house.send(request), async { drop(leave) });
    assert_eq!((joined.status.as_u16(), &joined.json()["outcome"]), (200, &json!("SUCCESS")));
    assert_eq!(joined.header("preference-applied"), Some("wait=20"));
    assert_eq!(house.dispatched(), 1);
    assert_eq!(std::fs::read_to_string(house.directory.path().join("a.txt")).unwrap(), "hi");
}

#[tokio::test]
async fn patience_is_a_whole_number_and_has_an_end() {
    let serve = ServeConfig { wait_max: Duration::from_millis(20), ..ServeConfig::default() };
    let house = House::with(serve, Limits::default()).await;
    for (prefer, status) in
        [("wait=3600", 202), ("wait=soon", 400), ("wait=-1", 400), ("a, b=c", 202)]
    {
        let asked = proposal("CREATE_DIRECTORY", json!({ "path": "/sandbox/d" }));
        let mut request = house.request("POST", "/v1/steps", &house.alice, asked);
        request.headers_mut().insert("prefer", prefer.parse().unwrap());
        assert_eq!(house.send(request).await.status, status, "{prefer}");
    }
}
