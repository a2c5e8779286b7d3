//! VALIDATE_ACTION: registered, or denied.

use super::p3_validate_schema::ValidatedProposal;
use crate::action::Action;
use crate::failure::Failure;
use crate::ids::ProposalId;
use crate::json::{Map, Value};

/// A registered action with arguments that nobody has looked at yet.
pub(super) struct ValidatedAction {
    pub(super) id: ProposalId,
    pub(super) action: Action,
    pub(super) args: Map<String, Value>,
}

/// Spec 000, VALIDATE_ACTION: "MUST enforce action ∈ allowlist". The two of spec 001 have a message
/// of their own, and no configuration can enable them (decision D5).
pub(super) fn validate_action(proposal: ValidatedProposal) -> Result<ValidatedAction, Failure> {
    let ValidatedProposal { id, action, args } = proposal;
    match action.as_str() {
        "run_command" | "spawn_process" => Err(Failure::CommandExecution),
        name => match Action::parse(name) {
            Some(action) => Ok(ValidatedAction { id, action, args }),
            None => Err(Failure::ActionNotAllowed),
        },
    }
}
