//! `stepgate run`: builds a proposal from a tool and its arguments.

use anyhow::{Context, bail};
use serde_json::{Map, Value};
use stepgate_core::failure::Outcome;
use stepgate_core::run::{Payload, Word};
use stepgate_core::tool::ToolName;
use stepgate_exec::servers::{News, Off};
use stepgate_gateway::control;

use crate::cli::RunArgs;
use crate::commands::exit_code;
use crate::commands::step::Taker;
use crate::data_dir::DataDir;
use crate::show;
use crate::start::Held;

pub(super) async fn run(data: &DataDir, args: RunArgs) -> anyhow::Result<u8> {
    let payload = proposal(&args)?;
    let mut taker = Taker::of(data, args.session.as_ref()).await?;
    let taken = taker.take(payload).await?;
    let is_denied = taken.code == exit_code(Word::Outcome(Outcome::Denied));
    if let (Taker::Here { held, .. }, true) = (&taker, is_denied) {
        tell_what_is_off(held, &args.tool);
    }
    taken.print()?;
    how_to_go_on(&taken.response).into_iter().for_each(show::note);
    taker.tell_reason(data, &taken).await;
    Ok(taken.code)
}

/// Logs what is off in the server of a denied tool: that may be the reason.
fn tell_what_is_off(held: &Held, tool: &str) {
    let Ok(name) = ToolName::parse(tool) else { return };
    let is_its = |off: &Off| {
        off.server == name.server() && off.tool.as_deref().is_none_or(|tool| tool == name.tool())
    };
    let off = held.control.off().into_iter().filter(is_its);
    off.for_each(|off| control::tell(&News::Off(off)));
}

/// How to decide, if a person must. The response comes from a gateway and is untrusted.
fn how_to_go_on(response: &str) -> Option<String> {
    let response: Value = serde_json::from_str(response).unwrap_or_default();
    let text = |pointer: &str| response.pointer(pointer).and_then(Value::as_str);
    match (text("/outcome"), text("/result/approval_id")) {
        (Some("APPROVAL_REQUIRED"), Some(approval)) => Some(show::printable(&format!(
            "waiting for a person: `stepgate approve {approval}` or `stepgate deny {approval}`; \
             the same proposal id asked again gets the outcome"
        ))),
        (_, _) => None,
    }
}

fn proposal(args: &RunArgs) -> anyhow::Result<Payload> {
    let id = args.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let arguments = match &args.args {
        Some(json) => json.clone(),
        None => pairs(&args.tool, &args.pairs)?.to_string(),
    };
    Ok(Payload::proposal(id, &args.reasoning, &args.tool, arguments))
}

pub(super) fn pairs(tool: &str, pairs: &[String]) -> anyhow::Result<Value> {
    let is_servers = ToolName::parse(tool).is_ok();
    let mut arguments = Map::new();
    for pair in pairs {
        let (key, value) =
            pair.split_once('=').with_context(|| format!("`{pair}` is not KEY=VALUE"))?;
        let (key, value) = match key.strip_suffix(':') {
            Some(key) => {
                let value = serde_json::from_str(value)
                    .with_context(|| format!("`{value}` of `{key}` is not JSON"))?;
                (key, value)
            }
            None if is_servers => (key, guessed(value)),
            None => (key, Value::String(value.to_owned())),
        };
        if arguments.insert(key.to_owned(), value).is_some() {
            bail!("argument `{key}` is given twice");
        }
    }
    Ok(Value::Object(arguments))
}

/// A JSON number, true, false or null becomes that value; everything else becomes text.
fn guessed(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) => value,
        Ok(Value::String(_) | Value::Array(_) | Value::Object(_)) | Err(_) => {
            Value::String(text.to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
