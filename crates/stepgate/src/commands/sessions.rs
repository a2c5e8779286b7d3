//! `stepgate sessions`: the sessions, newest first.

use serde_json::Value;

use super::{past, print_list, times};
use crate::cli::SessionsArgs;
use crate::client::{Client, Role, parameter};
use crate::data_dir::DataDir;
use crate::show::{Cell, Table};

pub(super) async fn sessions(data: &DataDir, args: &SessionsArgs) -> anyhow::Result<u8> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let filter = parameter("principal", args.principal.as_ref());
    let sessions = client.list("sessions", &filter, None, args.limit).await?;
    let header = ["SESSION", "OPENED", "PRINCIPAL", "KIND", "STEPS"];
    let times = times(&data.global);
    let row = |session: &Value| {
        let steps = session.get("last_step_index").and_then(Value::as_u64).unwrap_or_default();
        let opened = Cell::plain(past(times, session, "ts"));
        let [id, principal, kind] =
            ["session_id", "principal_id", "kind"].map(|name| Cell::member(session, name));
        [id, opened, principal, kind, Cell::plain(steps)]
    };
    let table = || Table::of(header, sessions.iter().map(row));
    print_list(&sessions, &data.global, "no sessions", table)?;
    Ok(0)
}
