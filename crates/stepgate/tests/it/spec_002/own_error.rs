//! What a tool says about its own failure: kept with the run, and answered to nobody here.

use serde_json::{Value, json};
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::journal::Artifact;
use stepgate_core::journal::artifact::EffectStatus;
use stepgate_core::ports::{Failed, Said};
use stepgate_core::step::Answer;
use stepgate_core::tool::Delivery;

use super::bench::Behaviour;
use super::{AGENDA, House, VOLUME, artifacts};
use crate::gate::proposal;

const OWN_ERROR: &str = r#"{"content":[{"type":"text","text":"no such room"}]}"#;

/// A tool that says of itself that it failed.
fn own_error() -> Behaviour {
    let (said, detail) = (Said::Error(OWN_ERROR.to_owned()), Some("no such room".to_owned()));
    Behaviour::Fails(Failed { said, detail, ..ExecutionFailure::ToolFailed.into() })
}

/// Whether a run kept what its tool said, and answered nothing of it.
async fn has_its_own_error(house: &House, answer: &Answer, status: EffectStatus) {
    let dossier = house.dossier(answer).await;
    let ending = dossier.run.ending.clone().unwrap();
    assert_eq!(ending.output_json.as_deref(), Some(OWN_ERROR));
    let error = r#"{"error_code":"EXECUTION_ERROR","message":"Tool failed"}"#;
    assert_eq!(ending.error_json.as_deref(), Some(error));
    let Some(Artifact::ToolEffect(effect)) = artifacts(&dossier).pop() else {
        panic!("no effect");
    };
    assert_eq!(effect.outcome.status, status);
    let digest = Digest::of_bytes(OWN_ERROR.as_bytes());
    assert_eq!(effect.meta.result_digest, Some(digest));
    let response: Value = serde_json::from_str(&answer.body()).unwrap();
    assert_eq!(response["outcome"], "EXECUTION_ERROR");
    assert_eq!(response["result"], Value::Null);
    let record = dossier.record.unwrap().0.body().unwrap();
    assert_eq!(record.response_digest, Digest::of_bytes(answer.body().as_bytes()));
}

#[tokio::test]
async fn what_a_tool_says_about_its_failure_is_kept_and_not_answered() {
    let house = House::new();
    house.bench.behave(AGENDA, own_error());
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    has_its_own_error(&house, &answer, EffectStatus::Failure).await;
    let again = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    assert_eq!((again.body(), again.replayed), (answer.body(), true));
    house.verified().await;
}

#[tokio::test]
async fn what_a_tool_says_about_its_failure_is_kept_after_a_second_dispatch() {
    let house = House::with(Delivery::HonoursKey, Behaviour::StopsBefore);
    let stopped = house.stop_while_calling().await;
    house.bench.behave(VOLUME, own_error());
    assert_eq!(house.recover().await.finished, [stopped.run_id]);
    let answer = house.set_volume(1, json!({ "volume": 20 })).await;
    has_its_own_error(&house, &answer, EffectStatus::Error).await;
    house.verified().await;
}

#[tokio::test]
async fn what_an_executor_says_of_an_unusable_result_is_kept_as_its_digest_alone() {
    let house = House::new();
    let said = Said::Error(OWN_ERROR.to_owned());
    let failed = Failed { said, ..ExecutionFailure::OutputInvalid.into() };
    house.bench.behave(AGENDA, Behaviour::Fails(failed));
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    let dossier = house.dossier(&answer).await;
    assert_eq!(dossier.run.ending.clone().unwrap().output_json, None);
    let Some(Artifact::ToolEffect(effect)) = artifacts(&dossier).pop() else {
        panic!("no effect");
    };
    assert_eq!(effect.meta.result_digest, Some(Digest::of_bytes(OWN_ERROR.as_bytes())));
    house.verified().await;
}
