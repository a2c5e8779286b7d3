//! RENAME_FILE: renames a regular file to a name that is free. A second dispatch counts as done if the
//! destination is the file that the source was. It renames the file if it is still at the source. Otherwise
//! a person decides.

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
