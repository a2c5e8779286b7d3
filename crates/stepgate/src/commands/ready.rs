//! `stepgate ready`: whether the gateway is ready, as an exit code. An image has no other program that could ask.

use anyhow::{Context, bail};
use axum::http::Method;

use super::print_one;
use crate::client::{Client, Role};
use crate::data_dir::DataDir;

pub(super) async fn ready(data: &DataDir) -> anyhow::Result<()> {
    let Some(mut client) = Client::elsewhere(data, Role::Auditor).await? else {
        bail!("no gateway serves `{}`", data.root().display());
    };
    let reply = client.ask(Method::GET, "/readyz", None).await?;
    let answer = reply.json().context("the gateway is not ready")?;
    print_one(&answer, &data.global, || "ready")
}
