//! What stands at a call's paths before the act: judged for every call, recorded for a changing one.
//!
//! | action | recorded |
//! |---|---|
//! | WRITE_FILE | `{exists, sha256}`; the digest is null for what is no file, too large or unreadable |
//! | DELETE_FILE | `{exists, device, inode}`; both null for what is no file |
//! | RENAME_FILE | `{source: {exists, device, inode}, destination: {exists}}` |
//! | CREATE_DIRECTORY | `{exists}` |
//! | any of these, where nobody could look | `{failure}`: its code, which is then the effect |

use rustix::fs::OFlags;
use serde_json::json;
use stepgate_core::action::CoreCall;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::Value;
use stepgate_core::path::SandboxPath;

use super::read_file::read_up_to;
use super::resolve::{Identity, Root, Seen};
use super::rule;
use super::stop::Stop;

/// Judges the call's paths and reads what a second dispatch will need; the error is the rule that
/// says no. That nothing stands there is no reason to refuse: the act will say so.
pub(super) fn read(root: &Root, call: &CoreCall) -> Result<Option<Value>, &'static str> {
    rule::judge_names(call)?;
    match look(root, call) {
        Ok(pre_state) => Ok(pre_state),
        Err(Stop::Refused(rule)) => Err(rule),
        Err(Stop::Failed(failure)) => Ok(Some(of_failure(failure))),
        Err(Stop::Unknown(_)) => Err(rule::NO_ANSWER),
    }
}

/// The state before an act that must not happen, because nobody could look.
pub(super) fn of_failure(failure: ExecutionFailure) -> Value {
    json!({ "failure": failure.code() })
}

/// The failure of the look before the act, where it failed.
pub(super) fn failure(pre_state: Option<&Value>) -> Option<ExecutionFailure> {
    ExecutionFailure::parse(pre_state?.get("failure")?.as_str()?)
}

/// Which file stood there before the act, where one did; under `key`, or at the top.
pub(super) fn recorded_file(pre_state: Option<&Value>, key: Option<&str>) -> Option<Identity> {
    let place = match key {
        Some(key) => pre_state?.get(key)?,
        None => pre_state?,
    };
    Some(Identity {
        device: place.get("device")?.as_str()?.to_owned(),
        inode: place.get("inode")?.as_str()?.to_owned(),
    })
}

/// What a file to be written held before the act: the digest, none where there was no file. None in all
/// where nobody could tell.
pub(super) fn recorded_digest(pre_state: Option<&Value>) -> Option<Option<Digest>> {
    let exists = pre_state?.get("exists")?.as_bool()?;
    match pre_state?.get("sha256")?.as_str() {
        Some(digest) => Some(Some(digest.parse().ok()?)),
        None => (!exists).then_some(None),
    }
}

fn look(root: &Root, call: &CoreCall) -> Result<Option<Value>, Stop> {
    Ok(match call {
        CoreCall::Think | CoreCall::Finish { .. } => None,
        CoreCall::ReadFile { path } | CoreCall::ListFiles { path } => {
            // A read that cannot look will say why when it acts.
            match seen(root, path) {
                Err(Stop::Refused(rule)) => return Err(Stop::Refused(rule)),
                Ok(_) | Err(Stop::Failed(_) | Stop::Unknown(_)) => None,
            }
        }
        CoreCall::WriteFile { path, .. } => Some(match seen(root, path)? {
            Seen::Nothing => json!({ "exists": false, "sha256": null }),
            Seen::Directory => json!({ "exists": true, "sha256": null }),
            Seen::File(_) => json!({ "exists": true, "sha256": digest(root, path)? }),
        }),
        CoreCall::CreateDirectory { path } => Some(exists(&seen(root, path)?)),
        CoreCall::DeleteFile { path } => Some(identity(&seen(root, path)?)),
        CoreCall::RenameFile { source, destination } => Some(json!({
            "source": identity(&seen(root, source)?),
            "destination": exists(&seen(root, destination)?),
        })),
    })
}

fn seen(root: &Root, path: &SandboxPath) -> Result<Seen, Stop> {
    if path.is_root() {
        return Ok(Seen::Directory);
    }
    let found =
        root.place_to_look(path, ExecutionFailure::PathNotFound).and_then(|place| place.look());
    match found {
        Err(stop) if stop.is_absence() => Ok(Seen::Nothing),
        other => other,
    }
}

fn exists(seen: &Seen) -> Value {
    json!({ "exists": *seen != Seen::Nothing })
}

fn identity(seen: &Seen) -> Value {
    match seen {
        Seen::Nothing => json!({ "exists": false, "device": null, "inode": null }),
        Seen::Directory => json!({ "exists": true, "device": null, "inode": null }),
        Seen::File(file) => json!({ "exists": true, "device": file.device, "inode": file.inode }),
    }
}

/// The file's digest, for the record. The comparison after a crash needs only the new content, so a
/// file that cannot be read, or is larger than any that may be, goes without.
fn digest(root: &Root, path: &SandboxPath) -> Result<Option<Digest>, Stop> {
    let place = root.place_to_look(path, ExecutionFailure::FileNotFound)?;
    let read = place
        .open_file(OFlags::RDONLY)
        .and_then(|(file, _)| read_up_to(file, root.limits.file_bytes_max));
    match read {
        Ok(bytes) => Ok(Some(Digest::of_bytes(&bytes))),
        Err(Stop::Failed(_)) => Ok(None),
        Err(stop @ (Stop::Refused(_) | Stop::Unknown(_))) => Err(stop),
    }
}
