//! `stepgate token`: creates, lists and revokes tokens.

use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::ids::ArtifactId;
use stepgate_core::ports::World;
use stepgate_core::time::Timestamp;
use stepgate_gateway::tokens::SOON_S;
use stepgate_gateway::world::RealWorld;

use super::confirm::{self, Asked};
use super::find::{self, Kind};
use super::{past, print_list, rows, text, times};
use crate::cli::{Global, Named, Span, TokenCommand};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, Times};

const TOKEN: Kind = Kind {
    name: "token",
    listed_by: "stepgate token list",
    members: &["token_id", "created_at", "principal_id", "role"],
};

pub(super) async fn token(data: &DataDir, command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create { name, role, expires_in } => {
            let life = match expires_in {
                Some(Span(seconds)) => format!("good for {seconds} seconds"),
                None => "without an end".to_owned(),
            };
            let question = format!("make a token for `{name}` as {}, {life}?", role.as_str());
            let mut client = confirm::operator(data, &question).await?;
            let mut body = json!({ "name": name, "role": role });
            if let (Some(Span(seconds)), Value::Object(members)) = (expires_in, &mut body) {
                members.insert("expires_in_s".into(), seconds.into());
            }
            let made = client.ask(Method::POST, "/v1/tokens", Some(&body)).await?.json()?;
            if data.global.json {
                return show::json(&made);
            }
            show::note(format!("token {}; it is shown this once", text(&made, "token_id")));
            show::plain(text(&made, "token"))
        }
        TokenCommand::List => {
            let mut client = Client::of(data, Role::Auditor).await?;
            list(&tokens(&mut client).await?, &data.global)
        }
        TokenCommand::Revoke { id } => revoke(data, &id).await,
    }
}

async fn tokens(client: &mut Client) -> anyhow::Result<Vec<Value>> {
    Ok(rows(&client.get("/v1/tokens").await?, "tokens").to_vec())
}

async fn revoke(data: &DataDir, named: &Named<ArtifactId>) -> anyhow::Result<()> {
    let find = async |client: &mut Client| meant(client, named).await;
    let question = async |_: &mut Client, (id, owner): &(ArtifactId, String)| {
        Ok(format!("revoke the token {id}{owner}?"))
    };
    let asked = Asked::about(std::slice::from_ref(named));
    let (mut client, (id, _)) = confirm::operator_about(data, asked, find, question).await?;
    let reply = client.ask(Method::DELETE, &format!("/v1/tokens/{id}"), None).await?;
    reply.succeeded()?;
    show::say(format!("revoked {id}"))
}

async fn meant(
    client: &mut Client,
    named: &Named<ArtifactId>,
) -> anyhow::Result<(ArtifactId, String)> {
    let tokens = tokens(client).await?;
    let newest = tokens.iter().max_by_key(|token| text(token, "created_at"));
    let (id, token) = find::among(&TOKEN, named, &tokens, newest).await?;
    let owner = token.map(|token| {
        let (owner, role) = (text(token, "principal_id"), text(token, "role"));
        show::printable(&format!(" of `{owner}`, as {role}"))
    });
    Ok((id, owner.unwrap_or_default()))
}

fn list(tokens: &[Value], global: &Global) -> anyhow::Result<()> {
    let header = ["TOKEN", "PRINCIPAL", "ROLE", "MADE", "EXPIRES"];
    let times = times(global);
    let row = |token: &Value| {
        let [id, principal, role] =
            ["token_id", "principal_id", "role"].map(|name| Cell::member(token, name));
        let made = Cell::plain(past(times, token, "created_at"));
        [id, principal, role, made, expiry(token.get("expires_at"), times)]
    };
    print_list(tokens, global, "no tokens", || Table::of(header, tokens.iter().map(row)))
}

/// When a token expires. Tokens that have expired or expire soon are highlighted.
fn expiry(at: Option<&Value>, times: Times) -> Cell {
    let Some(at) = at.and_then(Value::as_str) else { return Cell::plain("never") };
    let now = RealWorld.now();
    match at.parse::<Timestamp>() {
        Ok(end) if end <= now => Cell::alarming(format!("{} (expired)", times.past(end))),
        Ok(end) if end <= now.plus_ms(SOON_S * 1000) => {
            Cell::alarming(format!("{} (soon)", times.to_come(end)))
        }
        Ok(end) => Cell::plain(times.to_come(end)),
        Err(_) => Cell::plain(at),
    }
}
