//! `stepgate archive`: runs that leave the store, and the files that have them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::archive::file::Archive;
use stepgate_core::archive::select;
use stepgate_core::ports::World;
use stepgate_core::time::Timestamp;
use stepgate_core::verify::Problem;
use stepgate_gateway::world::RealWorld;

use super::verify::show_problems;
use super::{confirm, print_list, print_one, times};
use crate::cli::{ArchiveCommand, When};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

pub(super) async fn archive(data: &DataDir, command: ArchiveCommand) -> anyhow::Result<u8> {
    match command {
        ArchiveCommand::Run { before } => run(data, before).await.map(|()| 0),
        ArchiveCommand::List => list(data).await.map(|()| 0),
        ArchiveCommand::Verify { files } => verify(&files, data.global.json),
    }
}

async fn run(data: &DataDir, before: Option<When>) -> anyhow::Result<()> {
    let before: Option<Timestamp> = before.map(|when| when.instant(RealWorld.now()));
    let question = match before {
        Some(before) => format!("archive every run that ended before {before}?"),
        None => "archive the runs that are older than the configuration says?".to_owned(),
    };
    let mut client = confirm::operator(data, &question).await?;
    let body = json!({ "before": before });
    let made = client.ask(Method::POST, "/v1/archives", Some(&body)).await?.json()?;
    print_one(&made, &data.global, || told(&made))
}

fn told(made: &Value) -> String {
    let number = |name: &str| made.get(name).and_then(Value::as_u64).unwrap_or_default();
    let archives = made.get("archives").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let runs: u64 = archives.iter().filter_map(|it| it.get("runs")?.as_u64()).sum();
    let mut text = format!("{runs} run(s) archived, in {} file(s)", archives.len());
    let stay = [
        ("held", "a hold covers them"),
        ("unread", "a receiver of notifications or an audit stream has not read their events"),
        ("granted", "they used a grant that is still good"),
        ("unsound", "they do not verify: `stepgate verify` tells why"),
    ];
    for (name, why) in stay.into_iter().filter(|(name, _)| number(name) > 0) {
        text += &format!("\n  {} old run(s) stay: {why}", number(name));
    }
    if number("given_up") > 0 {
        text += &format!("\n  {} archive(s) given up: their runs changed", number("given_up"));
    }
    text
}

/// Lists what the store names: no gateway is asked, so it works beside one.
async fn list(data: &DataDir) -> anyhow::Result<()> {
    let store = crate::store::read(data).await?;
    let named = select::named(&*store).await?;
    let directory = data.archives(&data.load_config()?).directory;
    let rows: Vec<Value> = named
        .iter()
        .map(|it| {
            json!({
                "archive_id": it.archive_id,
                "archived_at": it.ts,
                "file": it.archived.file,
                "file_bytes": it.archived.file_bytes,
                "file_digest": it.archived.file_digest,
                "is_there": directory.join(&it.archived.file).is_file(),
                "runs": it.archived.runs,
            })
        })
        .collect();
    let times = times(&data.global);
    let shown = || {
        let mut table = Table::new(["ARCHIVED", "RUNS", "BYTES", "FILE", "IS"]).uncut();
        for (it, row) in named.iter().zip(&rows) {
            let is_there = row.get("is_there") == Some(&Value::Bool(true));
            table.add([
                Cell::plain(times.past(it.ts)),
                Cell::plain(it.archived.runs),
                Cell::plain(it.archived.file_bytes),
                Cell::plain(&it.archived.file),
                Cell::plain(if is_there { "there" } else { "not there" }),
            ]);
        }
        table
    };
    print_list(&rows, &data.global, "no run is archived", shown)
}

fn verify(files: &[PathBuf], json: bool) -> anyhow::Result<u8> {
    let mut is_sound = true;
    for file in files {
        let (runs, problems) = verified(file)?;
        is_sound &= problems.is_empty();
        let shown = file.display();
        if json {
            show::json(&json!({ "file": file, "runs": runs, "problems": problems }))?;
        } else if problems.is_empty() {
            show::say(format!("{}verified:{:#} {runs} runs in `{shown}`", show::GOOD, show::GOOD))?;
        } else {
            show_problems(&problems)?;
        }
    }
    Ok(if is_sound { 0 } else { super::FAULT })
}

fn verified(file: &Path) -> anyhow::Result<(usize, Vec<Problem>)> {
    let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    Ok(match Archive::read(&bytes) {
        Ok(archive) => (archive.dossiers.len(), archive.verify()),
        Err(what) => (0, vec![Problem { place: format!("archive {}", file.display()), what }]),
    })
}
