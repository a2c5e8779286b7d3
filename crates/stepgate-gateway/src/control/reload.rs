//! Policies reload while steps run: a changed file, or a changed tool, is looked at within a moment. A
//! set that cannot be loaded leaves the one before in force, and the operator is told once.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::digest::Digest;
use stepgate_core::gate::Gate;
use stepgate_exec::servers::Servers;
use stepgate_policy::ToolShape;
use stepgate_policy::limits::FILE_BYTES_MAX;
use tracing::{error, info, warn};

use super::{Control, note_policy, refuse_writable_policies, shapes, warn_of};

/// What a directory and the tools looked like: enough to see that something has changed.
#[derive(Clone, PartialEq)]
pub(crate) struct Look {
    /// By their content: two edits can have the same length and time.
    files: Vec<(OsString, Option<Digest>)>,
    tools: Vec<ToolShape>,
}

impl Look {
    pub(crate) fn at(policies: &Path, servers: &Servers, turned_off: &[String]) -> Self {
        Self { files: files(policies), tools: shapes(servers, turned_off, policies) }
    }

    pub(crate) fn tools(&self) -> &[ToolShape] {
        &self.tools
    }
}

fn files(directory: &Path) -> Vec<(OsString, Option<Digest>)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name(), content_of(&entry.path()))).collect();
    files.sort_by(|one, other| one.0.cmp(&other.0));
    files
}

/// The digest of a file, also through a link, as far as it is read to load it. None for what is no file: to
/// open a pipe would wait for its other end.
fn content_of(path: &Path) -> Option<Digest> {
    path.metadata().ok().filter(Metadata::is_file)?;
    // A longer one cannot be loaded, whatever follows.
    let bytes_max = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut content).ok()?;
    Some(Digest::of_bytes(&content))
}

/// Looks again and again, until the process ends.
pub async fn keep_reloading(gate: Gate, control: Arc<Control>, pause: Duration) {
    let mut seen = control.loaded.clone();
    loop {
        tokio::time::sleep(pause).await;
        // A server that was away at the start may have come.
        if let Err(error) = control.accept_first_seen(&gate).await {
            warn!("new tool servers were not written down: {error:#}");
        }
        let look = Look::at(&control.policies, &control.servers, &control.turned_off);
        if look != seen {
            reload(&gate, &control, &look.tools).await;
            seen = look;
        }
    }
}

pub(super) async fn reload(gate: &Gate, control: &Arc<Control>, tools: &[ToolShape]) {
    if let Err(why) = refuse_writable_policies(&control.policies) {
        error!("policies not reloaded: {why:#}; the ones before stay in force");
        return;
    }
    let (loader, tools) = (Arc::clone(control), tools.to_vec());
    let loaded =
        tokio::task::spawn_blocking(move || loader.policy.reload(&loader.policies, &tools)).await;
    match loaded {
        Ok(Ok(reloaded)) if reloaded.changed => {
            let (policies, cases) = (reloaded.policies, reloaded.cases);
            info!("policies reloaded: {policies} in force, {cases} cases hold");
            warn_of(&reloaded.warnings);
            if let Err(error) = note_policy(gate, reloaded.policy_hash).await {
                warn!("the policies in force were not noted: {error:#}");
            }
        }
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            error!("policies not reloaded: the ones before stay in force\n{error}");
        }
        Err(error) => error!("policies not reloaded: {error}"),
    }
}
