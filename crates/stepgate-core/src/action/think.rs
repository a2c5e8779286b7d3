//! THINK: no arguments, no effect. The call and its effect are committed together, so there is no second
//! dispatch.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &[])?;
    Ok(CoreCall::Think)
}
