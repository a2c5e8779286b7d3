//! `stepgate attention`: everything that needs a person, with the command for each.

use anyhow::ensure;
use stepgate_core::attention::Kind;
use stepgate_core::event::EventType;
use stepgate_gateway::attention::{Attention, NeedObject};

use super::watch::Watch;
use super::{print_one, times};
use crate::cli::{AttentionArgs, Global};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn attention(data: &DataDir, args: AttentionArgs) -> anyhow::Result<()> {
    if args.watch {
        return watch(data, &args).await;
    }
    let mut client = match Client::elsewhere(data, Role::Auditor).await? {
        Some(client) => client,
        None => {
            let has_store = data.store_url(&data.load_config()?)?.is_some();
            ensure!(
                has_store || data.database().exists(),
                "there is nothing in `{}` yet, so nothing needs a person: `stepgate serve` begins",
                data.root().display()
            );
            Client::of(data, Role::Auditor).await?
        }
    };
    tell(&asked(&mut client, &args).await?, &args, &data.global)
}

/// What needs a person for the reason that is asked for.
async fn asked(client: &mut Client, args: &AttentionArgs) -> anyhow::Result<Attention> {
    let reply = client.get("/v1/attention").await?;
    let mut found: Attention = serde_json::from_value(reply)?;
    found.attention.retain(|need| args.is_asked_for(&need.kind));
    Ok(found)
}

/// What needs a person now, and then what comes to need one.
async fn watch(data: &DataDir, args: &AttentionArgs) -> anyhow::Result<()> {
    const TYPES: [EventType; 3] =
        [EventType::ApprovalRequested, EventType::RunNeedsPerson, EventType::PartNeedsPerson];
    let mut watch = Watch::begin(data).await?;
    let mut told: Vec<NeedObject> = Vec::new();
    loop {
        let Attention { attention, counts: _ } = asked(&mut watch.client, args).await?;
        let is_told = |need: &&NeedObject| {
            let key = |it: &NeedObject| (it.kind.clone(), it.subject.clone(), it.since);
            told.iter().any(|told| key(told) == key(need))
        };
        let mut new = attention.iter().filter(|need| !is_told(need));
        new.try_for_each(|need| one(need, &data.global))?;
        told = attention;
        if watch.next_of(&TYPES).await?.is_none() {
            return Ok(());
        }
    }
}

fn one(need: &NeedObject, global: &Global) -> anyhow::Result<()> {
    print_one(need, global, || show::attention::block(need, times(global)))
}

fn tell(found: &Attention, args: &AttentionArgs, global: &Global) -> anyhow::Result<()> {
    let Attention { attention, counts } = found;
    if attention.is_empty() && !global.json {
        show::say("nothing needs a person")?;
    }
    attention.iter().try_for_each(|need| one(need, global))?;
    let approval = Kind::Approval.as_str();
    let listed = |need: &&NeedObject| need.kind == approval;
    let listed = u64::try_from(attention.iter().filter(listed).count())?;
    let open = counts.get(approval).copied().unwrap_or_default();
    if args.is_asked_for(approval) && open > listed && !global.json {
        show::say(format!(
            "{open} approvals are open, of which these are the {listed} oldest: `stepgate approvals` lists them"
        ))?;
    }
    Ok(())
}
