//! Servers over streamable HTTP: one made with the official SDK, and one that answers whatever it is told.

mod hostile;
mod official;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use serde_json::json;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ports::{Effect, Failed};
use stepgate_exec::servers::{
    CallProgress, Secret, ServerLimits, ServerSpec, ServerState, StartError, Transport,
};
use tokio::net::TcpListener;

use super::house::{
    House, done, failed, own_error, sending, spec, text_result, until, with_timeout,
};

/// Serves on a free port of the loopback, and gives the address.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

fn at(url: &str) -> ServerSpec {
    let headers = BTreeMap::from([("authorization".to_owned(), Secret::new("Bearer hunter2"))]);
    let transport = Transport::Http { url: url.to_owned(), headers };
    ServerSpec { transport, ..spec("house", "") }
}

async fn refusal(mut spec: ServerSpec) -> StartError {
    spec.required = true;
    match House::unaccepted(vec![spec], BTreeMap::new()).await {
        Ok(_) => panic!("it started"),
        Err(refusal) => refusal,
    }
}

#[tokio::test]
async fn a_server_of_the_official_sdk_is_called_in_both_ways_it_can_answer() {
    for is_plain_json in [false, true] {
        let url = serve(official::router(is_plain_json)).await;
        let house = House::of(vec![at(&url)]).await;
        let said = house.run("house.echo", json!({ "text": "hello" })).await;
        assert_eq!(said, text_result("hello"), "plain JSON: {is_plain_json}");
        // The header came with it, and so did the key.
        let seen = done(house.run("house.seen", json!({})).await);
        assert_eq!(seen["structuredContent"]["authorization"], "Bearer hunter2");
        assert_eq!(seen["structuredContent"]["dispatch"], "first");
        assert_eq!(house.run("house.fail", json!({})).await, own_error("no such room"));
    }
}

#[tokio::test]
async fn a_call_over_http_is_cut_off_while_it_runs() {
    for is_plain_json in [false, true] {
        let url = serve(official::router(is_plain_json)).await;
        let spec = with_timeout(at(&url), "slow", Duration::from_millis(100));
        let house = House::of(vec![spec]).await;
        let effect = house.run("house.slow", json!({})).await;
        assert_eq!(effect, failed(ExecutionFailure::Timeout, "no answer within 100 ms", true));
        assert_eq!(house.run("house.echo", json!({})).await, text_result(""));
    }
}

#[tokio::test]
async fn a_result_over_http_after_its_time_is_told() {
    let url = serve(hostile::Hostile::default().router()).await;
    let short = Duration::from_millis(100);
    let mut spec = with_timeout(with_timeout(at(&url), "slow", short), "slow_event", short);
    spec.limits.concurrency = 1;
    let house = House::of(vec![spec]).await;
    for tool in ["house.slow", "house.slow_event"] {
        let effect = house.run(tool, json!({})).await;
        assert_eq!(effect, failed(ExecutionFailure::Timeout, "no answer within 100 ms", true));
        // Whoever is waited for late keeps no place.
        assert_eq!(house.run("house.echo", json!({})).await, text_result("hello"));
        let late = until("the late result", async || house.late.lock().unwrap().pop()).await;
        assert!(late.succeeded, "{tool}");
    }
}

#[tokio::test]
async fn how_far_a_call_has_come_is_told_over_http() {
    let house = House::of(vec![at(&serve(official::router(false)).await)]).await;
    let sending = sending();
    let effect = house.send("house.progress", json!({}), &sending).await;
    assert_eq!(effect, text_result("progress"));
    let said = |progress| CallProgress {
        run_id: sending.run_id,
        progress,
        total: Some(2.0),
        message: None,
    };
    assert_eq!(*house.progress.lock().unwrap(), [said(1.0), said(2.0)]);
}

#[tokio::test]
async fn a_change_of_the_tools_is_told_over_http() {
    use stepgate_core::ports::ToolServers;
    use stepgate_core::tool::Standing;
    let house = House::of(vec![at(&serve(official::router(false)).await)]).await;
    house.run("house.change", json!({})).await;
    until("the news", async || {
        let tool = house.servers.tool(&super::house::name("house.echo")).unwrap();
        (tool.standing == Standing::Changed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_answers_badly_over_http_fails_as_over_a_pipe() {
    let invalid = |detail: &str| (ExecutionFailure::OutputInvalid, detail.to_owned(), true);
    let too_long = "a message was longer than 100000 bytes";
    let rows = [
        ("duplicate", invalid("DUPLICATE_KEY")),
        ("duplicate_event", invalid("DUPLICATE_KEY")),
        ("giant", invalid(too_long)),
        ("giant_event", invalid("an event was longer than 100000 bytes")),
        ("cut", (ExecutionFailure::ToolFailed, "it ended the stream".to_owned(), true)),
        (
            "broken",
            (
                ExecutionFailure::ToolFailed,
                "it answered 500 Internal Server Error and no JSON".to_owned(),
                true,
            ),
        ),
        (
            "moved",
            (
                ExecutionFailure::Unavailable,
                "it answered 307 Temporary Redirect and no JSON".to_owned(),
                false,
            ),
        ),
        ("error", (ExecutionFailure::ToolFailed, "the house is on fire".to_owned(), false)),
    ];
    let hostile = hostile::Hostile::default();
    hostile.set_giant(1_000_000);
    let url = serve(hostile.router()).await;
    let mut spec = at(&url);
    spec.limits.message_bytes_max = 100_000;
    spec.limits.breaker_failures_max = 100;
    let house = House::of(vec![spec]).await;
    for (tool, expected) in rows {
        let up =
            async || (house.servers.listing()[0].server_state == ServerState::Up).then_some(());
        until("the connection", up).await;
        match house.run(&format!("house.{tool}"), json!({})).await {
            Effect::Failed(Failed { failure, detail, in_doubt, .. }) => {
                assert_eq!((failure, detail.unwrap(), in_doubt), expected, "{tool}");
            }
            other @ (Effect::Done(_) | Effect::Refused(_) | Effect::Unknown(_)) => {
                panic!("{tool}: {other:?}")
            }
        }
    }
    assert_eq!(hostile.redirects_followed(), 0);
}

#[tokio::test]
async fn a_server_whose_session_is_gone_is_connected_to_anew() {
    let hostile = hostile::Hostile::default();
    let house = House::of(vec![at(&serve(hostile.router()).await)]).await;
    hostile.forget_sessions();
    let gone = failed(ExecutionFailure::Unavailable, "its session is gone", false);
    assert_eq!(house.run("house.echo", json!({})).await, gone);
    let back = until("the new session", async || {
        let effect = house.run("house.echo", json!({})).await;
        matches!(effect, Effect::Done(_)).then_some(effect)
    });
    assert_eq!(back.await, text_result("hello"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_and_no_secret_with_it() {
    let mut away = at("http://127.0.0.1:9/mcp");
    away.limits.start_wait = Duration::from_secs(5);
    let words = refusal(away).await.to_string();
    assert!(words.starts_with("the tool server `house` did not start: "), "{words}");
    assert!(words.contains("it cannot be connected to"), "{words}");
    assert!(!words.contains("hunter2"), "{words}");
}

#[tokio::test]
async fn an_address_or_a_header_that_is_none_is_refused_without_its_value() {
    let mut rows = vec![at("ftp://example.invalid/"), at("nonsense")];
    for (name, value) in [("mcp-session-id", "hunter2"), ("a b", "hunter2"), ("a", "hunter2\n")] {
        let headers = BTreeMap::from([(name.to_owned(), Secret::new(value))]);
        let transport = Transport::Http { url: "http://127.0.0.1:9/".into(), headers };
        rows.push(ServerSpec { transport, ..spec("house", "") });
    }
    for spec in rows {
        let refusal = refusal(spec).await;
        assert!(matches!(refusal, StartError::Start { .. }), "{refusal}");
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
    }
}

#[tokio::test]
async fn a_result_over_http_may_be_as_long_as_the_limit_and_not_longer() {
    let hostile = hostile::Hostile::default();
    let url = serve(hostile.router()).await;
    for (limit, tools) in [(10 << 20, ["giant", "giant_event"]), (64 << 20, ["giant", "giant"])] {
        let mut spec = at(&url);
        spec.limits = ServerLimits::for_output(limit);
        let house = House::of(vec![spec]).await;
        for tool in tools {
            let around = r#"{"content":[{"type":"text","text":""}]}"#.len();
            hostile.set_giant(limit - around);
            let effect = house.run(&format!("house.{tool}"), json!({})).await;
            assert!(matches!(effect, Effect::Done(Some(text)) if text.len() == limit), "{tool}");
            hostile.set_giant(limit - around + 1);
            let Effect::Failed(Failed { failure, detail, .. }) =
                house.run(&format!("house.{tool}"), json!({})).await
            else {
                panic!("{tool} was done")
            };
            assert_eq!(failure, ExecutionFailure::OutputInvalid);
            let told = format!("the result is longer than {limit} bytes (output_bytes_max)");
            assert_eq!(detail, Some(told));
        }
    }
}

#[tokio::test]
async fn a_token_that_was_rotated_is_read_again_and_no_call_is_lost() {
    let keep = tempfile::tempdir().unwrap();
    let file = keep.path().join("token");
    std::fs::write(&file, "Bearer old\n").unwrap();
    let hostile = hostile::Hostile::default();
    hostile.set_token("Bearer old");
    let mut spec = at(&serve(hostile.router()).await);
    let headers = BTreeMap::from([("authorization".to_owned(), Secret::of_file(file.clone()))]);
    if let Transport::Http { headers: configured, .. } = &mut spec.transport {
        *configured = headers;
    }
    let house = House::of(vec![spec]).await;
    assert_eq!(house.run("house.echo", json!({})).await, text_result("hello"));
    hostile.set_token("Bearer new");
    let refused = "it answered 401 Unauthorized and no JSON";
    let refused = failed(ExecutionFailure::Unavailable, refused, false);
    assert_eq!(house.run("house.echo", json!({})).await, refused);
    std::fs::write(&file, "Bearer new\n").unwrap();
    assert_eq!(house.run("house.echo", json!({})).await, text_result("hello"));
}
