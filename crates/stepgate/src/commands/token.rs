//! `stepgate token`: creates, lists and revokes tokens.

use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::ids::{ArtifactId, IdPrefix};
use stepgate_core::ports::World;
use stepgate_core::time::Timestamp;
use stepgate_gateway::tokens::SOON_S;
use stepgate_gateway::world::RealWorld;

use super::confirm::{self, Asked};
use super::find::{self, Wanted};
use super::{past, times};
use crate::cli::{Global, Named, Span, TokenArgs, TokenCommand};
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, Times};

pub(super) async fn token(global: &Global, data: &DataDir, args: TokenArgs) -> anyhow::Result<u8> {
    match args.command {
        TokenCommand::Create { name, role, expires_in } => {
            let life = match expires_in {
                Some(Span(seconds)) => format!("good for {seconds} seconds"),
                None => "without an end".to_owned(),
            };
            let question = format!("make a token for `{name}` as {}, {life}?", role.as_str());
            let mut client = confirm::operator(global, data, &question).await?;
            let mut body = json!({ "name": name, "role": role });
            if let (Some(Span(seconds)), Value::Object(members)) = (expires_in, &mut body) {
                members.insert("expires_in_s".into(), seconds.into());
            }
            let made = client.ask(Method::POST, "/v1/tokens", Some(&body)).await?.json()?;
            if global.json {
                show::json(&made)?;
            } else {
                let text = |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default();
                show::note(format!("token {}; it is shown this once", text("token_id")));
                show::plain(text("token"))?;
            }
        }
        TokenCommand::List => {
            let mut client = Client::of(global, data, As::Auditor).await?;
            list(&tokens(&mut client).await?, global)?;
        }
        TokenCommand::Revoke { id } => revoke(global, data, &id).await?,
    }
    Ok(0)
}

async fn tokens(client: &mut Client) -> anyhow::Result<Vec<Value>> {
    let reply = client.ask(Method::GET, "/v1/tokens", None).await?.json()?;
    Ok(reply.get("tokens").and_then(Value::as_array).cloned().unwrap_or_default())
}

async fn revoke(global: &Global, data: &DataDir, named: &Named<ArtifactId>) -> anyhow::Result<()> {
    let mut found = None;
    let question = async |client: &mut Client| {
        let (id, owner) = meant(client, named).await?;
        found = Some(id);
        Ok(format!("revoke the token {id}{owner}?"))
    };
    let asked = Asked::about(std::slice::from_ref(named));
    let mut client = confirm::operator_shown(global, data, asked, question).await?;
    let id = match found {
        Some(id) => id,
        None => meant(&mut client, named).await?.0,
    };
    let reply = client.ask(Method::DELETE, &format!("/v1/tokens/{id}"), None).await?;
    if !reply.status.is_success() {
        return Err(reply.refusal());
    }
    show::say(format!("revoked {id}"))
}

/// The token that is meant, and whose it is.
async fn meant(
    client: &mut Client,
    named: &Named<ArtifactId>,
) -> anyhow::Result<(ArtifactId, String)> {
    let tokens = tokens(client).await?;
    let text = |token: &Value, name: &str| {
        token.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let rows = async |wanted: Wanted<'_>| {
        let newest = || tokens.iter().max_by_key(|token| text(token, "created_at"));
        let begins = |prefix: &IdPrefix| {
            tokens.iter().filter(|token| prefix.fits(&text(token, "token_id"))).cloned().collect()
        };
        Ok(match wanted {
            Wanted::Newest => newest().cloned().into_iter().collect(),
            Wanted::Beginning(prefix) => begins(prefix),
        })
    };
    let id = find::find(named, rows).await?;
    let token = tokens.iter().find(|token| text(token, "token_id") == id.to_string());
    let owner = token.map(|token| {
        let (owner, role) = (text(token, "principal_id"), text(token, "role"));
        show::printable(&format!(" of `{owner}`, as {role}"))
    });
    Ok((id, owner.unwrap_or_default()))
}

fn list(tokens: &[Value], global: &Global) -> anyhow::Result<()> {
    if global.json {
        return tokens.iter().try_for_each(show::json);
    }
    if tokens.is_empty() {
        return show::say("no tokens");
    }
    let mut table = Table::new(["TOKEN", "PRINCIPAL", "ROLE", "MADE", "EXPIRES"]);
    let times = times(global);
    for token in tokens {
        let cell = |name: &str| Cell::plain(token.get(name).and_then(Value::as_str).unwrap_or("-"));
        let [id, principal, role] = ["token_id", "principal_id", "role"].map(cell);
        let made = Cell::plain(past(times, token, "created_at"));
        table.add([id, principal, role, made, expiry(token.get("expires_at"), times)]);
    }
    show::say(table)
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
