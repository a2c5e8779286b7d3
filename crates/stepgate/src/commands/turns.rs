//! `stepgate turns`: the turns of the agent, newest first.

use serde_json::Value;

use super::{find, past, times};
use crate::cli::{Global, TurnsArgs};
use crate::client::{As, Client, parameter};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

pub(super) async fn turns(global: &Global, data: &DataDir, args: &TurnsArgs) -> anyhow::Result<u8> {
    let mut client = Client::of(global, data, As::Auditor).await?;
    let session = find::session(&mut client, args.session.as_ref()).await?;
    let session = parameter("session", session.as_ref());
    let filter = session + &parameter("principal", args.principal.as_ref());
    let turns = client.list("agent/turns", &filter, None, args.limit).await?;
    if global.json {
        turns.iter().try_for_each(show::json)?;
        return Ok(0);
    }
    if turns.is_empty() {
        show::say("no turns")?;
        return Ok(0);
    }
    let mut table = Table::new(["TURN", "OPENED", "SESSION", "WHAT"]);
    let times = times(global);
    for turn in &turns {
        let cell = |name: &str| Cell::plain(turn.get(name).and_then(Value::as_str).unwrap_or("-"));
        let [id, session, what] = ["turnId", "sessionId", "instructions"].map(cell);
        table.add([id, Cell::plain(past(times, turn, "ts")), session, what]);
    }
    show::say(table)?;
    Ok(0)
}
