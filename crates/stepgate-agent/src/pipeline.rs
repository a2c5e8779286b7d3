//! Start here: the three chains (spec 003).
//!
//! Each step runs PRE, the step, POST; a failure stops the chain with an InvokeResult. A turn is durable at
//! every step, so the same request, sent again after any interruption, continues where it was and repeats
//! nothing.

use crate::envelope::ContextType;
use crate::flow::{Flow, Request, missing};
use crate::ports::{Agent, Listener};
use crate::response::Response;
use crate::steps::{
    s01_request_handler, s02_session_restorer, s03_agent_context_resolver,
    s04_client_tool_continuation_resolver, s05_agent_session_creator, s06_agent_context_loader,
    s07_prompt_content_provider_initializer, s08_reasoner, s09_llm_client, s10_response_builder,
};
use crate::stop::Stop;
use crate::validator::{Step, validate_post_step, validate_pre_step};

/// The end of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The response to the caller.
    pub response: Response,
    /// Whether it was durable before this request.
    pub replayed: bool,
}

/// The steps of a chain after RequestHandler, which determines the chain. LLMClient is not among them:
/// Reasoner runs it in every round.
pub fn chain(context_type: ContextType) -> &'static [Step] {
    match context_type {
        ContextType::Initial => &[
            Step::AgentContextResolver,
            Step::AgentSessionCreator,
            Step::PromptContentProviderInitializer,
            Step::Reasoner,
            Step::ResponseBuilder,
        ],
        ContextType::FollowOn => &[
            Step::SessionRestorer,
            Step::AgentContextLoader,
            Step::PromptContentProviderInitializer,
            Step::Reasoner,
            Step::ResponseBuilder,
        ],
        ContextType::ClientToolCallContinuation => &[
            Step::SessionRestorer,
            Step::ClientToolContinuationResolver,
            Step::AgentContextLoader,
            Step::PromptContentProviderInitializer,
            Step::Reasoner,
            Step::ResponseBuilder,
        ],
    }
}

/// Runs a request through its chain.
pub async fn run(agent: &Agent, request: Request, listener: &dyn Listener) -> Result<Done, Stop> {
    let mut flow = Flow::new(agent, request, listener);
    step(&mut flow, Step::RequestHandler).await?;
    for next in chain(flow.context_type()?) {
        step(&mut flow, *next).await?;
    }
    let Flow { context, replayed, .. } = flow;
    let response = context.response.ok_or_else(|| missing("response"))?;
    Ok(Done { response, replayed })
}

/// PRE, the step, POST.
async fn step(flow: &mut Flow<'_>, step: Step) -> Result<(), Stop> {
    flow.check(validate_pre_step, step).await?;
    match step {
        Step::RequestHandler => s01_request_handler::run(flow).await?,
        Step::SessionRestorer => s02_session_restorer::run(flow).await?,
        Step::AgentContextResolver => s03_agent_context_resolver::run(flow),
        Step::ClientToolContinuationResolver => {
            s04_client_tool_continuation_resolver::run(flow).await?;
        }
        Step::AgentSessionCreator => s05_agent_session_creator::run(flow).await?,
        Step::AgentContextLoader => s06_agent_context_loader::run(flow).await?,
        Step::PromptContentProviderInitializer => {
            s07_prompt_content_provider_initializer::run(flow).await?;
        }
        Step::Reasoner => s08_reasoner::run(flow).await?,
        Step::LlmClient => {
            s09_llm_client::run(flow).await?;
        }
        Step::ResponseBuilder => s10_response_builder::run(flow).await?,
    }
    flow.check(validate_post_step, step).await
}
