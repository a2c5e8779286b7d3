//! `stepgate recover`: finishes every interrupted run, and lists those that need a person.

use axum::http::Method;
use stepgate_core::attention;
use stepgate_gateway::attention::RecoveryObject;

use super::{FAULT, print_one};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::{show, start};

pub(super) async fn recover(data: &DataDir) -> anyhow::Result<u8> {
    let done = match Client::elsewhere(data, Role::Auditor).await? {
        // The gateway holds the runs, so the gateway must recover them.
        Some(mut client) => {
            let reply = client.ask(Method::POST, "/v1/recover", None).await?.json()?;
            serde_json::from_value(reply)?
        }
        None => {
            let held = start::hold_recovered(data).await?;
            RecoveryObject::of(&held.recovered, &attention::of(&held.gate).await?)
        }
    };
    print_one(&done, &data.global, || words(&done))?;
    Ok(if done.attention.is_empty() { 0 } else { FAULT })
}

fn words(done: &RecoveryObject) -> String {
    let counts = format!(
        "{} brought to their end, {} waiting for a person, {} in doubt, {} quarantined, {} stuck",
        done.finished.len(),
        done.waiting.len(),
        done.in_doubt.len(),
        done.quarantined.len(),
        done.stuck.len()
    );
    let needs = done.attention.iter().map(show::attention::line);
    [counts].into_iter().chain(needs).collect::<Vec<_>>().join("\n")
}
