//! LIST_FILES: a directory, `/sandbox/` included, sorted by name, up to the limit of entries. A
//! second dispatch lists again.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["path"])?;
    Ok(CoreCall::ListFiles { path: args::path(args, "path", SandboxPath::directory)? })
}
