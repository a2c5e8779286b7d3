//! The lower bound of any durable log: the bytes of the steps, appended to one plain file in the same commits.

use std::fs::File;
use std::io::{self, Write};
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::measure::rate;

/// What each commit of a step appends.
#[derive(Clone)]
pub(super) struct Step(Vec<Arc<[u8]>>);

impl Step {
    pub(super) fn of(commits: Vec<Vec<u8>>) -> Self {
        Self(commits.into_iter().map(Arc::from).collect())
    }
}

pub(super) struct Appended {
    pub(super) per_second: f64,
    pub(super) bytes_per_step: f64,
    pub(super) appends_per_step: f64,
}

/// Appends all steps to a new file. An append is durable before the next one of its client begins.
pub(super) async fn append(
    directory: &Path,
    steps: Vec<Step>,
    clients: usize,
) -> anyhow::Result<Appended> {
    let file = File::create_new(directory.join("append_only"))?;
    let count = steps.len();
    let commits = || steps.iter().flat_map(|step| &step.0);
    let bytes: usize = commits().map(|commit| commit.len()).sum();
    let (bytes_per_step, appends_per_step) =
        (average(bytes, count), average(commits().count(), count));
    let elapsed = match clients {
        // As in the store: a lone client writes for itself.
        1 => tokio::task::spawn_blocking(move || alone(file, &steps)).await??,
        clients => together(file, steps, clients).await?,
    };
    let per_second = rate(u64::try_from(count)?, elapsed);
    Ok(Appended { per_second, bytes_per_step, appends_per_step })
}

fn average(sum: usize, count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let (sum, count) = (sum as f64, count as f64);
    sum / count
}

fn alone(mut file: File, steps: &[Step]) -> io::Result<Duration> {
    let start = Instant::now();
    for commit in steps.iter().flat_map(|step| &step.0) {
        file.write_all(commit)?;
        file.sync_data()?;
    }
    Ok(start.elapsed())
}

/// Clients that wait for one writer thread.
async fn together(file: File, steps: Vec<Step>, clients: usize) -> anyhow::Result<Duration> {
    let (sender, queue) = channel();
    let writer = thread::spawn(move || write_batches(file, &queue));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for steps in steps.chunks(steps.len().div_ceil(clients).max(1)) {
        tasks.spawn(client(sender.clone(), steps.to_vec()));
    }
    drop(sender);
    while let Some(client) = tasks.join_next().await {
        client??;
    }
    let elapsed = start.elapsed();
    writer.join().map_err(|_| anyhow!("the writer panicked"))??;
    Ok(elapsed)
}

struct Append {
    bytes: Arc<[u8]>,
    done: oneshot::Sender<()>,
}

async fn client(writer: Sender<Append>, steps: Vec<Step>) -> anyhow::Result<()> {
    for bytes in steps.into_iter().flat_map(|step| step.0) {
        let (done, wait) = oneshot::channel();
        writer.send(Append { bytes, done })?;
        wait.await.context("the writer cannot write")?;
    }
    Ok(())
}

/// Writes and flushes whatever waits, as one batch (group commit), until no client is left.
fn write_batches(mut file: File, queue: &Receiver<Append>) -> io::Result<()> {
    while let Ok(first) = queue.recv() {
        let batch: Vec<Append> = iter::once(first).chain(queue.try_iter()).collect();
        let bytes: Vec<&[u8]> = batch.iter().map(|append| &*append.bytes).collect();
        file.write_all(&bytes.concat())?;
        file.sync_data()?;
        for append in batch {
            // A client that has failed waits no longer.
            let _ = append.done.send(());
        }
    }
    Ok(())
}
