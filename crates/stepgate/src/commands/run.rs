//! `stepgate run`: a proposal made of a tool and its arguments.

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use stepgate_core::run::Payload;

use crate::cli::RunArgs;
use crate::commands::{exit_code, recover, step};
use crate::data_dir::DataDir;

pub(super) async fn run(data: &DataDir, args: RunArgs) -> anyhow::Result<u8> {
    let payload = proposal(&args)?;
    let held = data.hold().await?;
    recover::tell(&held.recovered);
    let session = held.session(args.session).await?;
    let answer = step::submit(&held, &session, Payload::whole(payload)).await?;
    step::answer(&answer)?;
    Ok(exit_code(answer.word))
}

fn proposal(args: &RunArgs) -> anyhow::Result<Vec<u8>> {
    let id = args.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let head = json!({
        "schema_version": "1.0.0",
        "id": id,
        "reasoning": args.reasoning,
        "action": args.tool,
    });
    let head = head.to_string();
    let head = head.strip_suffix('}').unwrap_or_default();
    // The arguments go in as they were typed: the gate's parser is the one that judges them.
    let arguments = match &args.args {
        Some(json) => json.clone(),
        None => pairs(&args.pairs)?.to_string(),
    };
    Ok(format!("{head},\"args\":{arguments}}}").into_bytes())
}

fn pairs(pairs: &[String]) -> anyhow::Result<Value> {
    let mut arguments = Map::new();
    for pair in pairs {
        let (key, value) =
            pair.split_once('=').with_context(|| format!("`{pair}` is not KEY=VALUE"))?;
        if arguments.insert(key.to_owned(), Value::String(value.to_owned())).is_some() {
            bail!("argument `{key}` is given twice");
        }
    }
    Ok(Value::Object(arguments))
}
