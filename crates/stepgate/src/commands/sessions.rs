//! `stepgate sessions`: the sessions, newest first.

use serde_json::Value;

use super::{past, times};
use crate::cli::{Global, SessionsArgs};
use crate::client::{As, Client, parameter};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

pub(super) async fn sessions(
    global: &Global,
    data: &DataDir,
    args: &SessionsArgs,
) -> anyhow::Result<u8> {
    let mut client = Client::of(global, data, As::Auditor).await?;
    let filter = parameter("principal", args.principal.as_ref());
    let sessions = client.list("sessions", &filter, None, args.limit).await?;
    if global.json {
        sessions.iter().try_for_each(show::json)?;
        return Ok(0);
    }
    if sessions.is_empty() {
        show::say("no sessions")?;
        return Ok(0);
    }
    let mut table = Table::new(["SESSION", "OPENED", "PRINCIPAL", "KIND", "STEPS"]);
    let times = times(global);
    for session in &sessions {
        let cell =
            |name: &str| Cell::plain(session.get(name).and_then(Value::as_str).unwrap_or("-"));
        let steps = session.get("last_step_index").and_then(Value::as_u64).unwrap_or_default();
        let opened = Cell::plain(past(times, session, "ts"));
        let [id, principal, kind] = ["session_id", "principal_id", "kind"].map(cell);
        table.add([id, opened, principal, kind, Cell::plain(steps)]);
    }
    show::say(table)?;
    Ok(0)
}
