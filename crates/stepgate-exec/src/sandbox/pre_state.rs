//! The state at a call's paths before it acts: checked for every call, recorded for a changing one.
//!
//! | action | recorded |
//! |---|---|
//! | WRITE_FILE | `{exists, sha256}`, with the identity of a file; no digest: no file, too large or unreadable |
//! | DELETE_FILE | `{exists}` with the identity of a file |
//! | RENAME_FILE | `{source: {exists}, destination: {exists}}`, the source with the identity of a file |
//! | CREATE_DIRECTORY | `{exists}` |
//! | any of these, where the state could not be read | `{failure}`: its code, which is then the effect |
//!
//! An identity is `device`, `inode`, `born`, `changed`, `modified` and sometimes `stamped`; device and inode
//! are null where there is no file. Journals of earlier builds have only the first two, and none of them for
//! a file that is written.

use serde_json::json;
use stepgate_core::action::CoreCall;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::Value;
use stepgate_core::path::SandboxPath;

use super::error::ActionError;
use super::identity::Identity;
use super::read_file::content_of;
use super::resolve::{LOOK, Root, Seen};
use super::rule;

/// Checks the call's paths and reads what a second dispatch will need; the error is the rule that refuses
/// the call. A missing file is no reason to refuse: the dispatch will report it.
pub(super) fn read(root: &Root, call: &CoreCall) -> Result<Option<Value>, &'static str> {
    rule::judge_names(call)?;
    match look(root, call) {
        Ok(pre_state) => Ok(pre_state),
        Err(ActionError::Refused(rule)) => Err(rule),
        Err(ActionError::Failed(failure)) => Ok(Some(of_failure(failure))),
        Err(ActionError::Unknown(_)) => Err(rule::NO_ANSWER),
    }
}

/// The recorded state of a call that must not act, because its state could not be read.
pub(super) fn of_failure(failure: ExecutionFailure) -> Value {
    json!({ "failure": failure.code() })
}

/// The failure to read the state before the call, where it failed.
pub(super) fn failure(pre_state: Option<&Value>) -> Option<ExecutionFailure> {
    ExecutionFailure::parse(pre_state?.get("failure")?.as_str()?)
}

/// The file that was there before the call, if there was one; under `key`, or at the top.
pub(super) fn recorded_file(pre_state: Option<&Value>, key: Option<&str>) -> Option<Identity> {
    let place = match key {
        Some(key) => pre_state?.get(key)?,
        None => pre_state?,
    };
    let text = |name: &str| Some(place.get(name)?.as_str()?.to_owned());
    Some(Identity {
        device: text("device")?,
        inode: text("inode")?,
        born: text("born"),
        changed: text("changed"),
        modified: text("modified"),
        stamped: text("stamped"),
    })
}

/// The failure that the first dispatch must have had, where there was no file to delete or to rename before
/// the call. A file that is there now was created after the decision.
pub(super) fn foregone(call: &CoreCall, pre_state: Option<&Value>) -> Option<ExecutionFailure> {
    let place = match call {
        CoreCall::DeleteFile { .. } => pre_state?,
        CoreCall::RenameFile { .. } => pre_state?.get("source")?,
        CoreCall::Think
        | CoreCall::Finish { .. }
        | CoreCall::ReadFile { .. }
        | CoreCall::ListFiles { .. }
        | CoreCall::WriteFile { .. }
        | CoreCall::CreateDirectory { .. } => return None,
    };
    match (place.get("exists")?.as_bool()?, place.get("inode")?) {
        (false, _) => Some(ExecutionFailure::FileNotFound),
        (true, Value::Null) => Some(ExecutionFailure::NotAFile),
        (true, _) => None,
    }
}

/// What was at the path of a file to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// A file with this content.
    Content(Digest),
    /// An unreadable file, or something that is not a file.
    Something,
    /// It was not recorded.
    Unknown,
}

/// What was at the path of a file to be written, before the call.
pub(super) fn recorded_content(pre_state: Option<&Value>) -> Before {
    let exists = pre_state.and_then(|seen| seen.get("exists")?.as_bool());
    let digest = pre_state.and_then(|seen| seen.get("sha256")?.as_str()?.parse().ok());
    match (exists, digest) {
        (Some(true), Some(digest)) => Before::Content(digest),
        (Some(true), None) => Before::Something,
        (Some(false), _) => Before::Nothing,
        (None, _) => Before::Unknown,
    }
}

fn look(root: &Root, call: &CoreCall) -> Result<Option<Value>, ActionError> {
    Ok(match call {
        CoreCall::Think | CoreCall::Finish { .. } => None,
        CoreCall::ReadFile { path } | CoreCall::ListFiles { path } => {
            // If the state cannot be read, the dispatch of the read will report why.
            match seen(root, path) {
                Err(ActionError::Refused(rule)) => return Err(ActionError::Refused(rule)),
                Ok(_) | Err(ActionError::Failed(_) | ActionError::Unknown(_)) => None,
            }
        }
        CoreCall::WriteFile { path, .. } => Some(match seen(root, path)? {
            Seen::Nothing => json!({ "exists": false, "sha256": null }),
            Seen::Directory => json!({ "exists": true, "sha256": null }),
            Seen::File(stat) => {
                let place = root.place(path, LOOK, ExecutionFailure::FileNotFound)?;
                let file = with(json!(Identity::to_replace(&stat)), "exists", json!(true));
                with(file, "sha256", json!(content_of(root, &place)?))
            }
        }),
        CoreCall::CreateDirectory { path } => Some(exists(&seen(root, path)?)),
        CoreCall::DeleteFile { path } => Some(identity(&seen(root, path)?)),
        CoreCall::RenameFile { source, destination } => Some(json!({
            "source": identity(&seen(root, source)?),
            "destination": exists(&seen(root, destination)?),
        })),
    })
}

/// What is at a path, after the rules were checked.
fn seen(root: &Root, path: &SandboxPath) -> Result<Seen, ActionError> {
    if path.is_root() {
        return Ok(Seen::Directory);
    }
    let place = root.place(path, LOOK, ExecutionFailure::PathNotFound);
    match place.and_then(|place| place.look()) {
        Err(stop) if stop.is_absence() => Ok(Seen::Nothing),
        seen => seen,
    }
}

fn exists(seen: &Seen) -> Value {
    json!({ "exists": !matches!(seen, Seen::Nothing) })
}

fn identity(seen: &Seen) -> Value {
    let file = match seen {
        Seen::Nothing | Seen::Directory => json!({ "device": null, "inode": null }),
        Seen::File(stat) => json!(Identity::to_record(stat)),
    };
    with(file, "exists", json!(!matches!(seen, Seen::Nothing)))
}

fn with(mut recorded: Value, name: &str, field: Value) -> Value {
    if let Value::Object(fields) = &mut recorded {
        fields.insert(name.to_owned(), field);
    }
    recorded
}
