//! FINISH: gives the final response. Call and effect are committed at once, so there is no second
//! dispatch.

use super::Call;
use super::args::{self, InvalidArgs};
use crate::json::{Map, Value};

pub(super) fn call(args: &Map<String, Value>) -> Result<Call, InvalidArgs> {
    args::only(args, &["response"])?;
    Ok(Call::Finish { response: args::string(args, "response")?.to_owned() })
}
