//! FINISH: gives the final response. The call and its effect are committed together, so there is no second
//! dispatch.

use super::CoreCall;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};

pub(super) fn call(args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
    args::only(args, &["response"])?;
    Ok(CoreCall::Finish { response: args::string(args, "response")?.to_owned() })
}
