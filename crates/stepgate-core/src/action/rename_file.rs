//! RENAME_FILE: a regular file, to a name that is free. A second dispatch is done if the destination is the
//! file that the source was, and renames it if it still is the source. Otherwise a person says.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["source", "destination"])?;
    let source = args::path(args, "source", SandboxPath::file)?;
    let destination = args::path(args, "destination", SandboxPath::file)?;
    Ok(CoreCall::RenameFile { source, destination })
}
