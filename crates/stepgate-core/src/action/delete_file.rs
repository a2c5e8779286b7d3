//! DELETE_FILE: a regular file. A second dispatch is done if the file was there before the first and
//! is gone.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["path"])?;
    Ok(CoreCall::DeleteFile { path: args::path(args, "path", SandboxPath::file)? })
}
