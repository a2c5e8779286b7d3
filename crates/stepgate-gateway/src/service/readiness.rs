//! The readiness probe: whether steps can be recorded. It writes, because a full disk still answers reads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepgate_core::ports::StoreError;
use tokio::sync::Mutex;

use super::Service;

/// How long a result is cached: load balancers probe more often than the disk should be written.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How much the probe writes: about as much as a step.
const PROBE_BYTES: usize = 64 * 1024;
/// Timeout of what is asked of the store, and of the write.
const PROBE_WAIT: Duration = Duration::from_secs(5);
/// The file that the probe writes. It is removed after each probe.
const PROBE: &str = ".ready";

/// The cached result.
pub(super) type Last = Arc<Mutex<Option<(Instant, Result<(), StoreError>)>>>;

impl Service {
    /// Tries a read and a small write, unless the cached result is recent.
    ///
    /// The try is a task of its own: a prober that gives up does not end it, and finds its result the next time.
    pub async fn try_store(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut last = Arc::clone(&self.tried).lock_owned().await;
        match &*last {
            Some((at, answer)) if at.elapsed() < GOOD_FOR => answer.clone(),
            Some(_) | None => {
                let service = Arc::clone(self);
                let trying = tokio::spawn(async move {
                    let answer = service.try_now().await;
                    *last = Some((Instant::now(), answer.clone()));
                    answer
                });
                let stopped = |error| unavailable(format!("the probe was stopped: {error}"));
                trying.await.unwrap_or_else(|error| Err(stopped(error)))
            }
        }
    }

    async fn try_now(&self) -> Result<(), StoreError> {
        let asking = tokio::time::timeout(PROBE_WAIT, self.ask_store());
        asking.await.unwrap_or_else(|_| Err(unavailable("the store does not answer")))?;
        let Some(control) = &self.control else { return Ok(()) };
        let probe = control.root.join(PROBE);
        let writing = tokio::task::spawn_blocking(move || write(&probe));
        let failed = |why: &str| unavailable(format!("a small write failed: {why}"));
        match tokio::time::timeout(PROBE_WAIT, writing).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(failed(&error.to_string())),
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(_) => Err(failed("the disk does not answer")),
        }
    }

    async fn ask_store(&self) -> Result<(), StoreError> {
        self.gate.store.run_ids(None, 1).await?;
        // A write to a shared store; does nothing if the store is in the data directory.
        match &self.control {
            Some(control) => self.gate.store.tell_policy(control.policy.current().digest()).await,
            None => Ok(()),
        }
    }
}

fn unavailable(why: impl Into<String>) -> StoreError {
    StoreError::Unavailable(why.into())
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
