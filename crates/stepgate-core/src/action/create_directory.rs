//! CREATE_DIRECTORY: creates a directory and its parents; one that exists is a success. A second
//! dispatch is therefore like the first.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["path"])?;
    Ok(CoreCall::CreateDirectory { path: args::path(args, "path", SandboxPath::new_directory)? })
}
