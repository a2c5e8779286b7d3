//! A server that dies is started again.

use std::time::Duration;

use serde_json::json;
use stepgate_core::ports::Effect;
use stepgate_exec::servers::{Secret, ServerState, Transport};

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
    assert_eq!(house.servers.off(), []);
}

#[tokio::test]
async fn a_secret_is_read_whenever_the_process_is_started() {
    let keep = tempfile::tempdir().unwrap();
    let file = keep.path().join("secret");
    std::fs::write(&file, "old\n").unwrap();
    let house = House::ordinary(|mut spec| {
        if let Transport::Stdio { env, .. } = &mut spec.transport {
            env.insert("TOKEN".to_owned(), Secret::of_file(file.clone()));
        }
        spec
    })
    .await;
    let environment = async || house.text("house.environment", json!({})).await;
    assert!(environment().await.lines().any(|line| line == "TOKEN=old"));
    std::fs::write(&file, "new\n").unwrap();
    house.run("house.crash", json!({})).await;
    until("the restart", async || {
        let effect = house.run("house.echo", json!({ "text": "back" })).await;
        (effect == text_result("back")).then_some(())
    })
    .await;
    assert!(environment().await.lines().any(|line| line == "TOKEN=new"));
}

#[tokio::test]
async fn a_server_whose_secret_is_missing_is_down_until_it_is_there() {
    let keep = tempfile::tempdir().unwrap();
    let file = keep.path().join("secret");
    let house = House::ordinary(|mut spec| {
        if let Transport::Stdio { env, .. } = &mut spec.transport {
            env.insert("TOKEN".to_owned(), Secret::of_file(file.clone()));
        }
        spec.limits.restart_pause_max = Duration::from_millis(100);
        spec
    })
    .await;
    let off: Vec<String> = house.servers.off().iter().map(ToString::to_string).collect();
    assert!(off.len() == 1 && off[0].contains("the secret `TOKEN`: "), "{off:?}");
    std::fs::write(&file, "new\n").unwrap();
    let up = async || (house.servers.servers()[0].state == ServerState::Up).then_some(());
    until("the server", up).await;
}
