//! Every rule about a context, in one stateless module (spec 003, AGN-036).
//!
//! The four entry points are fixed. They take their subject by shared reference, so none can change it, and
//! they report all errors; only the manifest's check stops at the first.

mod agn_033;
mod core_rules;
mod manifest;
mod request_rules;
mod rule;
mod step_rules;

use crate::context::{Context, ToolCallManifest};
use crate::invoke::InvokeResult;

pub use rule::Rule;

/// The ten steps of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Step {
    RequestHandler,
    SessionRestorer,
    AgentContextResolver,
    ClientToolContinuationResolver,
    AgentSessionCreator,
    AgentContextLoader,
    PromptContentProviderInitializer,
    Reasoner,
    LlmClient,
    ResponseBuilder,
}

impl Step {
    /// Every step, in the order of the specification.
    pub const ALL: [Self; 10] = [
        Self::RequestHandler,
        Self::SessionRestorer,
        Self::AgentContextResolver,
        Self::ClientToolContinuationResolver,
        Self::AgentSessionCreator,
        Self::AgentContextLoader,
        Self::PromptContentProviderInitializer,
        Self::Reasoner,
        Self::LlmClient,
        Self::ResponseBuilder,
    ];

    /// The specification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestHandler => "RequestHandler",
            Self::SessionRestorer => "SessionRestorer",
            Self::AgentContextResolver => "AgentContextResolver",
            Self::ClientToolContinuationResolver => "ClientToolContinuationResolver",
            Self::AgentSessionCreator => "AgentSessionCreator",
            Self::AgentContextLoader => "AgentContextLoader",
            Self::PromptContentProviderInitializer => "PromptContentProviderInitializer",
            Self::Reasoner => "Reasoner",
            Self::LlmClient => "LLMClient",
            Self::ResponseBuilder => "ResponseBuilder",
        }
    }
}

/// Rules that hold for every context (section 3).
pub fn validate_core(context: &Context) -> InvokeResult {
    core_rules::check(context)
}

/// Rules before a step (section 4).
pub fn validate_pre_step(context: &Context, step: Step) -> InvokeResult {
    step_rules::before(context, step)
}

/// Rules after a step (section 4).
pub fn validate_post_step(context: &Context, step: Step) -> InvokeResult {
    step_rules::after(context, step)
}

/// Whether results answer calls, one for one (section 5). It stops at the first error.
pub fn validate_tool_call_manifest(manifest: &ToolCallManifest) -> InvokeResult {
    match manifest::check(manifest) {
        Ok(()) => InvokeResult::success(),
        Err(problem) => (*problem).into(),
    }
}
