//! WRITE_FILE: replaces a file whole; its directory must exist. The content has at least one
//! character, and no more than the payload allows. A second dispatch is done if the new content is there,
//! or somebody's who wrote after it, and replaces what was there before. Where nobody can tell, a person says.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["path", "content"])?;
    let path = args::path(args, "path", SandboxPath::file)?;
    let content = args::string(args, "content")?;
    if content.is_empty() {
        return Err(InvalidArgs::new("content", "empty"));
    }
    Ok(CoreCall::WriteFile { path, content: content.to_owned() })
}
