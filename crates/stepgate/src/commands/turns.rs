//! `stepgate turns`: the turns of the agent, newest first.

use serde_json::Value;

use super::{find, past, print_list, times};
use crate::cli::TurnsArgs;
use crate::client::{Client, Role, parameter};
use crate::data_dir::DataDir;
use crate::show::{Cell, Table};

pub(super) async fn turns(data: &DataDir, args: &TurnsArgs) -> anyhow::Result<()> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let session = find::session(&mut client, args.session.as_ref()).await?;
    let session = parameter("session", session.as_ref());
    let filter = session + &parameter("principal", args.principal.as_ref());
    let turns = client.list("agent/turns", &filter, None, args.limit).await?;
    let times = times(&data.global);
    let row = |turn: &Value| {
        let [id, session, what] =
            ["turnId", "sessionId", "instructions"].map(|name| Cell::member(turn, name));
        [id, Cell::plain(past(times, turn, "ts")), session, what]
    };
    let table = || Table::of(["TURN", "OPENED", "SESSION", "WHAT"], turns.iter().map(row));
    print_list(&turns, &data.global, "no turns", table)
}
