//! DELETE_FILE: deletes a regular file. A second dispatch deletes the file that existed before the first
//! dispatch. If that file is gone, the second dispatch counts as done, whatever stands at the path now.
//! Where the executor cannot tell, a person decides.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["path"])?;
    Ok(CoreCall::DeleteFile { path: args::path(args, "path", SandboxPath::file)? })
}
