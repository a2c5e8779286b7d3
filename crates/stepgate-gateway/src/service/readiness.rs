//! Whether steps can be recorded: found out by writing, because a full disk still answers reads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stepgate_core::ports::StoreError;

use super::Service;

/// How long an answer is good: probes come from balancers, more often than the disk should be asked.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How much is written: about what a step needs.
const PROBE_BYTES: usize = 64 * 1024;
/// How long the disk may take.
const PROBE_WAIT: Duration = Duration::from_secs(5);
/// The file that is written. It is there only while it is.
const PROBE: &str = ".ready";

/// The last answer.
pub(super) type Last = tokio::sync::Mutex<Option<(Instant, Result<(), StoreError>)>>;

impl Service {
    /// Tries a read and a small write, unless that was done just now.
    pub async fn try_store(&self) -> Result<(), StoreError> {
        let mut last = self.tried.lock().await;
        match &*last {
            Some((at, answer)) if at.elapsed() < GOOD_FOR => answer.clone(),
            Some(_) | None => {
                let answer = self.try_now().await;
                *last = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    }

    async fn try_now(&self) -> Result<(), StoreError> {
        self.gate.store.run_ids(None, 1).await?;
        let Some(control) = &self.control else { return Ok(()) };
        // A write to the store that other nodes share; nothing where the store is in the directory.
        self.gate.store.tell_policy(control.policy.current().digest()).await?;
        let probe = control.root.join(PROBE);
        let writing = tokio::task::spawn_blocking(move || write(&probe));
        let unavailable =
            |why: &str| StoreError::Unavailable(format!("a small write failed: {why}"));
        match tokio::time::timeout(PROBE_WAIT, writing).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(unavailable(&error.to_string())),
            Ok(Err(error)) => Err(unavailable(&error.to_string())),
            Err(_) => Err(unavailable("the disk does not answer")),
        }
    }
}

fn write(probe: &Path) -> io::Result<()> {
    let removed = Removed(probe.to_owned());
    let mut file = File::create(&removed.0)?;
    file.write_all(&[0; PROBE_BYTES])?;
    file.sync_data()
}

/// Removes the file in the end, whatever became of it.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _removed = fs::remove_file(&self.0);
    }
}
