//! Reloads the policies while steps run: a poll soon notices a changed file or a changed tool. A set that cannot
//! be loaded leaves the previous one in force, and the operator is told once.

use std::ffi::OsString;
use std::fs::{DirEntry, File, Metadata};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::digest::Digest;
use stepgate_core::gate::Gate;
use stepgate_core::lock;
use stepgate_exec::servers::Servers;
use stepgate_policy::limits::FILE_BYTES_MAX;
use stepgate_policy::{Nameable, ToolShape};
use tracing::{error, info, warn};

use super::{Control, mode_of, note_policy, refuse_writable_policies, shapes, warn_of};
use crate::panics::{self, Panicked};

/// Snapshot of the policy files and the tools, to detect a change.
#[derive(Clone, PartialEq)]
pub(crate) struct Look {
    /// Compared by content: two edits can have the same length and time. And by permissions: files that every user
    /// can write are refused.
    files: Vec<(OsString, Option<Digest>, Option<u32>)>,
    directory_mode: Option<u32>,
    tools: Vec<ToolShape>,
}

impl Look {
    pub(crate) fn at(policies: &Path, servers: &Servers, turned_off: &[String]) -> Self {
        Self {
            files: files(policies),
            directory_mode: mode_of(policies),
            tools: shapes(servers, turned_off, policies),
        }
    }

    pub(crate) fn tools(&self) -> &[ToolShape] {
        &self.tools
    }
}

fn files(directory: &Path) -> Vec<(OsString, Option<Digest>, Option<u32>)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let file = |entry: DirEntry| {
        let path = entry.path();
        (entry.file_name(), content_of(&path), mode_of(&path))
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort_by(|one, other| one.0.cmp(&other.0));
    files
}

/// The digest of a file, following links, up to the size that loading reads. None for anything but a file: opening
/// a pipe would block until its other end opens.
fn content_of(path: &Path) -> Option<Digest> {
    path.metadata().ok().filter(Metadata::is_file)?;
    // Loading refuses a longer file, so one byte past the limit is enough.
    let bytes_max = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut content).ok()?;
    Some(Digest::of_bytes(&content))
}

/// Polls for changes until the process ends.
pub async fn keep_reloading(gate: Gate, control: Arc<Control>, pause: Duration) {
    let mut seen = control.loaded.clone();
    loop {
        tokio::time::sleep(pause).await;
        // A server that was unreachable at the start may be up now.
        if let Err(error) = control.accept_first_seen(&gate).await {
            warn!("new tool servers were not written down: {error:#}");
        }
        let look = Look::at(&control.policies, &control.servers, &control.turned_off);
        if look != seen {
            reload(&gate, &control, &look.tools).await;
            seen = look;
        }
        control.look_at_shadow(&gate).await;
    }
}

pub(super) async fn reload(gate: &Gate, control: &Arc<Control>, tools: &[ToolShape]) {
    let trouble = match refuse_writable_policies(&control.policies) {
        Ok(()) => load(gate, control, tools).await.err(),
        Err(why) => Some(format!("{why:#}")),
    };
    if let Some(why) = &trouble {
        error!("policies not reloaded: {why}\nthe ones before stay in force");
    }
    *lock::locked(&control.policy_trouble) = trouble;
}

/// Loads the policies. The error says why those before stay in force.
async fn load(gate: &Gate, control: &Arc<Control>, tools: &[ToolShape]) -> Result<(), String> {
    let (loader, tools) = (Arc::clone(control), tools.to_vec());
    let facts = gate.facts.names(&gate.groups);
    let load = move || {
        panics::contained_now(|| {
            loader.policy.reload(&loader.policies, Nameable { tools: &tools, facts: &facts })
        })
    };
    match tokio::task::spawn_blocking(load).await {
        Ok(Ok(Ok(reloaded))) if reloaded.changed => {
            let (policies, cases) = (reloaded.policies, reloaded.cases);
            info!("policies reloaded: {policies} in force, {cases} cases hold");
            warn_of(&reloaded.warnings);
            *lock::locked(&control.policy_since) = gate.world.now();
            if let Err(error) = note_policy(gate, reloaded.policy_hash).await {
                warn!("the policies in force were not noted: {error:#}");
            }
            Ok(())
        }
        Ok(Ok(Ok(_))) => Ok(()),
        Ok(Ok(Err(error))) => Err(error.to_string()),
        Ok(Err(Panicked)) | Err(_) => Err("to load them panicked".to_owned()),
    }
}
