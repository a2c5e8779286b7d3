//! Steps over HTTP: `POST /v1/steps`.

use anyhow::ensure;
use axum::http::Method;
use indicatif::ProgressBar;
use serde_json::Value;
use stepgate_core::action::Action;
use stepgate_http::SESSION_HEADER;

use super::Run;
use super::clients::{self, Client, Real, Turns};
use super::served::Served;
use crate::client;
use crate::data_dir::DataDir;

pub(super) async fn steps(data: DataDir, run: Run, progress: &ProgressBar) -> anyhow::Result<Real> {
    let served = Served::open(&data).await?;
    let sessions = clients::sessions(&served.service.gate, run.sessions).await?;
    let open = async |number| {
        let turns = Turns::of(&sessions, number, run);
        Ok(Caller { gateway: served.client().await?, turns })
    };
    let real = clients::measure(run, progress, open).await?;
    served.close().await?;
    Ok(real)
}

struct Caller {
    gateway: client::Client,
    turns: Turns,
}

impl Client for Caller {
    fn request(action: Action, args: Value) -> Vec<u8> {
        clients::proposal(action, args)
    }

    async fn send(&mut self, request: Vec<u8>) -> anyhow::Result<()> {
        let mut headers = vec![("content-type", "application/json".to_owned())];
        // A request without the header joins the default session.
        if !self.turns.is_default() {
            headers.push((SESSION_HEADER, self.turns.next()?.session_id.to_string()));
        }
        let reply = self.gateway.send(Method::POST, "/v1/steps", &headers, request).await?;
        let answer = reply.json()?;
        ensure!(answer.get("outcome").and_then(Value::as_str) == Some("SUCCESS"), "{answer}");
        Ok(())
    }
}
