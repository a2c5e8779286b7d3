//! WRITE_FILE: replaces a whole file; its directory must exist. The content has at least one character, and
//! no more than the payload allows. A second dispatch counts as done if it finds the new content, or content
//! that another writer wrote after it. It replaces the content that was there before the first dispatch.
//! Where the executor cannot tell, a person decides.

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
