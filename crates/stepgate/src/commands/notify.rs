//! `stepgate notify`: tries the receivers of notifications, and shows how far each has come.

use anyhow::bail;
use serde_json::json;
use stepgate_core::ports::{Cursor, EventQuery, Store};
use stepgate_gateway::notify::{self, NotifySettings, ReceiverSettings};
use tokio::task::JoinSet;

use crate::cli::NotifyCommand;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::settings;
use crate::show::{self, Cell, Table};
use crate::store;

use super::FAULT;

/// Most waiting messages that are counted; beyond it the list says "or more".
const WAITING_MAX: usize = 1000;

pub(super) async fn notify(data: &DataDir, command: NotifyCommand) -> anyhow::Result<u8> {
    let config = data.load_config()?;
    let settings = read(data, &config)?;
    if settings.receivers.is_empty() {
        bail!("no receiver is configured: add a [[notify]] to `{}`", data.config_shown());
    }
    match command {
        NotifyCommand::Test { name } => test(settings, name.as_deref(), data.global.json).await,
        NotifyCommand::List => list(data, &config, &settings).await,
    }
}

/// The receivers, as a gateway with this configuration would have them.
fn read(data: &DataDir, config: &Config) -> anyhow::Result<NotifySettings> {
    settings::receivers(data, config, Some(config.serve.configured_url()?.to_string()))
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

async fn list(data: &DataDir, config: &Config, settings: &NotifySettings) -> anyhow::Result<u8> {
    let json = data.global.json;
    let store = store::read(data).await?;
    let cursors = store.cursors().await?;
    let mut table = Table::new(["NAME", "KIND", "POSITION", "WAITING", "LAST ERROR"]);
    for (receiver, configured) in settings.receivers.iter().zip(&config.notify) {
        let name = notify::cursor_of(&receiver.name);
        let cursor = cursors.iter().find(|cursor| cursor.name == name);
        let waiting = waiting(&*store, receiver, cursor).await?;
        let error = cursor.and_then(|cursor| cursor.error.as_deref()).map(show::printable);
        let ((name, kind), position) = (configured.shown(), cursor.map(|cursor| cursor.reached));
        if json {
            show::json(&json!({
                "name": name, "kind": kind, "position": position, "waiting": waiting,
                "last_error": error,
            }))?;
            continue;
        }
        let position = position.map_or_else(|| "never started".to_owned(), |it| it.to_string());
        table.add([
            Cell::plain(name),
            Cell::plain(kind),
            Cell::plain(position),
            Cell::plain(if waiting < WAITING_MAX {
                waiting.to_string()
            } else {
                format!("{waiting} or more")
            }),
            error.map_or_else(|| Cell::plain("-"), Cell::alarming),
        ]);
    }
    if !json {
        show::say(table)?;
    }
    Ok(0)
}

/// How many events the receiver has not been told of yet.
async fn waiting(
    store: &dyn Store,
    receiver: &ReceiverSettings,
    cursor: Option<&Cursor>,
) -> anyhow::Result<usize> {
    let (Some(cursor), false) = (cursor, receiver.events.is_empty()) else { return Ok(0) };
    let query = EventQuery {
        after: cursor.reached,
        event_types: receiver.events.clone(),
        limit: WAITING_MAX,
        ..EventQuery::default()
    };
    Ok(store.events(query).await?.len())
}
