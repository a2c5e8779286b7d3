//! READ_FILE: a regular file of UTF-8 text, up to the size limit. A second dispatch reads again.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["path"])?;
    Ok(CoreCall::ReadFile { path: args::path(args, "path", SandboxPath::file)? })
}
