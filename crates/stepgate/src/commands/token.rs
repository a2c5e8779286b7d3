//! `stepgate token`: who may come in.

use axum::http::Method;
use serde_json::{Value, json};

use crate::cli::{Global, TokenArgs, TokenCommand};
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

pub(super) async fn token(global: &Global, data: &DataDir, args: TokenArgs) -> anyhow::Result<u8> {
    let mut client = Client::of(global, data, As::Operator).await?;
    match args.command {
        TokenCommand::Create { name, role } => {
            let body = json!({ "name": name, "role": role });
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
            let reply = client.ask(Method::GET, "/v1/tokens", None).await?.json()?;
            let tokens = reply.get("tokens").and_then(Value::as_array).cloned();
            list(&tokens.unwrap_or_default(), global.json)?;
        }
        TokenCommand::Revoke { id } => {
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
    let mut table = Table::new(["TOKEN", "PRINCIPAL", "ROLE", "MADE"]);
    for token in tokens {
        let cell = |name: &str| Cell::plain(token.get(name).and_then(Value::as_str).unwrap_or("-"));
        table.add([cell("token_id"), cell("principal_id"), cell("role"), cell("created_at")]);
    }
    show::say(table)
}
