//! The inbox, runs, sessions, tools, policy and health.

use super::*;

/// The approvals on a page, in their order.
fn asks(reply: &Reply) -> Vec<&str> {
    let parts = reply.body.split("id=\"ask-").skip(1);
    parts.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[tokio::test]
async fn the_inbox_has_every_open_approval_oldest_first_and_with_all_its_arguments() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    let empty = browser.get("/").await;
    assert!(empty.body.contains("Nothing waits for a person."), "{}", empty.body);
    let mut expected = Vec::new();
    for name in ["one", "two", "three"] {
        expected.push(house.ask(&house.alice, name).await.0);
    }
    let page = browser.get("/").await;
    assert_eq!(asks(&page), expected);
    for shown in ["(3) Inbox", "3 things wait", "/sandbox/two", "it changes what is there"] {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
    browser.decide(&expected[1], "deny", "").await;
    assert_eq!(asks(&browser.get("/").await), [expected[0].as_str(), &expected[2]]);
}

#[tokio::test]
async fn many_approvals_are_shown_page_by_page() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    for number in 0..26 {
        house.ask(&house.alice, &number.to_string()).await;
    }
    let first = browser.get("/").await;
    assert_eq!(asks(&first).len(), 25);
    let last = *asks(&first).last().unwrap();
    let more = format!("/?after={last}");
    assert!(first.body.contains(&format!("href=\"{more}\"")), "{}", first.body);
    let second = browser.get(&more).await;
    assert_eq!(asks(&second).len(), 1);
    assert!(!second.body.contains("More approvals") && !asks(&first).contains(&asks(&second)[0]));
}

#[tokio::test]
async fn several_approvals_are_decided_only_by_explicit_choice() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    let mut runs = Vec::new();
    for name in ["one", "two", "three"] {
        runs.push(house.ask(&house.alice, name).await);
    }
    let csrf = browser.csrf().await;
    let chosen = [("csrf", csrf.as_str()), ("decision", "approve"), ("note", "both")];
    let none = browser.post("/", &chosen).await;
    assert_eq!(none.status, 400);
    assert!(none.body.contains("you chose none"), "{}", none.body);
    let ids = [("id", runs[0].0.as_str()), ("id", runs[2].0.as_str())];
    let reply = browser.post("/", &[&chosen[..], &ids[..]].concat()).await;
    assert!(reply.status == 200 && reply.body.contains("You approved 2."), "{}", reply.body);
    assert_eq!(asks(&reply), [runs[1].0.as_str()]);
    for (index, status) in [(0, "ok"), (1, "approval_required"), (2, "ok")] {
        let run = house.until(&runs[index].1, status).await;
        let note = &run["approval"]["resolution"]["note"];
        assert_eq!(note.as_str(), (status == "ok").then_some("both"), "{run}");
    }
    // What another operator decided first is named, and stands.
    let again = browser.post("/", &[&chosen[..], &ids[..]].concat()).await;
    let named = format!("Not decided: {}: it was decided before.", runs[0].0);
    assert!(
        again.body.contains("You approved 0.") && again.body.contains(&named),
        "{}",
        again.body
    );
}

#[tokio::test]
async fn several_are_not_decided_by_a_form_of_another_nor_by_an_auditor() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let olga = Browser::of(&house, &house.olga).await;
    let anna = Browser::of(&house, &house.anna).await;
    let csrf = olga.csrf().await;
    for (browser, csrf, expected) in
        [(&olga, "x", 403), (&anna, csrf.as_str(), 403), (&anna, anna.csrf().await.as_str(), 403)]
    {
        let fields = [("csrf", csrf), ("decision", "approve"), ("id", approval.as_str())];
        assert_eq!(browser.post("/", &fields).await.status, expected);
    }
    let odd = [("csrf", csrf.as_str()), ("decision", "approve"), ("id", "x")];
    assert_eq!(olga.post("/", &odd).await.status, 400);
    let odd = [("csrf", csrf.as_str()), ("decision", "maybe"), ("id", approval.as_str())];
    assert_eq!(olga.post("/", &odd).await.status, 400);
    house.until(&run, "approval_required").await;
    let page = anna.get("/").await;
    assert_eq!(asks(&page), [approval.as_str()]);
    assert!(!has_buttons(&page), "{}", page.body);
}

#[tokio::test]
async fn a_decision_leads_to_the_next_approval_and_the_last_one_to_its_outcome() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    let (first, _) = house.ask(&house.alice, "one").await;
    let (second, _) = house.ask(&house.alice, "two").await;
    let reply = browser.decide(&first, "approve", "").await;
    let next = format!("/approvals/{second}?decided={first}");
    assert_eq!((reply.status.as_u16(), reply.header("location")), (303, Some(next.as_str())));
    let page = browser.get(&next).await;
    assert!(page.body.contains("The one before was approved."), "{}", page.body);
    let reply = browser.decide(&second, "deny", "").await;
    assert_eq!(reply.header("location"), Some(format!("/approvals/{second}").as_str()));
    let (third, _) = house.ask(&house.alice, "three").await;
    let csrf = browser.csrf().await;
    let fields = [("csrf", csrf.as_str()), ("decision", "approve"), ("back", "inbox")];
    let reply = browser.post(&format!("/approvals/{third}"), &fields).await;
    assert_eq!(reply.header("location"), Some("/"));
}

#[tokio::test]
async fn runs_are_filtered_and_a_filter_that_cannot_be_read_is_named() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.anna).await;
    house.ask(&house.alice, "d").await;
    house.propose(&house.bob, &proposal("THINK", json!({}))).await;
    let of = async |query: &str| browser.get(&format!("/runs?{query}")).await;
    let rows = |reply: &Reply| reply.body.matches("<tr>").count().saturating_sub(1);
    assert_eq!(rows(&of("").await), 2);
    for (query, shown) in [
        ("status=approval_required", "CREATE_DIRECTORY"),
        ("principal=bob", "THINK"),
        ("tool=THINK&status=&principal=", "THINK"),
        ("text=create", "CREATE_DIRECTORY"),
        ("since=2020-01-01&until=&text=think", "THINK"),
    ] {
        let page = of(query).await;
        assert!(rows(&page) == 1 && page.body.contains(shown), "{query}: {}", page.body);
    }
    for query in ["tool=NOTHING", "until=2020-01-01", "since=2999-01-01T00:00"] {
        assert!(of(query).await.body.contains("No run fits."), "{query}");
    }
    let long = format!("text={}", "x".repeat(300));
    for query in ["status=x", "session=x", "before=x", "principal=%20%09x%20y", "since=x", &long] {
        let page = of(query).await;
        assert_eq!(page.status, 400, "{query}");
        assert!(page.body.contains("is not a"), "{}", page.body);
    }
}

#[tokio::test]
async fn a_run_has_its_phases_its_decision_and_a_chain_that_can_be_recomputed() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.anna).await;
    let asked = proposal("LIST_FILES", json!({ "path": "/sandbox/" }));
    let run = house.propose(&house.alice, &asked).await.header("stepgate-run").unwrap().to_owned();
    let page = browser.get(&format!("/runs/{run}")).await;
    for shown in ["RECEIVE", "RESPOND", "LIST_FILES", "It was allowed.", "tool_effect", "a test"] {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
    let passed = page.body.matches("<li class=\"passed\">").count();
    assert_eq!(passed, 9, "{}", page.body);
    let chain = browser.get(&format!("/runs/{run}/chain")).await.json();
    let entries = chain["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 4);
    let digest = |text: &str| stepgate_core::digest::Digest::of_bytes(text.as_bytes()).to_string();
    let record = chain["record"]["text"].as_str().unwrap();
    assert_eq!(chain["record"]["digest"], digest(record));
    for entry in entries {
        let sealed = entry["artifact"].as_str().unwrap();
        let (_, covered) = sealed.split_once("\",").unwrap();
        assert_eq!(entry["entry"]["artifact_digest"], digest(&format!("{{{covered}")));
    }
    let file = browser.get(&format!("/runs/{run}/export")).await;
    let name = format!("attachment; filename=\"{run}.json\"");
    assert_eq!(file.header("content-disposition"), Some(name.as_str()));
    assert_eq!(file.json()["run"]["tool_run_id"], run);
    for path in ["/runs/x", &format!("/runs/{}", fresh_id())] {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_refused_run_shows_where_it_ended() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    let asked = proposal("CREATE_DIRECTORY", json!({ "path": "/sandbox/forbidden" }));
    let run = house.propose(&house.alice, &asked).await.header("stepgate-run").unwrap().to_owned();
    let page = browser.get(&format!("/runs/{run}")).await;
    for shown in ["It was refused.", "<li class=\"failed\"><b>AUTHORIZE</b>", "not reached"] {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
}

#[tokio::test]
async fn a_session_shows_its_runs_and_the_end_of_its_chain() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.anna).await;
    let reply = house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    let session = reply.header("stepgate-session").unwrap().to_owned();
    let list = browser.get("/sessions").await;
    assert!(list.body.contains(&session), "{}", list.body);
    assert!(browser.get("/sessions?principal=alice").await.body.contains(&session));
    assert!(browser.get("/sessions?principal=bob").await.body.contains("No session fits."));
    for query in ["principal=a%20b%0a", "before=x"] {
        assert_eq!(browser.get(&format!("/sessions?{query}")).await.status, 400, "{query}");
    }
    let page = browser.get(&format!("/sessions/{session}")).await;
    let object = house.get(&house.anna, &format!("/v1/sessions/{session}")).await.json();
    for shown in ["THINK", "alice", object["head_digest"].as_str().unwrap()] {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
    assert_eq!(browser.get(&format!("/sessions/{}", fresh_id())).await.status, 404);
}

#[tokio::test]
async fn a_proposal_is_tried_without_a_run() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.anna).await;
    let csrf = browser.csrf().await;
    let tried = async |proposal: &str| {
        let fields = [("csrf", csrf.as_str()), ("principal", "alice"), ("proposal", proposal)];
        browser.post("/policy", &fields).await
    };
    let ask = proposal("DELETE_FILE", json!({ "path": "/sandbox/a.txt" }));
    let forbidden = proposal("DELETE_FILE", json!({ "path": "/sandbox/forbidden" }));
    for (text, shown) in [
        (ask.as_str(), "A person would be asked."),
        (&proposal("THINK", json!({})), "It would be permitted."),
        (&forbidden, "It would be denied."),
        ("{", "It would be refused before policy"),
    ] {
        let page = tried(text).await;
        assert!(page.status == 200 && page.body.contains(shown), "{shown}: {}", page.body);
    }
    assert!(browser.get("/runs").await.body.contains("No run fits."));
    let fields = [("csrf", "x"), ("principal", ""), ("proposal", "{}")];
    assert_eq!(browser.post("/policy", &fields).await.status, 403);
}

#[tokio::test]
async fn an_open_page_is_told_of_changes_until_its_login_ends() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    let mut request = browser.request("GET", "/live", String::new());
    request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    let response = house.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    house.ask(&house.alice, "d").await;
    let told = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(&told[..], b"data: changed\n\n");
    let csrf = browser.csrf().await;
    browser.post("/logout", &[("csrf", &csrf)]).await;
    house.ask(&house.alice, "e").await;
    assert!(body.frame().await.is_none(), "the stream goes on after the logout");
    assert_eq!(Browser::new(&house).get("/live").await.status, 303);
}

#[tokio::test]
async fn every_page_says_what_is_stopped_and_operators_stop_and_lift() {
    const BANNER: &str = "<b>Stopped:</b>";
    let house = House::new().await;
    let (approval, _) = house.ask(&house.alice, "d").await;
    let [olga, anna] =
        [Browser::of(&house, &house.olga).await, Browser::of(&house, &house.anna).await];
    let pages = ["/", "/runs", "/stops", "/health", &format!("/approvals/{approval}")];
    for page in pages {
        assert!(!olga.get(page).await.body.contains(BANNER), "{page}");
    }
    let csrf = olga.csrf().await;
    let stop = async |kind: &str, name: &str| {
        let fields = [("csrf", csrf.as_str()), ("kind", kind), ("name", name), ("note", "odd")];
        olga.post("/stops", &fields).await
    };
    for (kind, name) in
        [("none", ""), ("all", "alice"), ("principal", ""), ("session", "x"), ("server", "a.b")]
    {
        let refused = stop(kind, name).await;
        assert_eq!(refused.status, 400, "{kind}");
        assert!(refused.body.contains("Nothing was stopped"), "{}", refused.body);
    }
    let made = stop("principal", "alice").await;
    assert_eq!(made.status, 200);
    for shown in [BANNER, "principal `alice`", "wait for an approval: 1", "in force", "odd"] {
        assert!(made.body.contains(shown), "{shown} is not in\n{}", made.body);
    }
    assert!(!made.body.contains("Warning"), "{}", made.body);
    assert!(stop("principal", "<b>alise").await.body.contains("Nothing was stopped"));
    assert!(stop("principal", "alise").await.body.contains("is the name right?"));
    for page in pages {
        assert!(olga.get(page).await.body.contains(BANNER), "{page}");
        assert!(anna.get(page).await.body.contains(BANNER), "{page}");
    }
    let approved = olga.decide(&approval, "approve", "").await;
    assert_eq!(approved.status, 409);
    assert!(approved.body.contains("an operator has stopped this call"), "{}", approved.body);
    assert_eq!(house.dispatched(), 0);

    // An auditor sees the stops, and no form that stops or lifts.
    let looked = anna.get("/stops").await.body;
    assert!(
        looked.contains("principal `alice`") && !looked.contains("action=\"/stops"),
        "{looked}"
    );
    let csrf = anna.csrf().await;
    let path = made.body.split("action=\"/stops/").nth(1).unwrap().split('"').next().unwrap();
    let path = format!("/stops/{path}");
    assert_eq!(anna.post(&path, &[("csrf", &csrf)]).await.status, 403);
    for _ in 0..2 {
        let csrf = olga.csrf().await;
        assert_eq!(olga.post(&path, &[("csrf", &csrf)]).await.status, 303);
    }
    assert!(olga.get("/stops").await.body.contains("lifted"));
    assert_eq!(olga.decide(&approval, "approve", "").await.status, 303);
}
