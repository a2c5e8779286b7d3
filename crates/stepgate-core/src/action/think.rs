//! THINK: no arguments, no effect. CoreCall and effect are committed at once, so there is no second
//! dispatch.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &[])?;
    Ok(CoreCall::Think)
}
