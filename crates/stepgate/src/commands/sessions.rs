//! `stepgate sessions`: the sessions, newest first.

use std::io::{self, Read};

use anyhow::Context;
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::ids::SessionId;
use stepgate_core::requests::REQUEST_BYTES_MAX;

use super::confirm::{self, Asked};
use super::{find, past, print_list, times};
use crate::cli::{Named, SessionsArgs, SessionsCommand};
use crate::client::{Client, Role, parameter};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

/// Longest part of a request that the question repeats.
const TEXT_CHARS_SHOWN: usize = 200;

pub(super) async fn sessions(data: &DataDir, args: SessionsArgs) -> anyhow::Result<()> {
    match &args.command {
        None => list(data, &args).await,
        Some(SessionsCommand::Request { session, text }) => tell(data, session, text).await,
    }
}

async fn tell(data: &DataDir, session: &Named<SessionId>, text: &str) -> anyhow::Result<()> {
    let text = match text {
        "-" => {
            let mut input = String::new();
            io::stdin().take(REQUEST_BYTES_MAX as u64 + 1).read_to_string(&mut input)?;
            input
        }
        text => text.to_owned(),
    };
    let find = async |client: &mut Client| {
        let found = find::session(client, Some(session)).await?;
        found.context("there is no such session")
    };
    let question = async |_: &mut Client, session_id: &SessionId| {
        let shown = show::shortened(&show::printable(&text), TEXT_CHARS_SHOWN);
        Ok(format!("record for the session {session_id} that its user asked: {shown}?"))
    };
    let asked = Asked::WithoutToken;
    let (mut client, session_id) = confirm::operator_about(data, asked, find, question).await?;
    let path = format!("/v1/sessions/{session_id}/requests");
    client.ask(Method::POST, &path, Some(&json!({ "text": text }))).await?.succeeded()?;
    show::say(format!("recorded as the request of the session {session_id}"))
}

async fn list(data: &DataDir, args: &SessionsArgs) -> anyhow::Result<()> {
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
    print_list(&sessions, &data.global, "no sessions", table)
}
