//! Calls that go well, and what travels with them.

use std::time::Duration;

use serde_json::json;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ports::{Dispatch, Sending};

use super::house::{House, done, failed, sending, spec, text_result};

#[tokio::test]
async fn a_call_gives_the_result_of_the_tool() {
    let house = House::ordinary(|spec| spec).await;
    assert_eq!(house.run("house.echo", json!({ "text": "hello" })).await, text_result("hello"));
    let kept = house.run("house.structured", json!({ "keep": true })).await;
    assert_eq!(done(kept), json!({ "content": [], "structuredContent": { "volume": 20 } }));
}

#[tokio::test]
async fn integers_of_64_bits_arrive_as_they_were_sent() {
    use stepgate_core::ports::Effect;
    let house = House::ordinary(|spec| spec).await;
    let text = r#"{"content":[],"structuredContent":{"id":9223372036854775807,"least":-9223372036854775808,"most":18446744073709551615}}"#;
    assert_eq!(house.run("house.integers", json!({})).await, Effect::Done(Some(text.to_owned())));
}

#[tokio::test]
async fn key_call_and_dispatch_travel_beside_the_arguments() {
    let house = House::ordinary(|spec| spec).await;
    for (dispatch, word) in [(Dispatch::First, "first"), (Dispatch::Again, "again")] {
        let sending = Sending { dispatch, ..sending() };
        let result = done(house.send("house.meta", json!({}), &sending).await);
        let meta = &result["structuredContent"];
        assert_eq!(meta["stepgate/dispatch"], word);
        assert_eq!(meta["stepgate/idempotency-key"], sending.key.to_string());
        assert_eq!(meta["stepgate/tool-call-id"], sending.tool_call_id.to_string());
    }
}

#[tokio::test]
async fn a_tool_that_honours_the_key_acts_once_and_another_each_time() {
    let house = House::ordinary(|spec| spec).await;
    let sending = sending();
    for _ in 0..2 {
        let result = done(house.send("house.act", json!({}), &sending).await);
        assert_eq!(result["structuredContent"], json!({ "count": 1 }));
    }
    assert_eq!(house.state()["effects"], 1);
    for count in 2..=3 {
        let result = done(house.send("house.act_again", json!({}), &sending).await);
        assert_eq!(result["structuredContent"], json!({ "count": count }));
    }
    let asked = json!({ "idempotency_key": sending.key.to_string() });
    let status = done(house.run("house.status", asked).await);
    let expected = json!({ "status": "done", "result": { "count": 1 } });
    assert_eq!(status["structuredContent"], expected);
}

#[tokio::test]
async fn many_calls_run_at_the_same_time_and_each_gets_its_own_answer() {
    let house = House::ordinary(|mut spec| {
        spec.limits.concurrency = 64;
        spec
    })
    .await;
    let texts: Vec<_> = (0..64).map(|number| number.to_string()).collect();
    let calls = texts.iter().map(|text| house.text("house.echo", json!({ "text": text })));
    assert_eq!(futures_util::future::join_all(calls).await, texts);
}

#[tokio::test]
async fn a_call_waits_for_its_turn_and_not_longer_than_the_limit() {
    let house = House::ordinary(|mut spec| {
        spec.limits.concurrency = 1;
        spec.limits.permit_wait = Duration::from_millis(100);
        spec
    })
    .await;
    let turn = house.turn("house.echo").await.unwrap();
    let why = "all 1 calls were busy for 100 ms";
    let busy = failed(ExecutionFailure::Unavailable, why, false);
    assert_eq!(house.run("house.echo", json!({})).await, busy);
    drop(turn);
    assert_eq!(house.run("house.echo", json!({})).await, text_result(""));
}

#[tokio::test]
async fn a_stuck_server_keeps_no_other_waiting() {
    let mut stuck = spec("stuck", "normal");
    stuck.limits.concurrency = 1;
    let house = House::of(vec![stuck, spec("house", "normal")]).await;
    let hanging = house.run("stuck.hang", json!({}));
    tokio::pin!(hanging);
    tokio::select! {
        biased;
        _ = &mut hanging => panic!("it hangs"),
        text = house.run("house.echo", json!({ "text": "hello" })) => {
            assert_eq!(text, text_result("hello"));
        }
    }
}

#[tokio::test]
async fn a_server_that_asks_us_something_is_told_no_and_goes_on() {
    let house = House::ordinary(|spec| spec).await;
    assert_eq!(house.run("house.ask_back", json!({})).await, text_result("asked"));
    assert_eq!(house.run("house.echo", json!({ "text": "on" })).await, text_result("on"));
}
