//! What comes after its time.

use std::time::Duration;

use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::late::LateResult;

use super::house::{House, failed, sending, text_result, until, with_timeout};

const SHORT: Duration = Duration::from_millis(100);
/// When an answer comes that is too late, also where a busy machine notices the end of [`SHORT`] late.
const LATE_MS: u64 = 5_000;

#[tokio::test]
async fn a_result_after_its_time_is_told_and_changes_nothing() {
    let house = House::ordinary(|spec| with_timeout(spec, "late", SHORT)).await;
    let sending = sending();
    let effect = house.send("house.late", json!({ "ms": LATE_MS }), &sending).await;
    assert_eq!(effect, failed(ExecutionFailure::Timeout, "no answer within 100 ms", true));
    let told = until("the late result", async || house.late.lock().unwrap().pop()).await;
    let text = r#"{"content":[{"type":"text","text":"late"}]}"#;
    let expected = LateResult {
        run_id: sending.run_id,
        succeeded: true,
        result_digest: Digest::of_bytes(text.as_bytes()),
    };
    assert_eq!(told, expected);
}

#[tokio::test]
async fn the_server_is_told_that_nobody_waits() {
    let house = House::ordinary(|spec| with_timeout(spec, "hang", SHORT)).await;
    house.run("house.hang", json!({})).await;
    let told = until("the news", async || house.state().get("cancelled").cloned()).await;
    assert_eq!(told, json!(["the time of the call is over"]));
}

#[tokio::test]
async fn only_so_many_late_results_are_waited_for() {
    let house = House::ordinary(|mut spec| {
        spec.limits.late_max = 1;
        with_timeout(spec, "late", SHORT)
    })
    .await;
    let late = || house.run("house.late", json!({ "ms": LATE_MS }));
    tokio::join!(late(), late(), late());
    until("the late result", async || house.late.lock().unwrap().first().cloned()).await;
    let all = json!(["late", "late", "late"]);
    until("all answers", async || (house.state()["answered"] == all).then_some(())).await;
    // What is answered after them is heard after them.
    assert_eq!(house.run("house.echo", json!({})).await, text_result(""));
    assert_eq!(house.late.lock().unwrap().len(), 1);
}
