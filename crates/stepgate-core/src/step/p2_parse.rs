//! PARSE: strict JSON, or nothing further happens.

use tracing::instrument;

use super::p1_receive::StepContext;
use crate::failure::Failure;
use crate::gate::Gate;
use crate::json::Value;
use crate::json::strict::{self, Integers};
use crate::spans::PHASE;

/// A JSON value, not yet known to be a proposal.
pub(super) struct ProposalObject(pub(super) Value);

/// Spec 000, PARSE: "MUST use a strict JSON parser", "MUST stop further processing on parse failure".
#[instrument(target = PHASE, name = "PARSE", level = "debug", skip_all)]
pub(super) fn parse(gate: &Gate, context: StepContext) -> Result<ProposalObject, Failure> {
    parse_within(&context, gate.limits.json_depth_max)
}

/// Parses with this depth limit: recovery must accept what an earlier limit accepted.
pub(super) fn parse_within(
    context: &StepContext,
    depth_max: usize,
) -> Result<ProposalObject, Failure> {
    strict::parse(&context.payload, depth_max, Integers::Exact)
        .map(ProposalObject)
        .map_err(Failure::InvalidJson)
}
