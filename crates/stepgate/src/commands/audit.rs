//! `stepgate audit`: how far the streams have come, and events once more.

use std::io;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use stepgate_gateway::audit::{self, Format, Pages, StreamSettings};
use stepgate_gateway::service::ArchiveSettings;

use crate::backup::{counted, progress};
use crate::cli::{AuditCommand, AuditFormat, Positions};
use crate::data_dir::DataDir;
use crate::settings;
use crate::show;
use crate::store;

use super::cursors::{self, Follower};

pub(super) async fn audit(data: &DataDir, command: AuditCommand) -> anyhow::Result<u8> {
    match command {
        AuditCommand::List => list(data).await.map(|()| 0),
        AuditCommand::Export { positions, format } => export(data, positions, format).await,
        AuditCommand::Send { name, positions } => send(data, &name, positions).await,
    }
}

fn archives(data: &DataDir, positions: &Positions) -> anyhow::Result<ArchiveSettings> {
    let mut archives = data.archives(&data.load_config()?);
    if let Some(directory) = &positions.archives {
        archives.directory.clone_from(directory);
    }
    Ok(archives)
}

/// Names the archives whose events could not be had, and returns the exit code.
fn tell_lost(lost: &[String]) -> u8 {
    for why in lost {
        show::note(format!("these events are missing: {}", show::printable(why)));
    }
    if lost.is_empty() { 0 } else { super::FAULT }
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

async fn export(data: &DataDir, positions: Positions, format: AuditFormat) -> anyhow::Result<u8> {
    let format = match format {
        AuditFormat::Json => Format::Json,
        AuditFormat::Ocsf => Format::Ocsf,
    };
    let store = store::read(data).await?;
    let last = positions.to.unwrap_or(u64::MAX);
    let archives = archives(data, &positions)?;
    let mut pages = Pages::new(&*store, &archives, format, Vec::new(), positions.from..=last);
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(tell_lost(&pages.lost()));
        }
        for line in page {
            show::plain(line.text)?;
        }
    }
}

async fn send(data: &DataDir, name: &str, positions: Positions) -> anyhow::Result<u8> {
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
    let archives = archives(data, &positions)?;
    let range = positions.from..=last;
    let sent = audit::send_again(&*store, &archives, stream, range, |position| {
        (count, reached) = (count + 1, Some(position));
        bar.set_position(count);
    });
    let sent = sent.await.map_err(io::Error::other);
    bar.finish_and_clear();
    let next = reached.map_or(positions.from, |reached| reached + 1);
    let lost = sent.with_context(|| {
        let events = counted(count, "event", "events");
        format!("{events} sent, and no more: go on with --from {next}")
    })?;
    match data.global.json {
        true => show::json(&json!({
            "name": name, "sent": count, "last_position": reached, "missing_archives": lost,
        }))?,
        false => show::say(format!("{name}: {} sent", counted(count, "event", "events")))?,
    }
    Ok(tell_lost(&lost))
}
