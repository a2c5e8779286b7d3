//! `stepgate audit`: how far the streams have come, and events once more.

use std::io;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use stepgate_gateway::audit::{self, Format, Pages, StreamSettings};

use crate::backup::{counted, progress};
use crate::cli::{AuditCommand, AuditFormat, Positions};
use crate::data_dir::DataDir;
use crate::settings;
use crate::show;
use crate::store;

use super::cursors::{self, Follower};

pub(super) async fn audit(data: &DataDir, command: AuditCommand) -> anyhow::Result<u8> {
    match command {
        AuditCommand::List => list(data).await?,
        AuditCommand::Export { positions, format } => export(data, positions, format).await?,
        AuditCommand::Send { name, positions } => send(data, &name, positions).await?,
    }
    Ok(0)
}

/// The streams, as a gateway with this configuration would have them.
fn streams(data: &DataDir) -> anyhow::Result<Vec<StreamSettings>> {
    let streams = settings::streams(data, &data.load_config()?)?;
    ensure!(
        !streams.is_empty(),
        "no stream is configured: add an [[audit]] to `{}`",
        data.config_shown()
    );
    Ok(streams)
}

async fn list(data: &DataDir) -> anyhow::Result<()> {
    let config = data.load_config()?;
    let streams = streams(data)?.into_iter().zip(&config.audit).map(|(stream, configured)| {
        let (name, kind) = configured.shown();
        Follower { name, kind, cursor: audit::cursor_of(name), events: Some(stream.events) }
    });
    cursors::list(data, streams.collect()).await
}

async fn export(data: &DataDir, positions: Positions, format: AuditFormat) -> anyhow::Result<()> {
    let format = match format {
        AuditFormat::Json => Format::Json,
        AuditFormat::Ocsf => Format::Ocsf,
    };
    let store = store::read(data).await?;
    let last = positions.to.unwrap_or(u64::MAX);
    let mut pages = Pages::new(&*store, format, Vec::new(), positions.from..=last);
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(());
        }
        for line in page {
            show::plain(line.text)?;
        }
    }
}

async fn send(data: &DataDir, name: &str, positions: Positions) -> anyhow::Result<()> {
    let streams = streams(data)?;
    let Some(stream) = streams.iter().find(|stream| stream.name == name) else {
        let names: Vec<_> = streams.iter().map(|stream| stream.name.as_str()).collect();
        bail!("there is no such stream: the configuration has {}", names.join(", "));
    };
    let store = store::read(data).await?;
    // Fixed now: a gateway goes on writing.
    let last = positions.to.unwrap_or(store.last_position().await?);
    let (mut count, mut reached) = (0, None);
    let bar = progress("events sent");
    let sent = audit::send_again(&*store, stream, positions.from..=last, |position| {
        (count, reached) = (count + 1, Some(position));
        bar.set_position(count);
    });
    let sent = sent.await.map_err(io::Error::other);
    bar.finish_and_clear();
    let next = reached.map_or(positions.from, |reached| reached + 1);
    sent.with_context(|| {
        let events = counted(count, "event", "events");
        format!("{events} sent, and no more: go on with --from {next}")
    })?;
    match data.global.json {
        true => show::json(&json!({ "name": name, "sent": count, "last_position": reached })),
        false => show::say(format!("{name}: {} sent", counted(count, "event", "events"))),
    }
}
