//! The readiness probe: whether steps can be recorded. It writes, because a full disk still answers reads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use stepgate_core::ports::StoreError;

use super::Service;

/// How long a result is cached: load balancers probe more often than the disk should be written.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How much the probe writes: about as much as a step.
const PROBE_BYTES: usize = 64 * 1024;
/// Timeout of the write.
const PROBE_WAIT: Duration = Duration::from_secs(5);
/// The file that the probe writes. It is removed after each probe.
const PROBE: &str = ".ready";

/// The cached result.
pub(super) type Last = tokio::sync::Mutex<Option<(Instant, Result<(), StoreError>)>>;

impl Service {
    /// Tries a read and a small write, unless the cached result is recent.
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
        // A write to a shared store; does nothing if the store is in the data directory.
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
    let written = File::create(probe).and_then(|mut file| {
        file.write_all(&[0; PROBE_BYTES])?;
        file.sync_data()
    });
    // Removed also where the write failed.
    let _removed = fs::remove_file(probe);
    written
}
