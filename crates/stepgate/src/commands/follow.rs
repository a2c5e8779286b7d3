//! `stepgate runs --follow`: events as they happen, while a gateway runs.

use serde_json::Value;
use stepgate_http::sse::Received;

use super::watch::Watch;
use crate::data_dir::DataDir;
use crate::show::{self, DIM};

pub(super) async fn follow(data: &DataDir) -> anyhow::Result<()> {
    let mut watch = Watch::begin(data).await?;
    while let Some(event) = watch.next().await? {
        if data.global.json {
            let mut value: Value = serde_json::from_str(&event.data)?;
            if let Value::Object(members) = &mut value {
                let position: u64 = event.id.parse()?;
                members.insert("position".into(), position.into());
            }
            show::json(&value)?;
        } else {
            tell(&event)?;
        }
    }
    Ok(())
}

fn tell(event: &Received) -> anyhow::Result<()> {
    let value: Value = serde_json::from_str(&event.data)?;
    let text = |pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).map(show::printable).unwrap_or_default()
    };
    let (ts, run, tool) = (text("/ts"), text("/run_id"), text("/payload/tool"));
    show::say(format!(
        "{DIM}{ts}{DIM:#}  {:<18}  {run}  {tool}",
        show::printable(&event.event_type)
    ))
}
