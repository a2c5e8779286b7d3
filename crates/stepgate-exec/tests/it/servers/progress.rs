//! How far a call has come: told while it runs, and nothing of what cannot be so.

use std::time::Duration;

use serde_json::json;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ids::RunId;
use stepgate_exec::servers::CallProgress;

use super::house::{House, done, failed, sending, text_result, until, with_timeout};

fn said(run_id: RunId, progress: f64) -> CallProgress {
    CallProgress { run_id, progress, total: None, message: None }
}

/// What a server says of a call, with its token.
fn at(progress: usize) -> String {
    format!(r#"{{"progressToken":TOKEN,"progress":{progress}}}"#)
}

/// Everything that was told when everything that the server has said is read.
async fn told(house: &House) -> Vec<CallProgress> {
    assert_eq!(house.run("house.echo", json!({ "text": "on" })).await, text_result("on"));
    house.progress.lock().unwrap().clone()
}

#[tokio::test]
async fn how_far_a_call_has_come_is_told_while_it_runs() {
    let house = House::ordinary(|spec| spec).await;
    let sending = sending();
    let before = [
        at(1),
        r#"{"progressToken":TOKEN,"progress":2.5,"total":10,"message":"warming up"}"#.to_owned(),
        // A number that comes back as a text.
        r#"{"progressToken":"TOKEN","progress":3}"#.to_owned(),
    ];
    let args = json!({ "before": before, "ms": 20_000 });
    let call = house.send("house.progress", args, &sending);
    tokio::pin!(call);
    let heard = async || (house.progress.lock().unwrap().len() == 3).then_some(());
    tokio::select! {
        effect = &mut call => panic!("it runs: {effect:?}"),
        () = until("the progress", heard) => {}
    }
    let run_id = sending.run_id;
    let half = CallProgress {
        total: Some(10.0),
        message: Some("warming up".to_owned()),
        ..said(run_id, 2.5)
    };
    assert_eq!(*house.progress.lock().unwrap(), [said(run_id, 1.0), half, said(run_id, 3.0)]);
}

#[tokio::test]
async fn every_call_has_a_token_of_its_own() {
    let house = House::ordinary(|spec| spec).await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let meta = done(house.run("house.meta", json!({})).await);
        let token = meta["structuredContent"]["progressToken"].clone();
        assert!(token.is_number(), "{meta}");
        assert!(!tokens.contains(&token), "{token} is not fresh");
        tokens.push(token);
    }
}

#[tokio::test]
async fn what_is_said_of_two_calls_is_told_of_the_right_one() {
    let house = House::ordinary(|spec| spec).await;
    let (first, second) = (sending(), sending());
    let args = |progress| json!({ "before": [at(progress)] });
    tokio::join!(
        house.send("house.progress", args(1), &first),
        house.send("house.progress", args(2), &second),
    );
    let mut told = told(&house).await;
    told.sort_by(|a, b| a.progress.total_cmp(&b.progress));
    assert_eq!(told, [said(first.run_id, 1.0), said(second.run_id, 2.0)]);
}

#[tokio::test]
async fn what_cannot_be_so_is_dropped_and_does_no_harm() {
    let house = House::ordinary(|spec| spec).await;
    let sending = sending();
    let nonsense = [
        // Of another call, of none, of the list of tools.
        r#"{"progressToken":4711,"progress":5.5}"#,
        r#"{"progressToken":"nobody","progress":5.5}"#,
        r#"{"progressToken":null,"progress":5.5}"#,
        r#"{"progressToken":0,"progress":5.5}"#,
        r#"{"progress":5.5}"#,
        // Backwards, on the spot, no number, not finite, a key twice.
        r#"{"progressToken":TOKEN,"progress":4}"#,
        r#"{"progressToken":TOKEN,"progress":5}"#,
        r#"{"progressToken":TOKEN,"progress":"5.5"}"#,
        r#"{"progressToken":TOKEN}"#,
        r#"{"progressToken":TOKEN,"progress":1e999}"#,
        r#"{"progressToken":TOKEN,"progress":5.5,"progress":5.6}"#,
        r#"{"progressToken":TOKEN,"progress":5.5,"total":"ten"}"#,
        "[5.5]",
        "null",
    ];
    let before: Vec<_> =
        [at(5)].into_iter().chain(nonsense.map(str::to_owned)).chain([at(6)]).collect();
    let effect = house.send("house.progress", json!({ "before": before }), &sending).await;
    assert_eq!(effect, text_result("done"));
    assert_eq!(told(&house).await, [said(sending.run_id, 5.0), said(sending.run_id, 6.0)]);
}

#[tokio::test]
async fn what_is_said_after_the_answer_is_dropped() {
    let house = House::ordinary(|spec| spec).await;
    let args = json!({ "before": [at(1)], "after": [at(2), at(3)] });
    let sending = sending();
    assert_eq!(house.send("house.progress", args, &sending).await, text_result("done"));
    until("the end", async || house.state().get("answered").cloned()).await;
    assert_eq!(told(&house).await, [said(sending.run_id, 1.0)]);
}

#[tokio::test]
async fn progress_gives_a_call_no_more_time_and_none_is_told_when_it_is_over() {
    // Long enough for a busy machine to hear the first word, and the second comes long after.
    let short = Duration::from_secs(3);
    let house = House::ordinary(|spec| with_timeout(spec, "progress", short)).await;
    let args = json!({ "before": [at(1)], "ms": 7_000, "during": [at(2)] });
    let sending = sending();
    let timeout = failed(ExecutionFailure::Timeout, "no answer within 3000 ms", true);
    assert_eq!(house.send("house.progress", args, &sending).await, timeout);
    until("the late result", async || house.late.lock().unwrap().pop()).await;
    assert_eq!(told(&house).await, [said(sending.run_id, 1.0)]);
}

#[tokio::test]
async fn a_server_that_says_too_much_is_told_on_in_part() {
    const SAID: usize = 500;
    const PER_SECOND_MAX: usize = 10;
    let house = House::ordinary(|spec| spec).await;
    let before: Vec<_> = (0..SAID).map(at).collect();
    let sending = sending();
    let effect = house.send("house.progress", json!({ "before": before }), &sending).await;
    assert_eq!(effect, text_result("done"));
    let told = told(&house).await;
    let first: Vec<_> =
        (0..PER_SECOND_MAX).map(|number| said(sending.run_id, number as f64)).collect();
    assert_eq!(told[..PER_SECOND_MAX], first);
    // A slow machine may need more than one second for it.
    assert!(told.len() <= SAID / 5, "{} are told", told.len());
}

#[tokio::test]
async fn a_server_that_floods_with_progress_is_given_up() {
    let house = House::ordinary(|mut spec| {
        spec.limits.unasked_per_second_max = 50;
        spec
    })
    .await;
    let before: Vec<_> = (0..2_000).map(at).collect();
    let args = json!({ "before": before, "ms": 20_000 });
    let why = "it sent more than 50 messages a second that nobody asked for";
    let lost = failed(ExecutionFailure::ToolFailed, why, true);
    assert_eq!(house.run("house.progress", args).await, lost);
}
