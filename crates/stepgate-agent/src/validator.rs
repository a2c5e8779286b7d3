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

pub use core_rules::validate_core;
pub use manifest::validate_tool_call_manifest;
pub use rule::Rule;
pub use step_rules::{validate_post_step, validate_pre_step};

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
