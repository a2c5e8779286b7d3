//! The core actions on one directory. Start here: prepare, hold, dispatch.
//!
//! ```text
//! prepare   lock the paths, check them, read the current state   (before the call is durable)
//! dispatch  check again, act, make it durable                    (after)
//! ```
//!
//! A changing action makes its effect durable before it answers, in an order in which a crash between any
//! two sub-steps leaves either the old state or the new one (`crash.rs` names the places). A second dispatch
//! compares with the recorded state before the call. Where that cannot tell what the first dispatch did, the
//! second does nothing, and a person decides.
//!
//! Locks hold within this process. Two processes must not serve one directory, unless both are configured to
//! share it: then files in it are locked too.

mod copy;
pub(crate) mod crash;
mod create_directory;
mod delete_file;
mod earlier;
mod error;
mod identity;
mod list_files;
mod locks;
mod mark;
mod pre_state;
mod read_file;
mod recorded;
mod rename_file;
mod resolve;
pub mod rule;
mod shared;
mod sweep;
mod write_file;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use stepgate_core::action::{CoreCall, Touch};
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::{Value, canonical};
use stepgate_core::lock::locked;
use stepgate_core::path::SandboxPath;
use stepgate_core::ports::{Dispatch, Effect, Executor, Hold, Prepared};

pub use copy::{
    COPY_ENTRIES_MAX, COPY_WALKS_MAX, CopiedFile, SandboxCopy, Skipped, copy, files_in,
};
pub use earlier::{Earlier, Moved, Now, file_at, recorded_file};
pub use identity::Identity;

use error::ActionError;
use locks::{Locks, PathLock, WAIT, WAIT_AGAIN};
use recorded::{IN_DOUBT, Recorded};
use resolve::Root;
use write_file::First;

/// The limits of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Largest file that is read or written.
    pub file_bytes_max: u64,
    /// Most entries of a directory that is listed.
    pub entries_max: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self { file_bytes_max: 1024 * 1024, entries_max: 10_000 }
    }
}

/// Why a sandbox cannot be opened or swept. For the operator, never for an agent.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SandboxError {
    #[error("cannot open the sandbox directory `{}`", directory.display())]
    Open { directory: PathBuf, source: std::io::Error },
    /// The kernel is too old, or a seccomp filter hides the call.
    #[error("openat2 is not available: Linux 5.6 or later is needed, without a filter on it")]
    Unsupported,
    /// A directory beneath the root cannot be read, or a file in it not removed.
    #[error("cannot sweep the sandbox")]
    Sweep(#[source] std::io::Error),
    #[error("cannot read `/sandbox/{path}` to copy it; check its permissions")]
    Read { path: String, source: std::io::Error },
    #[error("cannot write the copy of `/sandbox/{path}`")]
    Write { path: String, source: std::io::Error },
    #[error(
        "the sandbox has more than {COPY_ENTRIES_MAX} files and directories; leave it to a backup of the file system"
    )]
    TooMany,
    #[error("cannot read or write `{}` in the sandbox", mark::NAME)]
    Mark(#[source] std::io::Error),
    #[error(
        "this sandbox is a copy of another one, as its file `{}` tells: if the other one is gone for good, \
         write `{id}` and nothing else into that file; if both go on, remove the file here, and give this \
         node a name of its own (remove `node_id` from its data directory, or change `store.node_id`)",
        mark::NAME
    )]
    Copied { id: String },
    /// The task that did the work did not finish.
    #[error("the work in the sandbox stopped")]
    Stopped,
}

/// One directory, and the actions beneath it.
pub struct Sandbox {
    executor_id: String,
    root: Arc<Root>,
    locks: Locks,
    is_shared: bool,
    /// Identity before the restore; kept until calls started before it have finished.
    earlier: Mutex<Option<Earlier>>,
}

impl Sandbox {
    /// Opens the directory. It must exist. Its own path may lead over links, which is up to the operator;
    /// the handle stays with this directory whatever happens to that path later.
    pub fn open(
        directory: &Path,
        executor_id: String,
        limits: SandboxLimits,
    ) -> Result<Self, SandboxError> {
        Ok(Self {
            executor_id,
            root: Arc::new(Root::open(directory, limits)?),
            locks: Locks::default(),
            is_shared: false,
            earlier: Mutex::new(None),
        })
    }

    /// Sets whether other processes serve the same directory.
    pub fn shared(self, is_shared: bool) -> Self {
        Self { is_shared, ..self }
    }

    /// Sets what this sandbox was before it was restored from a backup.
    pub fn put_back(self, earlier: Option<Earlier>) -> Self {
        Self { earlier: Mutex::new(earlier), ..self }
    }

    /// Updates what it was: fewer calls from before the restore are unfinished, or none.
    pub fn set_earlier(&self, earlier: Option<Earlier>) {
        *locked(&self.earlier) = earlier;
    }

    fn earlier(&self) -> Option<Earlier> {
        locked(&self.earlier).clone()
    }

    /// Locks these paths against other callers in this process, and against other nodes where the directory
    /// is shared.
    async fn keep_away(&self, paths: Vec<&SandboxPath>) -> Kept {
        let locks = self.locks.acquire(paths.clone()).await;
        let files = match self.is_shared {
            true => shared::lock(&self.root, &paths).await,
            false => Vec::new(),
        };
        Kept { _files: files, _locks: locks }
    }

    /// Removes the temporary files that a crash left behind, and returns how many there were.
    ///
    /// For recovery, before any step is served: otherwise it would remove the file of a write in progress.
    /// In a shared directory it removes only files that are too old to belong to one.
    pub async fn sweep(&self) -> Result<u64, SandboxError> {
        let age_min = if self.is_shared { sweep::SHARED_AGE_MIN } else { Duration::ZERO };
        let swept = self.blocking(move |root| sweep::sweep(root, age_min)).await;
        swept.unwrap_or(Err(SandboxError::Stopped))
    }

    /// A mark that identifies this directory whatever name nodes give it; created on first use. Nodes that
    /// share the directory find the same mark.
    pub async fn mark(&self) -> Result<String, SandboxError> {
        let is_shared = self.is_shared;
        let marked = self.blocking(move |root| mark::mark(root, is_shared)).await;
        marked.unwrap_or(Err(SandboxError::Stopped))
    }

    /// Calls the hook at every crash point from now on; `None` removes it.
    #[cfg(feature = "crashpoints")]
    pub fn set_crash_hook(&self, hook: Option<crash::CrashHook>) {
        self.root.crash_points.set(hook);
    }

    /// Whether a call takes less time than switching to a blocking thread.
    fn is_short(&self, call: &CoreCall) -> bool {
        if let CoreCall::ReadFile { path } = call {
            return read_file::is_short(&self.root, path);
        }
        call.touch() == Touch::Nothing
    }

    /// Runs file work on a blocking thread, so that it never blocks a thread that serves other tasks.
    /// `None`: the work did not finish.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root) -> T + Send + 'static,
    ) -> Option<T> {
        let root = Arc::clone(&self.root);
        tokio::task::spawn_blocking(move || work(&root)).await.ok()
    }
}

#[async_trait]
impl Executor for Sandbox {
    fn id(&self) -> &str {
        &self.executor_id
    }

    fn answers_for(&self, executor_id: &str) -> bool {
        executor_id == self.executor_id
            || self
                .earlier()
                .is_some_and(|earlier| earlier.executor_ids.iter().any(|id| id == executor_id))
    }

    async fn prepare(&self, call: &CoreCall) -> Result<Prepared, &'static str> {
        let call = call.clone();
        match call.touch() {
            Touch::Nothing => Ok(Prepared { pre_state: None, hold: Box::new(()) }),
            // Reads names and attributes, no content: faster than switching to another thread.
            Touch::Reads => {
                let pre_state = pre_state::read(&self.root, &call)?;
                Ok(Prepared { pre_state, hold: Box::new(()) })
            }
            Touch::Writes => {
                // INVARIANT: the lock is taken before the state is read, so that the state is still the same
                // when the call acts.
                let kept = tokio::time::timeout(WAIT, self.keep_away(call.paths())).await;
                let Ok(kept) = kept else {
                    let pre_state = Some(pre_state::of_failure(ExecutionFailure::Unavailable));
                    return Ok(Prepared { pre_state, hold: Box::new(()) });
                };
                let look = self.blocking(move |root| pre_state::read(root, &call)).await;
                let pre_state = look.unwrap_or(Err(rule::NO_ANSWER))?;
                Ok(Prepared { pre_state, hold: Box::new(kept) })
            }
        }
    }

    fn is_as_asked(&self, asked: &Value, now: &Value) -> bool {
        match (recorded_file(asked), recorded_file(now)) {
            (Some(asked), Some(now)) => asked.is_untouched(&now),
            // The file was created after the question.
            (None, Some(_)) => false,
            // There is no file to act on; the dispatch will report that.
            (_, None) => true,
        }
    }

    async fn hold(&self, call: &CoreCall) -> Option<Hold> {
        match call.touch() {
            Touch::Nothing | Touch::Reads => Some(Box::new(())),
            Touch::Writes => {
                let kept = tokio::time::timeout(WAIT_AGAIN, self.keep_away(call.paths())).await;
                Some(Box::new(kept.ok()?))
            }
        }
    }

    async fn dispatch(
        &self,
        call: &CoreCall,
        pre_state: Option<&Value>,
        dispatch: Dispatch,
    ) -> Effect {
        // The earlier identity matters only for the second dispatch of a call from before the restore.
        let earlier = match dispatch {
            Dispatch::First => None,
            Dispatch::Again => self.earlier(),
        };
        let done = if self.is_short(call) {
            Some(act(&self.root, call, pre_state, dispatch, earlier))
        } else {
            let (call, pre_state) = (call.clone(), pre_state.cloned());
            self.blocking(move |root| act(root, &call, pre_state.as_ref(), dispatch, earlier)).await
        };
        match done {
            Some(Ok(result)) => Effect::Done(result),
            Some(Err(ActionError::Refused(rule))) => Effect::Refused(rule),
            Some(Err(ActionError::Failed(failure))) => Effect::Failed(failure.into()),
            Some(Err(ActionError::Unknown(why))) => Effect::Unknown(why),
            None => Effect::Unknown("the sandbox stopped while it acted".into()),
        }
    }
}

/// Locked paths. The files are released first: fields drop in declaration order.
struct Kept {
    _files: Vec<OwnedFd>,
    _locks: Vec<PathLock>,
}

/// Runs the call; the result as canonical JSON, where the action has one.
fn act(
    root: &Root,
    call: &CoreCall,
    pre_state: Option<&Value>,
    dispatch: Dispatch,
    earlier: Option<Earlier>,
) -> Result<Option<String>, ActionError> {
    rule::judge_names(call).map_err(ActionError::Refused)?;
    // If the state before the call could not be read, the action fails: without that state, a second
    // dispatch could not tell what the first one did.
    if let Some(failure) = pre_state::failure(pre_state) {
        return Err(ActionError::Failed(failure));
    }
    let foregone = pre_state::foregone(call, pre_state);
    if let (Dispatch::Again, Some(failure)) = (dispatch, foregone) {
        return Err(ActionError::Failed(failure));
    }
    let found = |key| {
        let was = pre_state::recorded_file(pre_state, key)?;
        Some(match &earlier {
            Some(earlier) => earlier.now(was),
            None => Recorded::File(was),
        })
    };
    // A rename or a deletion acts on the recorded file or on none.
    let recorded = |key| match dispatch {
        Dispatch::First => None,
        Dispatch::Again => Some(found(key).unwrap_or(Recorded::Unknown(IN_DOUBT))),
    };
    match call {
        CoreCall::Think => {}
        CoreCall::Finish { response } => {
            return Ok(Some(canonical::text_of(&json!({ "final_response": response }))));
        }
        CoreCall::ReadFile { path } => return read_file::read_file(root, path).map(Some),
        CoreCall::ListFiles { path } => return list_files::list_files(root, path).map(Some),
        CoreCall::WriteFile { path, content } => {
            let first = (dispatch == Dispatch::Again).then(|| First {
                before: pre_state::recorded_content(pre_state),
                recorded: found(None).filter(Recorded::is_known),
                was_put_back: pre_state::recorded_file(pre_state, None)
                    .zip(earlier.as_ref())
                    .is_some_and(|(was, earlier)| earlier.became(&was).is_some()),
            });
            write_file::write_file(root, path, content, first)?;
        }
        CoreCall::CreateDirectory { path } => create_directory::create_directory(root, path)?,
        CoreCall::DeleteFile { path } => delete_file::delete_file(root, path, recorded(None))?,
        CoreCall::RenameFile { source, destination } => {
            rename_file::rename_file(root, source, destination, recorded(Some("source")))?;
        }
    }
    Ok(None)
}
