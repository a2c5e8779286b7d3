//! `stepgate token`: creates, lists and revokes tokens.

use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::ports::World;
use stepgate_core::time::Timestamp;
use stepgate_gateway::tokens::SOON_S;
use stepgate_gateway::world::RealWorld;

use super::confirm;
use crate::cli::{Global, Span, TokenArgs, TokenCommand};
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

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
            let reply = client.ask(Method::GET, "/v1/tokens", None).await?.json()?;
            let tokens = reply.get("tokens").and_then(Value::as_array).cloned();
            list(&tokens.unwrap_or_default(), global.json)?;
        }
        TokenCommand::Revoke { id } => {
            let question = format!("revoke the token {id}?");
            let mut client = confirm::operator(global, data, &question).await?;
            let path = format!("/v1/tokens/{id}");
            let reply = client.ask(Method::DELETE, &path, None).await?;
            if !reply.status.is_success() {
                return Err(reply.refusal());
            }
            show::say(format!("revoked {id}"))?;
        }
    }
    Ok(0)
}

fn list(tokens: &[Value], json: bool) -> anyhow::Result<()> {
    if json {
        return tokens.iter().try_for_each(show::json);
    }
    if tokens.is_empty() {
        return show::say("no tokens");
    }
    let mut table = Table::new(["TOKEN", "PRINCIPAL", "ROLE", "MADE", "EXPIRES"]);
    for token in tokens {
        let cell = |name: &str| Cell::plain(token.get(name).and_then(Value::as_str).unwrap_or("-"));
        let names = ["token_id", "principal_id", "role", "created_at"];
        let [id, principal, role, made] = names.map(cell);
        table.add([id, principal, role, made, expiry(token.get("expires_at"))]);
    }
    show::say(table)
}

/// When a token expires. Tokens that have expired or expire soon are highlighted.
fn expiry(at: Option<&Value>) -> Cell {
    let Some(at) = at.and_then(Value::as_str) else { return Cell::plain("never") };
    let now = RealWorld.now();
    match at.parse::<Timestamp>() {
        Ok(end) if end <= now => Cell::alarming(format!("{at} (expired)")),
        Ok(end) if end <= now.plus_ms(SOON_S * 1000) => Cell::alarming(format!("{at} (soon)")),
        Ok(_) | Err(_) => Cell::plain(at),
    }
}
