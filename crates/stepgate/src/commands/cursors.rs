//! How far those that follow the events have come: receivers of notifications and audit streams.

use serde_json::json;
use stepgate_core::event::EventType;
use stepgate_core::ports::{EventQuery, Store};

use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};
use crate::store;

/// Most waiting events that are counted; beyond it the list says "or more".
const WAITING_MAX: usize = 1000;

pub(super) struct Follower<'a> {
    pub(super) name: &'a str,
    pub(super) kind: &'static str,
    pub(super) cursor: String,
    /// The events that it is sent, all where it is empty; none where there are none.
    pub(super) events: Option<Vec<EventType>>,
}

pub(super) async fn list(data: &DataDir, followers: Vec<Follower<'_>>) -> anyhow::Result<()> {
    let json = data.global.json;
    let store = store::read(data).await?;
    let cursors = store.cursors().await?;
    let mut table = Table::new(["NAME", "KIND", "POSITION", "WAITING", "LAST ERROR"]);
    for Follower { name, kind, cursor, events } in followers {
        let cursor = cursors.iter().find(|it| it.name == cursor);
        let position = cursor.map(|cursor| cursor.reached);
        let waiting = waiting(&*store, events, position).await?;
        let error = cursor.and_then(|cursor| cursor.error.as_deref()).map(show::printable);
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
    if json { Ok(()) } else { show::say(table) }
}

async fn waiting(
    store: &dyn Store,
    events: Option<Vec<EventType>>,
    position: Option<u64>,
) -> anyhow::Result<usize> {
    let (Some(after), Some(event_types)) = (position, events) else { return Ok(0) };
    let query = EventQuery { after, event_types, limit: WAITING_MAX, ..EventQuery::default() };
    Ok(store.events(query).await?.len())
}
