//! VALIDATE_ACTION: registered, or denied.

use std::sync::Arc;
use tracing::instrument;

use super::p3_validate_schema::ValidatedProposal;
use crate::action::Action;
use crate::failure::Failure;
use crate::gate::Gate;
use crate::ids::ProposalId;
use crate::json::{Map, Value};
use crate::spans::PHASE;
use crate::tool::{Tool, ToolName};

/// A registered action with arguments that are not checked yet.
pub(super) struct ValidatedAction {
    pub(super) id: ProposalId,
    pub(super) action: Registered,
    pub(super) args: Map<String, Value>,
    /// The arguments as they are stored, where that differs because some are redacted.
    pub(super) written: Option<Map<String, Value>>,
}

/// What an action's name refers to.
pub(super) enum Registered {
    Core(Action),
    Tool(Arc<Tool>),
}

/// Spec 000, VALIDATE_ACTION: "MUST enforce action ∈ allowlist". The two of spec 001 have a message
/// of their own, and no configuration can enable them (decision 5).
#[instrument(target = PHASE, name = "VALIDATE_ACTION", level = "debug", skip_all)]
pub(super) fn validate_action(
    gate: &Gate,
    proposal: ValidatedProposal,
) -> Result<ValidatedAction, Failure> {
    let ValidatedProposal { id, action, args, redacted } = proposal;
    // The tool that the arguments were redacted for.
    let (tool, written) = redacted.map(|redacted| (redacted.tool, redacted.written)).unzip();
    let action = match action.as_str() {
        "run_command" | "spawn_process" => return Err(Failure::CommandExecution),
        name => match Action::parse(name) {
            Some(action) => Registered::Core(action),
            None => {
                // A tool is found by its exact server and name; one that is not listed is denied.
                let tool = tool.or_else(|| gate.tools.tool(&ToolName::parse(name).ok()?));
                Registered::Tool(tool.ok_or(Failure::ActionNotAllowed)?)
            }
        },
    };
    Ok(ValidatedAction { id, action, args, written })
}

/// The action of a proposal that was accepted before. A tool that no longer exists is represented as gone,
/// so that its run can be read and decided on, but never called.
pub(super) fn recall_action(
    gate: &Gate,
    proposal: ValidatedProposal,
) -> Result<ValidatedAction, Failure> {
    match ToolName::parse(&proposal.action) {
        Ok(name) if gate.tools.tool(&name).is_none() => {
            let ValidatedProposal { id, args, .. } = proposal;
            let action = Registered::Tool(Arc::new(Tool::gone(name)));
            Ok(ValidatedAction { id, action, args, written: None })
        }
        Ok(_) | Err(_) => validate_action(gate, proposal),
    }
}
