//! READ_FILE: a regular file of UTF-8 text, up to the size limit. A second dispatch reads again.

use super::Call;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<Call, InvalidArgs> {
    args::only(args, &["path"])?;
    Ok(Call::ReadFile { path: args::path(args, "path", SandboxPath::file)? })
}
