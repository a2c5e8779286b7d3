//! Reloads the policies while steps run: a poll soon notices a changed file or a changed tool. A set that cannot
//! be loaded leaves the previous one in force, and the operator is told once.

use std::ffi::OsString;
use std::fs::{DirEntry, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
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
use crate::panics;

/// How long changed files must stay the same before they are loaded. A program that saves a file empties it first,
/// and the set without the rest of that file could permit what the whole set forbids.
const SETTLED_AFTER: Duration = Duration::from_millis(200);

/// Snapshot of the policy files and the tools, to detect a change.
#[derive(Clone, PartialEq)]
pub(crate) struct Look {
    files: Vec<FileLook>,
    directory_mode: Option<u32>,
    pub(crate) tools: Vec<ToolShape>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileLook {
    name: OsString,
    /// Two edits can have the same length and time.
    content: Option<Digest>,
    /// When content or permissions were last changed, in seconds and nanoseconds: a file can have the same content
    /// again after another one.
    changed_at: Option<(i64, i64)>,
}

impl Look {
    pub(crate) fn at(policies: &Path, servers: &Servers, turned_off: &[String]) -> Self {
        Self {
            files: files(policies),
            directory_mode: mode_of(policies),
            tools: shapes(servers, turned_off, policies),
        }
    }
}

fn files(directory: &Path) -> Vec<FileLook> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let file = |entry: DirEntry| {
        let path = entry.path();
        let changed_at = path.metadata().ok().map(|it| (it.ctime(), it.ctime_nsec()));
        FileLook { name: entry.file_name(), content: content_of(&path), changed_at }
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort();
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
        let look = control.look();
        if look != seen && reload(&gate, &control, &look).await {
            seen = look;
        }
        control.look_at_shadow(&gate).await;
    }
}

/// Loads the policies that were looked at. Returns false if they are being changed: then those before stay in force
/// until the next look.
pub(super) async fn reload(gate: &Gate, control: &Arc<Control>, look: &Look) -> bool {
    tokio::time::sleep(SETTLED_AFTER).await;
    if control.look() != *look {
        return false;
    }
    let loaded = match refuse_writable_policies(&control.policies) {
        Ok(()) => load(gate, control, look).await,
        Err(why) => Err(format!("{why:#}")),
    };
    if let Err(why) = &loaded {
        error!("policies not reloaded: {why}\nthe ones before stay in force");
    }
    let is_settled = loaded != Ok(false);
    if is_settled {
        *lock::locked(&control.policy_trouble) = loaded.err();
    }
    is_settled
}

/// Loads the policies. False if a file has changed meanwhile. The error says why those before stay in force.
async fn load(gate: &Gate, control: &Arc<Control>, look: &Look) -> Result<bool, String> {
    let (loader, look) = (Arc::clone(control), look.clone());
    let facts = gate.facts.names(&gate.groups);
    let load = move || {
        let nameable = Nameable { tools: &look.tools, facts: &facts };
        let is_unchanged = || files(&loader.policies) == look.files;
        loader.policy.reload(&loader.policies, nameable, is_unchanged)
    };
    let reloaded = panics::contained_blocking(load).await.map_err(|error| error.to_string())?;
    let Some(reloaded) = reloaded.map_err(|error| error.to_string())? else { return Ok(false) };
    if reloaded.changed {
        let (policies, cases) = (reloaded.policies, reloaded.cases);
        info!("policies reloaded: {policies} in force, {cases} cases hold");
        warn_of(&reloaded.warnings);
        *lock::locked(&control.policy_since) = gate.world.now();
        if let Err(error) = note_policy(gate, reloaded.policy_hash).await {
            warn!("the policies in force were not noted: {error:#}");
        }
    }
    Ok(true)
}
