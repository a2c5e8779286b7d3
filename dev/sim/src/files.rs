//! The sandbox: files in memory that all nodes share, with the rules of the real one for a second dispatch.
//!
//! A path is locked from the look before the act until the effect is recorded, for all nodes: as a lock on
//! a shared file, it ends with the process that holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use stepgate_core::action::{CoreCall, Touch};
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::{Value, canonical};
use stepgate_core::ports::{Dispatch, Effect, Executor, Hold, Prepared};

use crate::environment::Environment;
use crate::ledger::Ledger;
use crate::locked;
use crate::processes::{Processes, Seat};
use crate::sabotage::Sabotage;
use crate::schedule::Instant;
use crate::signal::Bell;
use crate::weather::{MS, SECOND};

/// Why only a person can go on with a call.
pub(crate) const IN_DOUBT: &str = "the files do not tell whether the call was done";
/// How long a new call waits for its paths.
const WAIT: Instant = 30 * SECOND;
/// How long recovery waits for them.
const WAIT_AGAIN: Instant = 3 * SECOND;

/// The files.
pub(crate) struct Files {
    env: Arc<Environment>,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
    unlocked: Bell,
}

impl Files {
    pub(crate) fn new(env: Arc<Environment>, ledger: Arc<Ledger>) -> Self {
        Self { env, ledger, state: Mutex::default(), unlocked: Bell::default() }
    }
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, File>,
    inodes: u64,
    locks: BTreeSet<String>,
}

#[derive(Clone)]
struct File {
    inode: u64,
    content: String,
}

impl State {
    fn put(&mut self, path: &str, content: &str) {
        self.inodes += 1;
        let file = File { inode: self.inodes, content: content.to_owned() };
        self.files.insert(path.to_owned(), file);
    }

    fn inode(&self, path: &str) -> Option<u64> {
        self.files.get(path).map(|file| file.inode)
    }
}

/// The sandbox as one node has it.
pub(crate) struct NodeFiles {
    pub(crate) files: Arc<Files>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) seat: Seat,
}

/// Paths that only this call changes.
struct PathLocks {
    files: Arc<Files>,
    paths: Vec<String>,
}

impl Drop for PathLocks {
    fn drop(&mut self) {
        let mut state = locked(&self.files.state);
        for path in &self.paths {
            state.locks.remove(path);
        }
        drop(state);
        self.files.unlocked.ring();
    }
}

impl NodeFiles {
    async fn lock(&self, call: &CoreCall, until: Instant) -> Option<PathLocks> {
        let mut held = PathLocks { files: Arc::clone(&self.files), paths: Vec::new() };
        if self.files.env.is_sabotaged(Sabotage::IgnorePathLocks) {
            return Some(held);
        }
        let mut paths: Vec<String> =
            call.paths().iter().map(|path| path.as_str().to_owned()).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            loop {
                let heard = self.files.unlocked.times();
                if locked(&self.files.state).locks.insert(path.clone()) {
                    break;
                }
                let rung = self.files.unlocked.rung_since(heard);
                self.files.env.schedule.within(until, rung).await?;
            }
            held.paths.push(path);
        }
        Some(held)
    }

    fn look(&self, call: &CoreCall) -> Option<Value> {
        let state = locked(&self.files.state);
        let identity = |path: &str| json!({ "inode": state.inode(path) });
        match call {
            CoreCall::Think
            | CoreCall::Finish { .. }
            | CoreCall::ReadFile { .. }
            | CoreCall::ListFiles { .. } => None,
            CoreCall::WriteFile { path, .. } => {
                let file = state.files.get(path.as_str());
                let digest = file.map(|file| Digest::of_bytes(file.content.as_bytes()));
                let inode = file.map(|file| file.inode);
                Some(json!({ "exists": file.is_some(), "inode": inode, "sha256": digest }))
            }
            CoreCall::CreateDirectory { .. } => Some(json!({ "exists": false })),
            CoreCall::DeleteFile { path } => Some(identity(path.as_str())),
            CoreCall::RenameFile { source, .. } => {
                Some(json!({ "source": identity(source.as_str()) }))
            }
        }
    }

    /// Acts, at once and whole.
    #[expect(clippy::too_many_lines, reason = "a table of actions")]
    fn act(&self, call: &CoreCall, pre_state: Option<&Value>, dispatch: Dispatch) -> Effect {
        let again =
            dispatch == Dispatch::Again && !self.files.env.is_sabotaged(Sabotage::ForgetPreState);
        let recorded = |key: Option<&str>| {
            let place = match key {
                Some(key) => pre_state?.get(key)?,
                None => pre_state?,
            };
            place.get("inode")?.as_u64().filter(|_| again)
        };
        let failed = |failure: ExecutionFailure| Effect::Failed(failure.into());
        if again && was_missing(call, pre_state) {
            return failed(ExecutionFailure::FileNotFound);
        }
        let mut state = locked(&self.files.state);
        let acted = match call {
            CoreCall::Think | CoreCall::Finish { .. } | CoreCall::CreateDirectory { .. } => {
                return Effect::Done(None);
            }
            CoreCall::ReadFile { path } => {
                return match state.files.get(path.as_str()) {
                    None => failed(ExecutionFailure::FileNotFound),
                    Some(file) => {
                        Effect::Done(Some(canonical::text_of(&json!({ "content": file.content }))))
                    }
                };
            }
            CoreCall::ListFiles { .. } => {
                let names: Vec<&String> = state.files.keys().collect();
                return Effect::Done(Some(canonical::text_of(&json!({ "files": names }))));
            }
            CoreCall::WriteFile { path, content } => {
                let before = pre_state.and_then(|seen| seen.get("sha256")?.as_str());
                match state.files.get(path.as_str()) {
                    Some(there) if again => {
                        let digest = Digest::of_bytes(there.content.as_bytes()).to_string();
                        if there.content == *content || before != Some(digest.as_str()) {
                            return Effect::Done(None);
                        }
                        // The same content, written by another run.
                        if recorded(None) != Some(there.inode) {
                            return Effect::Unknown(IN_DOUBT.into());
                        }
                    }
                    None if again && before.is_some() => return Effect::Unknown(IN_DOUBT.into()),
                    Some(_) | None => {}
                }
                state.put(path.as_str(), content);
                Ok(())
            }
            CoreCall::DeleteFile { path } => match (recorded(None), state.inode(path.as_str())) {
                (Some(recorded), there) if there != Some(recorded) => return Effect::Done(None),
                (_, None) => Err(ExecutionFailure::FileNotFound),
                (_, Some(_)) => {
                    state.files.remove(path.as_str());
                    Ok(())
                }
            },
            CoreCall::RenameFile { source, destination } => {
                let (from, to) = (source.as_str(), destination.as_str());
                let recorded = recorded(Some("source"));
                if recorded.is_some() && state.inode(from) != recorded {
                    return match state.inode(to) == recorded {
                        true => Effect::Done(None),
                        false => Effect::Unknown(IN_DOUBT.into()),
                    };
                }
                match (state.files.get(from).cloned(), state.files.contains_key(to)) {
                    (None, _) => Err(ExecutionFailure::FileNotFound),
                    (Some(_), true) => Err(ExecutionFailure::AlreadyExists),
                    (Some(file), false) => {
                        state.files.remove(from);
                        state.files.insert(to.to_owned(), file);
                        Ok(())
                    }
                }
            }
        };
        drop(state);
        match acted {
            Err(failure) => failed(failure),
            Ok(()) => {
                self.files.ledger.sandbox_acted(self.seat.node, call);
                Effect::Done(None)
            }
        }
    }
}

/// Whether there was nothing to delete or to rename before the act.
fn was_missing(call: &CoreCall, pre_state: Option<&Value>) -> bool {
    let place = match call {
        CoreCall::DeleteFile { .. } => pre_state,
        CoreCall::RenameFile { .. } => pre_state.and_then(|seen| seen.get("source")),
        CoreCall::Think
        | CoreCall::Finish { .. }
        | CoreCall::ReadFile { .. }
        | CoreCall::ListFiles { .. }
        | CoreCall::WriteFile { .. }
        | CoreCall::CreateDirectory { .. } => None,
    };
    place.is_some_and(|place| place.get("inode").is_some_and(Value::is_null))
}

#[async_trait]
impl Executor for NodeFiles {
    fn id(&self) -> &'static str {
        "sandbox"
    }

    async fn prepare(&self, call: &CoreCall) -> Result<Prepared, &'static str> {
        match call.touch() {
            Touch::Nothing | Touch::Reads => Ok(Prepared { pre_state: None, hold: Box::new(()) }),
            Touch::Writes => match self.lock(call, self.files.env.now() + WAIT).await {
                Some(locks) => Ok(Prepared { pre_state: self.look(call), hold: Box::new(locks) }),
                None => {
                    let code = ExecutionFailure::Unavailable.code();
                    let pre_state = Some(json!({ "failure": code }));
                    Ok(Prepared { pre_state, hold: Box::new(()) })
                }
            },
        }
    }

    async fn hold(&self, call: &CoreCall) -> Option<Hold> {
        match call.touch() {
            Touch::Nothing | Touch::Reads => Some(Box::new(())),
            Touch::Writes => {
                Some(Box::new(self.lock(call, self.files.env.now() + WAIT_AGAIN).await?))
            }
        }
    }

    async fn dispatch(
        &self,
        call: &CoreCall,
        pre_state: Option<&Value>,
        dispatch: Dispatch,
    ) -> Effect {
        let failure = pre_state.and_then(|seen| seen.get("failure")?.as_str());
        if let Some(failure) = failure.and_then(ExecutionFailure::parse) {
            return Effect::Failed(failure.into());
        }
        let stops = self.files.env.is_stormy()
            && self.files.env.happens(self.files.env.weather.sandbox_stops);
        self.strike("sandbox").await;
        if stops && self.files.env.happens(500) {
            return Effect::Unknown("stopped before it acted".into());
        }
        let effect = self.act(call, pre_state, dispatch);
        self.strike("sandbox").await;
        match stops {
            true => Effect::Unknown("stopped after it acted".into()),
            false => effect,
        }
    }
}

impl NodeFiles {
    /// An act takes its time, and in bad weather the node dies or stops in it.
    async fn strike(&self, what: &'static str) {
        use crate::weather::Fate;
        match self.files.env.fate() {
            Fate::CrashBefore | Fate::CrashAfter => {
                self.processes.crash(self.seat, what);
                std::future::pending::<()>().await;
            }
            Fate::PauseBefore | Fate::PauseAfter => self.processes.pause(self.seat, what),
            Fate::Calm
            | Fate::Refused
            | Fate::LostBefore
            | Fate::LostAfter
            | Fate::Late
            | Fate::Broken => {}
        }
        let time = self.files.env.between(1, 10 * MS);
        self.files.env.sleep(time).await;
    }
}
