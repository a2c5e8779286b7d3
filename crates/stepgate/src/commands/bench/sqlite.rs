//! A round on SQLite: real steps, then their rows by plain SQL, then their bytes in a file.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use indicatif::ProgressBar;
use stepgate_core::action::Action;
use stepgate_core::verify;
use stepgate_store::SqliteStore;
use stepgate_store::sqlite::Roofline;

use super::append_only::{self, Step};
use super::clients::CONTENT;
use super::measure::{Round, rate};
use super::{Run, Way};
use crate::data_dir::DataDir;

pub(super) async fn round(
    directory: &Path,
    way: Way,
    run: Run,
    progress: &ProgressBar,
) -> anyhow::Result<Round> {
    let real = way.steps(DataDir::at(directory), run, progress).await?;
    let verified_per_second = Some(verified_entries(directory).await?);
    let roofline = Roofline::of(&directory.join("stepgate.db"))?;
    let commits = roofline.commits().map(Step::of).collect();
    let bare_per_second = bare_rows(directory, roofline, run.clients).await?;
    progress.inc(run.steps_of_round()?);
    let appended = append_only::append(directory, commits, run.clients).await?;
    progress.inc(run.steps_of_round()?);
    Ok(Round { real, verified_per_second, bare_per_second, appended })
}

/// How many journal entries of the store `verify` checks per second.
async fn verified_entries(directory: &Path) -> anyhow::Result<f64> {
    let store = SqliteStore::open_read_only(&directory.join("stepgate.db"))?;
    let start = Instant::now();
    let report = verify::verify(&store, &[], |_| {}).await?;
    ensure!(report.problems.is_empty(), "the store does not verify: {:?}", report.problems);
    Ok(rate(report.entries, start.elapsed()))
}

/// Writes the rows of those steps with plain SQL, and the file writes of WRITE_FILE.
async fn bare_rows(directory: &Path, roofline: Roofline, clients: usize) -> anyhow::Result<f64> {
    let files = directory.join("bare");
    fs::create_dir_all(&files)?;
    let scratch = directory.join("bare.db");
    let steps = roofline.steps();
    let elapsed = tokio::task::spawn_blocking(move || {
        roofline.write(&scratch, clients, |range| {
            let is_write = |step: &usize| roofline.tool(*step) == Some(Action::WriteFile.name());
            write_files(&files, range.filter(is_write).count());
        })
    })
    .await??;
    Ok(rate(u64::try_from(steps)?, elapsed))
}

/// Makes this many durable file replacements, all at once.
fn write_files(directory: &Path, count: usize) {
    let write = |number: usize| -> std::io::Result<()> {
        let path = directory.join(format!("{number}.txt"));
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(CONTENT.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    };
    std::thread::scope(|scope| {
        for number in 0..count {
            scope.spawn(move || write(number));
        }
    });
}
