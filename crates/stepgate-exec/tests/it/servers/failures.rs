//! Every way in which a tool fails: a stable answer each time, and the others go on.

use std::time::{Duration, Instant};

use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ports::{Effect, Failed, Said};
use stepgate_exec::servers::{ServerLimits, ServerSpec};

use super::house::{House, failed, own_error, text_result, with_timeout};

const SHORT: Duration = Duration::from_millis(300);

/// The server still answers.
async fn goes_on(house: &House) {
    assert_eq!(house.run("house.echo", json!({ "text": "on" })).await, text_result("on"));
}

#[tokio::test]
async fn a_tool_that_says_it_failed_leaves_no_doubt() {
    let house = House::ordinary(|spec| spec).await;
    assert_eq!(house.run("house.fail", json!({})).await, own_error("there is no such room"));
    // An error of the protocol is no result of the tool's: its words are kept as the server's.
    let Effect::Failed(said) =
        own_error("The tool server answered with an error: the house is on fire")
    else {
        panic!("an error of its own is a failure");
    };
    let detail = Some("the house is on fire".to_owned());
    let said = Effect::Failed(Failed { detail, ..said });
    assert_eq!(house.run("house.error", json!({})).await, said);
    goes_on(&house).await;
}

#[tokio::test]
async fn a_tool_that_hangs_is_cut_off_while_it_runs() {
    let house = House::ordinary(|spec| with_timeout(spec, "hang", SHORT)).await;
    let begun = Instant::now();
    let timeout = failed(ExecutionFailure::Timeout, "no answer within 300 ms", true);
    assert_eq!(house.run("house.hang", json!({})).await, timeout);
    assert!(begun.elapsed() < Duration::from_secs(5));
    goes_on(&house).await;
}

#[tokio::test]
async fn garbage_is_no_answer_and_does_no_harm() {
    let house = House::ordinary(|spec| with_timeout(spec, "garbage", SHORT)).await;
    let timeout = failed(ExecutionFailure::Timeout, "no answer within 300 ms", true);
    assert_eq!(house.run("house.garbage", json!({})).await, timeout);
    assert_eq!(house.run("house.noisy", json!({})).await, text_result("done"));
    goes_on(&house).await;
}

#[tokio::test]
async fn an_answer_with_a_key_twice_is_invalid() {
    let house = House::ordinary(|spec| spec).await;
    let Effect::Failed(Failed { failure, detail, said, in_doubt }) =
        house.run("house.duplicate", json!({})).await
    else {
        panic!("it failed")
    };
    assert_eq!(failure, ExecutionFailure::OutputInvalid);
    assert_eq!(detail.as_deref(), Some("DUPLICATE_KEY"));
    assert!(matches!(said, Said::Unusable(_)) && in_doubt);
    goes_on(&house).await;
}

#[tokio::test]
async fn an_answer_that_breaks_its_schema_is_invalid_and_keeps_its_digest() {
    let house = House::ordinary(|spec| spec).await;
    let text = r#"{"content":[],"structuredContent":{"volume":"loud"}}"#;
    let why = "the structuredContent breaks its schema: volume: value is not of type \"integer\"";
    let invalid = |text: &str, why: &str| {
        Effect::Failed(Failed {
            failure: ExecutionFailure::OutputInvalid,
            detail: Some(why.to_owned()),
            said: Said::Unusable(Digest::of_bytes(text.as_bytes())),
            in_doubt: true,
        })
    };
    assert_eq!(house.run("house.structured", json!({})).await, invalid(text, why));
    let nothing = invalid(r#"{"say":"nothing"}"#, "the result has no list of content");
    assert_eq!(house.run("house.no_content", json!({})).await, nothing);
    goes_on(&house).await;
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_invalid_however_long_it_is() {
    let house = House::ordinary(|mut spec| {
        spec.limits.output_bytes_max = 10_000;
        spec.limits.message_bytes_max = 100_000;
        spec
    })
    .await;
    let giant = async |bytes: usize, id_last: bool| {
        let args = json!({ "bytes": bytes, "id_last": id_last });
        match house.run("house.giant", args).await {
            Effect::Done(_) => "done".to_owned(),
            Effect::Failed(Failed { failure: ExecutionFailure::OutputInvalid, detail, .. }) => {
                detail.unwrap()
            }
            other @ (Effect::Failed(_) | Effect::Refused(_) | Effect::Unknown(_)) => {
                panic!("{other:?}")
            }
        }
    };
    for id_last in [false, true] {
        assert_eq!(giant(9000, id_last).await, "done");
        assert_eq!(
            giant(10_000, id_last).await,
            "the result is longer than 10000 bytes (output_bytes_max)"
        );
        let why = "a message was longer than 100000 bytes";
        assert_eq!(giant(100_000, id_last).await, why);
        assert_eq!(giant(20_000_000, id_last).await, why);
    }
    goes_on(&house).await;
}

#[tokio::test]
async fn a_result_may_be_as_long_as_the_limit_and_not_longer() {
    let around = r#"{"content":[{"type":"text","text":""}]}"#.len();
    for limit in [1024, ServerLimits::OUTPUT_BYTES, 64 << 20] {
        let house =
            House::ordinary(|spec| ServerSpec { limits: ServerLimits::for_output(limit), ..spec })
                .await;
        let giant = async |length: usize| {
            house.run("house.giant", json!({ "bytes": length - around })).await
        };
        for length in [limit - 1, limit] {
            let effect = giant(length).await;
            assert!(matches!(effect, Effect::Done(Some(text)) if text.len() == length), "{length}");
        }
        let Effect::Failed(Failed { failure, detail, .. }) = giant(limit + 1).await else {
            panic!("{limit} is no limit")
        };
        assert_eq!(failure, ExecutionFailure::OutputInvalid);
        let told = format!("the result is longer than {limit} bytes (output_bytes_max)");
        assert_eq!(detail, Some(told));
    }
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_doubt_at_once() {
    let house = House::ordinary(|spec| spec).await;
    let begun = Instant::now();
    let lost = failed(ExecutionFailure::ToolFailed, "it closed its output", true);
    assert_eq!(house.run("house.crash", json!({})).await, lost);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_server_that_floods_is_given_up() {
    let house = House::ordinary(|spec| spec).await;
    let why = "it sent more than 1000 messages a second that nobody asked for";
    let lost = failed(ExecutionFailure::ToolFailed, why, true);
    assert_eq!(house.run("house.flood", json!({})).await, lost);
}

#[tokio::test]
async fn a_server_that_writes_without_end_is_stopped_told_and_left_alone_for_a_while() {
    use stepgate_exec::servers::{News, ServerState};
    let rows = [
        ("endless_line", "bytes without an end of line"),
        ("empty_lines", "it sent more than 1000 messages a second that nobody asked for"),
        ("long_garbage", "it sent more than 10551296 bytes a second that nobody asked for"),
        ("endless_stderr", "it wrote more than 8388608 bytes a second to its standard error"),
    ];
    for (tool, why) in rows {
        let house = House::ordinary(|mut spec| {
            spec.limits.breaker_pause = Duration::from_secs(600);
            spec
        })
        .await;
        let Effect::Failed(lost) = house.run(&format!("house.{tool}"), json!({})).await else {
            panic!("{tool} was done")
        };
        assert!(lost.in_doubt, "{tool}: {lost:?}");
        super::house::until("the restart", async || {
            let state = house.servers.listing()[0].server_state.clone();
            (state == ServerState::Resting).then_some(())
        })
        .await;
        let resting = failed(ExecutionFailure::Unavailable, "BREAKER_OPEN", false);
        assert_eq!(house.run("house.echo", json!({})).await, resting, "{tool}");
        let news = house.news.lock().unwrap().clone();
        let [News::Off(off), News::Up(_)] = &*news else { panic!("{tool}: {news:?}") };
        assert!(off.to_string().contains(why), "{tool}: {off}");
    }
}

#[tokio::test]
async fn a_server_that_fails_again_and_again_is_left_alone_and_then_tried() {
    use super::house::until;
    use stepgate_exec::servers::ServerState;
    let house = House::ordinary(|mut spec| {
        spec.limits.breaker_failures_max = 2;
        // A busy machine needs a while for the two looks that must fall into it.
        spec.limits.breaker_pause = Duration::from_secs(5);
        with_timeout(spec, "hang", Duration::from_millis(50))
    })
    .await;
    for _ in 0..2 {
        let timeout = failed(ExecutionFailure::Timeout, "no answer within 50 ms", true);
        assert_eq!(house.run("house.hang", json!({})).await, timeout);
    }
    let resting = failed(ExecutionFailure::Unavailable, "BREAKER_OPEN", false);
    assert_eq!(house.run("house.echo", json!({})).await, resting);
    assert_eq!(house.servers.listing()[0].server_state, ServerState::Resting);
    // The one that may try, and then everybody.
    let tried = until("the trial", async || {
        let effect = house.run("house.echo", json!({ "text": "well" })).await;
        (effect != resting).then_some(effect)
    });
    assert_eq!(tried.await, text_result("well"));
    goes_on(&house).await;
    assert_eq!(house.servers.listing()[0].server_state, ServerState::Up);
}
