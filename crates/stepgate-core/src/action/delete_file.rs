//! DELETE_FILE: a regular file. A second dispatch deletes the file that was there before the first, and is
//! done if that one is gone, whatever stands there now. Where nobody can tell, a person says.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["path"])?;
    Ok(CoreCall::DeleteFile { path: args::path(args, "path", SandboxPath::file)? })
}
