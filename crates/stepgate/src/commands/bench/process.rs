//! Steps by a call in this process, without a network.

use std::fs;

use anyhow::ensure;
use indicatif::ProgressBar;
use serde_json::Value;
use stepgate_core::action::Action;
use stepgate_core::gate::Gate;
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Submission};

use super::Run;
use super::clients::{self, CONTENT, Client, Real, Turns};
use crate::data_dir::DataDir;
use crate::start;

pub(super) async fn steps(data: DataDir, run: Run, progress: &ProgressBar) -> anyhow::Result<Real> {
    let held = start::hold_recovered(&data).await?;
    fs::write(data.sandbox().join("read.txt"), CONTENT)?;
    let sessions = clients::sessions(&held.gate, run.sessions).await?;
    let open = async |number| {
        let turns = Turns::of(&sessions, number, run);
        Ok(Caller { gate: held.gate.clone(), turns })
    };
    let real = clients::measure(run, progress, open).await?;
    held.gate.store.leave().await;
    Ok(real)
}

struct Caller {
    gate: Gate,
    turns: Turns,
}

impl Client for Caller {
    fn request(action: Action, args: Value) -> Vec<u8> {
        clients::proposal(action, args)
    }

    async fn send(&mut self, request: Vec<u8>) -> anyhow::Result<()> {
        let session = self.turns.next()?;
        let submission = Submission {
            session_id: session.session_id,
            principal_id: session.principal_id.clone(),
            payload: Payload::whole(request),
        };
        let answer = step::run(&self.gate, submission).await?;
        ensure!(answer.word().as_str() == "SUCCESS", "{}", answer.body());
        Ok(())
    }
}
