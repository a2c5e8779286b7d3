//! The format of a backup: one directory, the same for both engines.
//!
//! ```text
//! manifest.json   the contents, with the digest of every file; written last
//! stepgate.db     a consistent snapshot of the store, in SQLite, whatever engine it came from
//! heads.json      the heads of its chains, as `verify --heads` takes them
//! stepgate.toml   the configuration file, if there is one
//! policies/       the policies
//! sandbox/        the files, copied shortly after the snapshot
//! ```
//!
//! Tokens are not included: the store has their digests, which is enough to recognise them.

pub(crate) mod manifest;
mod source;
mod target;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use stepgate_core::action::CORE_SERVER;
use stepgate_core::ids::RunId;
use stepgate_core::journal::replay;
use stepgate_core::ports::{Store, StoreError};
use stepgate_exec::{Identity, recorded_file};

pub(crate) use source::Backup;
pub(crate) use target::Target;

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const DATABASE: &str = "stepgate.db";
pub(crate) const HEADS: &str = "heads.json";
pub(crate) const CONFIG: &str = "stepgate.toml";
pub(crate) const POLICIES: &str = "policies";
pub(crate) const SANDBOX: &str = "sandbox";

/// The files by which calls under way are recognised: those that they would rename, delete or replace.
pub(crate) async fn files_under_way(store: &dyn Store) -> Result<Vec<Identity>, StoreError> {
    let mut files = Vec::new();
    for run_id in store.unfinished_runs().await? {
        files.extend(files_of(store, run_id).await?);
    }
    Ok(files)
}

/// The same for one run.
pub(crate) async fn files_of(
    store: &dyn Store,
    run_id: RunId,
) -> Result<Vec<Identity>, StoreError> {
    // A run that does not verify is quarantined, so recovery does not continue it.
    let replayed = match store.dossier(run_id).await {
        Ok(Some(dossier)) => replay(&dossier.entries).ok(),
        Ok(None) | Err(StoreError::State(_)) => None,
        Err(error) => return Err(error),
    };
    let Some(replayed) = replayed else { return Ok(Vec::new()) };
    let call = replayed.call.filter(|call| call.call.tool_server == CORE_SERVER);
    let file = call.and_then(|call| recorded_file(call.meta.pre_state.as_ref()?));
    Ok(file.into_iter().collect())
}

/// A progress bar, shown only on a terminal.
pub(crate) fn progress(what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    match ProgressStyle::with_template("{spinner} {msg} {human_pos}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A summary of the counts of runs, sessions, and journal entries where those were counted.
pub(crate) fn contents(runs: u64, entries: Option<u64>, sessions: u64) -> String {
    let runs = counted(runs, "run", "runs");
    let entries = entries.map(|count| counted(count, "journal entry", "journal entries"));
    let entries = entries.map(|entries| format!("{entries}, ")).unwrap_or_default();
    format!("{runs}, {entries}{}", counted(sessions, "session", "sessions"))
}

/// An error for a file that cannot be written, with what the operator can do.
pub(crate) fn cannot_write(path: &Path, error: io::Error) -> anyhow::Error {
    let way_out = if error.kind() == io::ErrorKind::StorageFull {
        "free some space on its disk, and begin again"
    } else if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        "make its file system writable, or name another place"
    } else {
        "check the permissions, or name another place"
    };
    let what = format!("cannot write `{}`: {way_out}", path.display());
    anyhow::Error::new(error).context(what)
}
