use super::*;

#[tokio::test]
async fn a_waiting_caller_is_woken_by_the_decision_at_once() {
    let house = House::new().await;
    for (word, status, outcome) in [("approve", 200, "SUCCESS"), ("deny", 403, "DENIED")] {
        let path = format!("/sandbox/{word}");
        let asked = proposal("CREATE_DIRECTORY", json!({ "path": path }));
        let mut request = house.request("POST", "/v1/steps", &house.alice, asked);
        request.headers_mut().insert("prefer", "wait=30".parse().unwrap());
        let caller = tokio::spawn(house.router.clone().oneshot(request));
        let deadline = Instant::now() + Duration::from_secs(10);
        let id = loop {
            let open = house.get(&house.olga, "/v1/approvals?status=pending").await.json();
            if let Some(id) = open["approvals"][0]["approval_id"].as_str() {
                break id.to_owned();
            }
            assert!(Instant::now() < deadline);
            tokio::task::yield_now().await;
        };
        let start = Instant::now();
        let decided = house
            .post(&house.olga, &format!("/v1/approvals/{id}/{word}"), json!({ "note": "so" }))
            .await;
        assert_eq!(decided.status, 200, "{}", decided.body);
        let response = caller.await.unwrap().unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(response.status(), status);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["outcome"], outcome);
    }
    assert_eq!(house.dispatched(), 1);
    assert!(!house.directory.path().join("deny").exists());
}

#[tokio::test]
async fn a_denied_step_is_never_executed_and_says_by_whom_and_why() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let path = format!("/v1/approvals/{approval}/deny");
    let denied = house.post(&house.olga, &path, json!({ "note": "not on a Friday" })).await.json();
    assert_eq!(denied["status"], "denied");
    assert_eq!(denied["resolution"]["approver_id"], "olga");
    assert_eq!(denied["resolution"]["note"], "not on a Friday");
    assert_eq!(denied["response"]["error"]["error_code"], "APPROVAL_DENIED");
    let run = house.until(&run, "denied").await;
    let detail = run["record"]["body"]["detail"].as_str().unwrap();
    assert!(detail.contains("olga") && detail.contains("not on a Friday"), "{detail}");
    assert_eq!(house.dispatched(), 0);
    let again = house.post(&house.otto, &path, "").await;
    assert_eq!((again.status.as_u16(), &again.json()["code"]), (409, &json!("CONFLICT")));
}

#[tokio::test]
async fn the_principal_that_asked_cannot_decide() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.olga, "d").await;
    let path = format!("/v1/approvals/{approval}/approve");
    assert_eq!(house.post(&house.olga, &path, "").await.status, 403);
    assert_eq!(house.dispatched(), 0);
    assert_eq!(house.post(&house.otto, &path, "").await.status, 200);
    house.until(&run, "ok").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_operators_at_the_same_instant_make_one_execution() {
    const ROUNDS: usize = 1000;
    let house = Arc::new(House::new().await);
    for round in 0..ROUNDS {
        let (approval, run) = house.ask(&house.alice, &format!("d{round}")).await;
        let path = format!("/v1/approvals/{approval}/approve");
        let decide = |token: String| {
            let (house, path) = (Arc::clone(&house), path.clone());
            tokio::spawn(async move { house.post(&token, &path, "").await.status.as_u16() })
        };
        let (olga, otto) = (decide(house.olga.clone()), decide(house.otto.clone()));
        let mut statuses = [olga.await.unwrap(), otto.await.unwrap()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "round {round}");
        house.until(&run, "ok").await;
        assert_eq!(house.dispatched(), round + 1);
    }
}

#[tokio::test]
async fn an_answer_comes_when_the_decision_is_durable_and_not_when_the_step_ends() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let leave = house.executor.hold_back().await;
    let path = format!("/v1/approvals/{approval}/approve");
    let decided = house.post(&house.olga, &path, "").await.json();
    assert_eq!((&decided["status"], &decided["response"]), (&json!("approved"), &Value::Null));
    assert_eq!(house.dispatched(), 0);
    // A later decision is refused at once, without waiting for the step of the first.
    let start = Instant::now();
    assert_eq!(house.post(&house.otto, &path, "").await.status, 409);
    assert!(start.elapsed() < Duration::from_secs(20));
    house.until(&run, "approved").await;
    drop(leave);
    house.until(&run, "ok").await;
}

#[tokio::test]
async fn several_are_decided_each_by_its_id() {
    let house = House::new().await;
    let (first, _) = house.ask(&house.alice, "a").await;
    let (second, _) = house.ask(&house.alice, "b").await;
    let (own, _) = house.ask(&house.olga, "c").await;
    let (unknown, decided) = (fresh_id(), first.clone());
    let body = json!({ "decision": "approve", "ids": [first, second, own, unknown, decided] });
    let reply = house.post(&house.olga, "/v1/approvals/decide", body).await.json();
    let statuses: Vec<_> = reply["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["status"].clone())
        .collect();
    assert_eq!(statuses, [200, 200, 403, 404, 409]);
    for body in [
        json!({ "decision": "approve", "ids": [] }),
        json!({ "decision": "approve" }),
        json!({ "decision": "all", "ids": [fresh_id()] }),
        json!({ "ids": [fresh_id()] }),
        json!({ "decision": "deny", "ids": vec![fresh_id(); 101] }),
        json!({ "decision": "deny", "ids": ["x"] }),
    ] {
        let reply = house.post(&house.olga, "/v1/approvals/decide", &body).await;
        assert_eq!(reply.status, 400, "{body}");
    }
}

#[tokio::test]
async fn what_nobody_decides_is_decided_by_time() {
    let limits = Limits { approval_ttl_ms: 60, ..Limits::default() };
    let house = House::with(ServeConfig::default(), limits).await;
    // One before the expiry task starts, as after a restart, and one after.
    let (early, early_run) = house.ask(&house.alice, "a").await;
    house.app.service.begin();
    let (late, late_run) = house.ask(&house.alice, "b").await;
    for (approval, run) in [(early, early_run), (late, late_run)] {
        let run = house.until(&run, "denied").await;
        assert_eq!(run["approval"]["status"], "expired");
        assert_eq!(run["record"]["body"]["detail"], "APPROVAL_EXPIRED");
        let path = format!("/v1/approvals/{approval}/approve");
        assert_eq!(house.post(&house.olga, &path, "").await.status, 409);
    }
    assert_eq!(house.dispatched(), 0);
}

#[tokio::test]
async fn a_word_that_comes_after_its_time_is_no_grant_although_nobody_kept_the_time() {
    let limits = Limits { approval_ttl_ms: 1, ..Limits::default() };
    let house = House::with(ServeConfig::default(), limits).await;
    let (approval, run) = house.ask(&house.alice, "a").await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let path = format!("/v1/approvals/{approval}/approve");
    assert_eq!(house.post(&house.olga, &path, "").await.status, 409);
    assert_eq!(house.until(&run, "denied").await["approval"]["status"], "expired");
    assert_eq!(house.dispatched(), 0);
}
