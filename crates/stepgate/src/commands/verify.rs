//! `stepgate verify`: verifies the whole store, or one exported run.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use serde_json::json;
use stepgate_core::bundle::Bundle;
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::ports::Store;
use stepgate_core::verify::{self, Problem, Report, SavedHead};

use crate::backup::progress;
use crate::cli::VerifyArgs;
use crate::data_dir::DataDir;
use crate::show::{self, Cell, ERROR, GOOD, Table};

pub(super) async fn verify(data: &DataDir, args: VerifyArgs) -> anyhow::Result<u8> {
    if let Some(file) = &args.bundle {
        return bundle(file, data.global.json);
    }
    let saved = match &args.heads {
        Some(file) => heads(file)?,
        None => Vec::new(),
    };
    let store = crate::store::read(data).await?;
    let progress = if io::stderr().is_terminal() {
        ProgressBar::new_spinner().with_message("verifying")
    } else {
        ProgressBar::hidden()
    };
    let mut archives = data.archives(&data.load_config()?);
    if let Some(directory) = &args.archives {
        archives.directory = directory.clone();
    }
    let told = |runs| progress.set_position(runs);
    let mut report = verify::verify_with(&*store, Some(&archives), &saved, told).await?;
    progress.finish_and_clear();
    if args.archives.is_some() {
        let missing = report.archives_missing.iter();
        report.problems.extend(missing.map(|file| Problem {
            place: format!("archive {file}"),
            what: format!("is not in `{}`", archives.directory.display()),
        }));
    }
    if data.global.json {
        show::json(&report)?;
    } else {
        tell(&report, saved.len())?;
    }
    if !report.problems.is_empty() {
        return Ok(super::FAULT);
    }
    if let Some(file) = &args.save_heads {
        save(file, &(serde_json::to_string_pretty(&report.heads)? + "\n"))
            .with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    Ok(0)
}

/// Writes the heads, and makes them durable if possible: the path may be a pipe.
fn save(file: &Path, text: &str) -> io::Result<()> {
    let mut out = fs::File::create(file)?;
    out.write_all(text.as_bytes())?;
    match out.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

fn tell(report: &Report, saved: usize) -> anyhow::Result<()> {
    if report.problems.is_empty() {
        show::say(format!(
            "{GOOD}verified:{GOOD:#} {} runs, {} journal entries, {} sessions",
            report.runs,
            report.entries,
            report.heads.len()
        ))?;
        if report.archives > 0 {
            show::say(format!(
                "archived: {} runs in {} archives, of which {} were read",
                report.archived_runs, report.archives, report.archives_read
            ))?;
        }
        if saved > 0 {
            show::say(format!("all {saved} saved heads stand"))?;
        }
    } else {
        show_problems(&report.problems)?;
    }
    for file in &report.archives_missing {
        show::note(format!("not there, so not verified: archive {}", show::printable(file)));
    }
    let mut table = Table::new(["SESSION", "LINKS", "HEAD"]).uncut();
    for head in &report.heads {
        let SavedHead { session_id, number, digest } = head;
        table.add([Cell::plain(session_id), Cell::plain(number), Cell::plain(digest)]);
    }
    show::say(table)
}

/// Verifies a whole store that a command has made. Where it does not verify, shows the problems and fails with `why`.
pub(super) async fn verified(
    store: &dyn Store,
    heads: &[SavedHead],
    why: &'static str,
) -> anyhow::Result<Report> {
    let bar = progress("runs verified");
    let report = verify::verify(store, heads, |runs| bar.set_position(runs)).await?;
    bar.finish_and_clear();
    if !report.problems.is_empty() {
        show_problems(&report.problems)?;
        bail!(why);
    }
    Ok(report)
}

pub(super) fn show_problems(problems: &[Problem]) -> anyhow::Result<()> {
    let count = problems.len();
    show::say(format!("{ERROR}not verified:{ERROR:#} {count} problem(s)"))?;
    for Problem { place, what } in problems {
        // Data that does not verify may contain any text.
        show::say(show::printable(&format!("  {place}: {what}")))?;
    }
    Ok(())
}

fn heads(file: &Path) -> anyhow::Result<Vec<SavedHead>> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read saved heads from `{}`", file.display()))?;
    let heads: Vec<SavedHead> = serde_json::from_str(&text)
        .with_context(|| format!("`{}` does not hold saved heads", file.display()))?;
    if heads.is_empty() {
        bail!("`{}` holds no head, so it could prove nothing", file.display());
    }
    Ok(heads)
}

fn bundle(file: &Path, json: bool) -> anyhow::Result<u8> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        io::stdin().read_to_end(&mut bytes)?;
    } else {
        bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    }
    // With duplicate keys, a bundle could show one thing and prove another.
    let problems = match strict::parse(&bytes, strict::DEPTH_MAX, Integers::Any) {
        Ok(value) => match Bundle::read(&value) {
            Ok(bundle) => bundle.verify(),
            Err(error) => bail!("`{}` is not an exported run: {error}", file.display()),
        },
        Err(refusal) => bail!("`{}` is not strict JSON: {refusal}", file.display()),
    };
    if json {
        show::json(&json!({ "problems": problems }))?;
    } else if problems.is_empty() {
        show::say(format!("{GOOD}verified{GOOD:#}"))?;
    } else {
        show_problems(&problems)?;
    }
    Ok(if problems.is_empty() { 0 } else { super::FAULT })
}
