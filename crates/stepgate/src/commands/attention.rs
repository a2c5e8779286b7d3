//! `stepgate attention`: everything that needs a person, with the command for each.

use anyhow::ensure;
use axum::http::Method;
use stepgate_core::attention::Kind;
use stepgate_gateway::attention::{Attention, NeedObject};

use crate::cli::{AttentionArgs, Global};
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn attention(
    global: &Global,
    data: &DataDir,
    args: AttentionArgs,
) -> anyhow::Result<u8> {
    let mut client = match Client::elsewhere(global, data, As::Auditor).await? {
        Some(client) => client,
        None => {
            let has_store = data.store_url(&data.load_config()?)?.is_some();
            ensure!(
                has_store || data.database().exists(),
                "there is nothing in `{}` yet, so nothing needs a person: `stepgate serve` begins",
                data.root().display()
            );
            Client::of(global, data, As::Auditor).await?
        }
    };
    let reply = client.ask(Method::GET, "/v1/attention", None).await?.json()?;
    let Attention { mut attention, counts } = serde_json::from_value(reply)?;
    let is_asked_for = |kind: &str| args.kind.as_deref().is_none_or(|asked| asked == kind);
    attention.retain(|need| is_asked_for(&need.kind));
    if global.json {
        attention.iter().try_for_each(show::json)?;
        return Ok(0);
    }
    if attention.is_empty() {
        show::say("nothing needs a person")?;
    }
    attention.iter().map(show::attention::block).try_for_each(show::say)?;
    let approval = Kind::Approval.as_str();
    let listed = |need: &&NeedObject| need.kind == approval;
    let listed = u64::try_from(attention.iter().filter(listed).count())?;
    let open = counts.get(approval).copied().unwrap_or_default();
    if is_asked_for(approval) && open > listed {
        show::say(format!(
            "{open} approvals are open, of which these are the {listed} oldest: `stepgate approvals` lists them"
        ))?;
    }
    Ok(0)
}
