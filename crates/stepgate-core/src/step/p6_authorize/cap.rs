//! Caps (decision 15): a policy may lower an argument of a tool. The request keeps the original argument,
//! the decision names the cap, and the call has the lowered argument.

use std::collections::BTreeMap;

use super::super::p5_validate_args::ValidatedArgs;
use crate::call::{Call, ServerCall, lowered};
use crate::json::{Map, Value};

/// The lowered arguments, and the caps that lowered one of them, for the decision.
pub(super) fn lower(
    asked: ValidatedArgs,
    caps: &BTreeMap<String, i64>,
) -> Result<(ValidatedArgs, Option<Value>), &'static str> {
    if caps.is_empty() {
        return Ok((asked, None));
    }
    let lowered = tighten(asked.clone(), caps)?;
    match &lowered.call {
        Call::Server(ServerCall { tool, args }) if tool.contract.check(args).is_err() => {
            return Err("the capped arguments break the tool's contract");
        }
        Call::Core(_) | Call::Server(_) => {}
    }
    let used: Map<String, Value> = caps
        .iter()
        .filter(|(name, _)| asked.args.get(name) != lowered.args.get(name))
        .map(|(name, max)| (name.clone(), Value::from(*max)))
        .collect();
    let cap = (!used.is_empty()).then_some(Value::Object(used));
    Ok((lowered, cap))
}

/// Lowers each argument to its cap. A cap that cannot be applied refuses the call. The tool's contract is
/// not checked here: it may have changed, or the tool may be gone.
pub(in crate::step) fn tighten(
    asked: ValidatedArgs,
    caps: &BTreeMap<String, i64>,
) -> Result<ValidatedArgs, &'static str> {
    if caps.is_empty() {
        return Ok(asked);
    }
    let ValidatedArgs {
        call: Call::Server(ServerCall { tool, args }),
        args: Value::Object(written),
        ..
    } = asked
    else {
        return Err("core actions cannot be capped");
    };
    if caps.keys().any(|name| args.get(name) != written.get(name)) {
        return Err("a redacted argument cannot be capped");
    }
    let (args, written) = (lowered(args, caps)?, lowered(written, caps)?);
    let call = Call::Server(ServerCall { tool, args });
    Ok(ValidatedArgs { call, args: Value::Object(written), key: asked.key, asked: asked.asked })
}

#[cfg(test)]
mod tests;
