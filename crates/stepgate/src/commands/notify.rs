//! `stepgate notify`: tries the receivers of notifications, and shows how far each has come.

use anyhow::bail;
use serde_json::json;
use stepgate_gateway::notify::{self, NotifySettings, ReceiverSettings};
use tokio::task::JoinSet;

use crate::cli::NotifyCommand;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::settings;
use crate::show;

use super::FAULT;
use super::cursors::{self, Follower};

pub(super) async fn notify(data: &DataDir, command: NotifyCommand) -> anyhow::Result<u8> {
    let config = data.load_config()?;
    // As a gateway with this configuration would have them.
    let url = config.serve.configured_url()?.to_string();
    let settings = settings::receivers(data, &config, Some(url))?;
    if settings.receivers.is_empty() {
        bail!("no receiver is configured: add a [[notify]] to `{}`", data.config_shown());
    }
    match command {
        NotifyCommand::Test { name } => test(settings, name.as_deref(), data.global.json).await,
        NotifyCommand::List => list(data, &config, settings).await.map(|()| 0),
    }
}

async fn test(settings: NotifySettings, name: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let NotifySettings { receivers, public_url } = settings;
    let names: Vec<String> = receivers.iter().map(|it| it.name.clone()).collect();
    let is_meant = |receiver: &ReceiverSettings| name.is_none_or(|name| name == receiver.name);
    let meant: Vec<_> = receivers.into_iter().filter(is_meant).collect();
    if meant.is_empty() {
        bail!("there is no such receiver: the configuration has {}", names.join(", "));
    }
    // All at once: one that does not answer takes its whole timeout.
    let mut tests = JoinSet::new();
    for receiver in meant {
        let public_url = public_url.clone();
        tests.spawn(async move {
            let result = notify::test(&receiver, public_url.as_deref()).await;
            (receiver.name, result)
        });
    }
    let mut results = tests.join_all().await;
    results.sort();
    for (name, result) in &results {
        let error = result.as_ref().err().map(|why| show::printable(why));
        match (json, error) {
            (true, error) => {
                show::json(&json!({ "name": name, "arrived": error.is_none(), "error": error }))?;
            }
            (false, None) => show::say(format!("{name}: arrived"))?,
            (false, Some(why)) => show::say(format!("{name}: did not arrive: {why}"))?,
        }
    }
    Ok(if results.iter().all(|(_, result)| result.is_ok()) { 0 } else { FAULT })
}

async fn list(data: &DataDir, config: &Config, settings: NotifySettings) -> anyhow::Result<()> {
    let receivers = settings.receivers.into_iter().zip(&config.notify);
    let receivers = receivers.map(|(receiver, configured)| {
        let ((name, kind), events) = (configured.shown(), receiver.events);
        let events = (!events.is_empty()).then_some(events);
        Follower { name, kind, cursor: notify::cursor_of(name), events }
    });
    cursors::list(data, receivers.collect()).await
}
