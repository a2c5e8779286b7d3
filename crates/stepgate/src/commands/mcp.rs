//! `stepgate mcp`: MCP over standard input and output.

use std::time::Duration;

use stepgate_gateway::service::wait_until_set;
use stepgate_http::AccessLog;
use stepgate_mcp::bridge;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::error;

use super::gateway::Gateway;
use super::serve::Signals;
use crate::client::{self, Line};
use crate::data_dir::DataDir;

/// How often to check whether this process must take over the directory.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn mcp(data: &DataDir) -> anyhow::Result<()> {
    let (stop, stopped) = watch::channel(false);
    let (line, mut keeper) = match client::remote(&data.global)? {
        Some(target) => (Line::of_agent(target), None),
        None => {
            let keeper = keep(data, stopped).await?;
            (Line::of_agent(client::socket(data)), Some(keeper))
        }
    };
    let mut signals = Signals::listen()?;
    let finish = async {
        signals.next().await;
        stop.send_replace(true);
        if let Some(keeper) = &mut keeper {
            // As in every gateway, running steps finish first and their answers are written. An error was
            // already logged by the task.
            let _ = keeper.await;
        }
    };
    let carried = bridge::carry(line, tokio::io::stdin(), tokio::io::stdout(), finish).await;
    let is_stopped = stop.send_replace(true);
    if let Some(keeper) = keeper.filter(|keeper| !keeper.is_finished()) {
        keeper.await?;
    }
    if is_stopped {
        // A thread may still block on standard input.
        std::process::exit(0);
    }
    carried
}

/// Makes sure that a process serves the directory: the one that holds it already, or this one. Several clients may
/// start this command on one directory; when the serving process ends, another takes over.
pub(super) async fn keep(
    data: &DataDir,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<JoinHandle<()>> {
    let mut gateway = match client::is_held(data).await {
        true => None,
        false => Some(Gateway::open(data, None, AccessLog::Silent).await?),
    };
    let data = data.clone();
    Ok(tokio::spawn(async move {
        let mut stopping = stop.clone();
        loop {
            if let Some(gateway) = gateway.take() {
                let mut stop = stop.clone();
                if let Err(error) =
                    gateway.run(async move { wait_until_set(&mut stop).await }).await
                {
                    error!("{error:#}");
                }
            }
            tokio::select! {
                () = wait_until_set(&mut stopping) => return,
                () = tokio::time::sleep(LOOK_PAUSE) => {}
            }
            if data.holder().is_none() {
                // Another process may win the race; the next check finds out.
                gateway = Gateway::open(&data, None, AccessLog::Silent).await.ok();
            }
        }
    }))
}
