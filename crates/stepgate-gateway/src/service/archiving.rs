//! Retention: runs that are over and old enough leave the store for archives, a few hundred at a time.
//!
//! A file is durable under its name before its runs leave the store in one commit. A crash before the commit leaves a
//! file that no event names: it is ignored, and the runs are archived again. Only a file that certainly no event names is
//! removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use stepgate_core::archive::file::Archive;
use stepgate_core::archive::select::{Age, Batch, Left, Retention, Stay, leave, next};
use stepgate_core::archive::{NamedArchive, file_name};
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ids::{ArtifactId, RunId};
use stepgate_core::ports::StoreError;
use stepgate_core::time::Timestamp;
use stepgate_core::verify::ArchiveFiles;
use tracing::{info, warn};

use super::{Service, wait_until_set};
use crate::control::Control;
use crate::durable;

/// How much longer than an archive took the pause after it is: steps have the store for themselves meanwhile.
const PAUSE_FACTOR: u32 = 3;

/// Which runs leave the store, and for where.
#[derive(Clone, Debug)]
pub struct ArchiveSettings {
    /// How long runs stay.
    pub retention: Retention,
    /// Where the files are.
    pub directory: PathBuf,
    /// The cursors of those who read the events: runs stay until all have read theirs.
    pub readers: Vec<String>,
    /// How often to look for runs that are old enough.
    pub interval: Duration,
}

impl ArchiveFiles for ArchiveSettings {
    fn read(&self, name: &str) -> Result<Option<Archive>, String> {
        match fs::read(self.directory.join(name)) {
            Ok(bytes) => Archive::read(&bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot be read: {error}")),
        }
    }
}

/// What a pass did.
#[derive(Clone, Debug, Default)]
pub struct Archived {
    /// The archives that it made.
    pub archives: Vec<NamedArchive>,
    /// Runs that are old enough and stay.
    pub stay: Stay,
    /// Archives that were given up, because a run got a hold or an event meanwhile. The next pass makes them.
    pub given_up: u64,
}

/// How a pass uses the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// With a pause after each look at the store, and after each archive.
    Gentle,
    /// Without pauses: an operator waits for it.
    Quick,
}

impl Service {
    /// Archives now: what ended before this time, or else what is older than the configuration says. None where this
    /// process knows no archives.
    pub async fn archive(&self, before: Option<Timestamp>) -> anyhow::Result<Option<Archived>> {
        let Some(control) = &self.control else { return Ok(None) };
        let before = before.map(|before| before.min(self.gate.world.now()));
        let age = before.map_or(Age::Kept(&control.archives.retention), Age::Before);
        self.archive_all(control, age, Pace::Quick).await.map(Some)
    }

    async fn archive_all(
        &self,
        control: &Control,
        age: Age<'_>,
        pace: Pace,
    ) -> anyhow::Result<Archived> {
        let settings = &control.archives;
        let mut leaving = self.leaving();
        let (mut archived, mut after): (Archived, Option<RunId>) = Default::default();
        let now = self.gate.world.now();
        while !*leaving.borrow() {
            // One archive at a time. Between two an operator's order need not wait for the end of a long pass.
            let alone = self.archiving.lock().await;
            let began = Instant::now();
            let (store, stay) = (&*self.gate.store, &mut archived.stay);
            let batch = next(store, age, &settings.readers, now, after, stay).await?;
            let Some(batch) = batch else { break };
            after = Some(batch.last);
            if !batch.is_empty() {
                match archive(&self.gate, control, batch).await? {
                    Left::Gone(named) => archived.archives.push(*named),
                    Left::Stayed => archived.given_up += 1,
                }
            }
            drop(alone);
            if pace == Pace::Gentle {
                tokio::select! {
                    () = tokio::time::sleep(began.elapsed() * PAUSE_FACTOR) => {}
                    () = wait_until_set(&mut leaving) => {}
                }
            }
        }
        Ok(archived)
    }
}

/// Writes the file of a batch, then takes its runs out of the store. The space that is reserved for operators stays free.
async fn archive(gate: &Gate, control: &Control, batch: Batch) -> anyhow::Result<Left> {
    let directory = &control.archives.directory;
    let archive_id = ArtifactId::new(gate.world.fresh_uuid());
    let path = directory.join(file_name(archive_id));
    let text = batch.text(archive_id, gate.world.now());
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let room = control.disk.refuse_without_room(directory, bytes);
    room.map_err(|why| anyhow::anyhow!("cannot write into `{}`: {why}", directory.display()))?;
    let written = path.clone();
    let archive = tokio::task::spawn_blocking(move || write(&written, &text)).await?;
    let (is_named, left) = match archive {
        Ok(archive) => {
            let left = leave(gate, &archive).await;
            (may_be_named(&left), left.map_err(anyhow::Error::from))
        }
        Err(error) => (false, Err(error)),
    };
    if !is_named {
        // Where it cannot be removed it is ignored.
        let _removed = fs::remove_file(&path);
    }
    left
}

/// Whether an event of the store may name the file now. Not where it is certain that nothing was written: otherwise a
/// store that refuses for hours, such as one on a full disk, would leave a file at each try.
fn may_be_named(left: &Result<Left, Fault>) -> bool {
    match left {
        Ok(Left::Stayed) | Err(Fault::Store(StoreError::Unavailable(_))) => false,
        Ok(Left::Gone(_)) | Err(_) => true,
    }
}

/// The file is read back: what is said about it is what was written.
fn write(path: &Path, text: &str) -> anyhow::Result<Archive> {
    let shown = || format!("cannot write `{}`", path.display());
    if let Some(directory) = path.parent().filter(|directory| !directory.is_dir()) {
        durable::create_directory(directory).with_context(shown)?;
    }
    durable::write(path, text.as_bytes()).with_context(shown)?;
    let bytes = fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let archive = Archive::read(&bytes);
    archive.map_err(|why| anyhow::anyhow!("`{}` {why}", path.display()))
}

/// Archives what is old enough until the process ends. One node does it for all.
pub(super) async fn keep_archiving(service: Arc<Service>) {
    let Some(control) = &service.control else { return };
    if control.archives.retention.is_endless() {
        return;
    }
    let mut leaving = service.leaving();
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(control.archives.interval) => {}
            () = wait_until_set(&mut leaving) => return,
        }
        let archived = service.archive_as_configured(control).await;
        let was_failing = std::mem::replace(&mut is_failing, archived.is_err());
        match archived {
            Err(error) if !was_failing => warn!("runs are archived later: {error:#}"),
            Err(_) => {}
            Ok(archived) => tell(&archived),
        }
    }
}

impl Service {
    async fn archive_as_configured(&self, control: &Control) -> anyhow::Result<Archived> {
        let age = Age::Kept(&control.archives.retention);
        match self.is_first_node().await? {
            true => self.archive_all(control, age, Pace::Gentle).await,
            false => Ok(Archived::default()),
        }
    }
}

fn tell(archived: &Archived) {
    let runs: u64 = archived.archives.iter().map(|named| named.archived.runs).sum();
    if runs > 0 {
        info!("archived {runs} run(s) in {} file(s)", archived.archives.len());
    }
    if archived.stay.unread > 0 {
        let runs = archived.stay.unread;
        warn!(
            "{runs} run(s) are old enough to be archived and stay: their events are not sent out yet"
        );
    }
    if archived.stay.unsound > 0 {
        let runs = archived.stay.unsound;
        warn!("{runs} run(s) are old enough to be archived and do not verify: they stay");
    }
}

#[cfg(test)]
mod tests;
