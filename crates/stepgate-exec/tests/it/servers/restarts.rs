//! A server that dies is started again.

use std::time::Duration;

use serde_json::json;
use stepgate_core::ports::Effect;
use stepgate_exec::servers::ServerState;

use super::house::{House, text_result, until};

#[tokio::test]
async fn a_server_that_died_is_started_again_and_meanwhile_it_is_down() {
    let house = House::ordinary(|mut spec| {
        spec.limits.restart_pause_min = Duration::from_millis(300);
        spec
    })
    .await;
    house.run("house.crash", json!({})).await;
    let state = || house.servers.listing()[0].server_state.clone();
    let down = ServerState::Down("it closed its output".to_owned());
    until("the news", async || (state() == down).then_some(())).await;
    let Effect::Failed(failed) = house.run("house.echo", json!({})).await else {
        panic!("it is down")
    };
    assert_eq!(failed.detail.as_deref(), Some("the server is down: it closed its output"));
    assert!(!failed.in_doubt);
    until("the restart", async || (state() == ServerState::Up).then_some(())).await;
    assert_eq!(house.run("house.echo", json!({ "text": "back" })).await, text_result("back"));
}

#[tokio::test]
async fn what_was_accepted_stays_accepted_over_a_restart() {
    let house = House::ordinary(|spec| spec).await;
    house.run("house.crash", json!({})).await;
    until("the restart", async || {
        let effect = house.run("house.echo", json!({ "text": "back" })).await;
        (effect == text_result("back")).then_some(())
    })
    .await;
    assert_eq!(house.servers.unpinned(), []);
}
