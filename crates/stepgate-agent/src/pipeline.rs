//! Start here: the three chains (spec 003).
//!
//! Each step runs PRE, the step, POST; a failure stops the chain with an InvokeResult. A turn is durable
//! at every step of its way, so the same request again, after whatever stopped it, goes on where it
//! was and repeats nothing.

use stepgate_core::digest::Digest;
use stepgate_core::ids::{PrincipalId, SessionId};

use crate::context::{Context, ContextType, Envelope, PromptKnowledge};
use crate::invoke::InvokeResult;
use crate::model::Message;
use crate::ports::{Agent, Listener};
use crate::response::Response;
use crate::steps::{
    s01_request_handler, s02_session_restorer, s03_agent_context_resolver,
    s04_client_tool_continuation_resolver, s05_agent_session_creator, s06_agent_context_loader,
    s07_prompt_content_provider_initializer, s08_reasoner, s09_llm_client, s10_response_builder,
};
use crate::stop::Stop;
use crate::turn::{Entry, Turn, TurnId};
use crate::turns;
use crate::validator::{Step, validate_post_step, validate_pre_step};

/// A request, with who makes it as the token proves.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Who asks.
    pub principal_id: PrincipalId,
    /// The idempotency key.
    pub correlation_id: String,
    /// What came.
    pub envelope: Envelope,
}

impl Request {
    /// The turn that this request is about: the one that it opens, or whose calls it answers.
    pub fn turn_id(&self) -> Option<TurnId> {
        match ContextType::of(&self.envelope)? {
            ContextType::Initial | ContextType::FollowOn => {
                Some(TurnId::of(&self.principal_id, &self.correlation_id))
            }
            ContextType::ClientToolCallContinuation => self.envelope.turn_id.as_ref()?.parse().ok(),
        }
    }
}

/// The end of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What the caller gets.
    pub response: Response,
    /// Whether it was durable before it was asked for.
    pub replayed: bool,
}

/// The steps of a chain after RequestHandler, which finds out which chain it is. LLMClient is not among
/// them: Reasoner runs it, round by round.
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

/// Takes a request through its chain.
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
    let found = validate_pre_step(&flow.context, step);
    flow.judged(found).await?;
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
    let found = validate_post_step(&flow.context, step);
    flow.judged(found).await
}

/// A request on its way, with what it needs of the world.
pub(crate) struct Flow<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) listener: &'a dyn Listener,
    pub(crate) principal_id: PrincipalId,
    pub(crate) correlation_id: String,
    /// Tells the same request from another with its key.
    pub(crate) request_digest: Digest,
    /// Whether nothing was left to do.
    pub(crate) replayed: bool,
    pub(crate) context: Context,
}

impl<'a> Flow<'a> {
    fn new(agent: &'a Agent, request: Request, listener: &'a dyn Listener) -> Self {
        let Request { principal_id, correlation_id, envelope } = request;
        let request_digest = Digest::of(&envelope);
        let context = Context::new(envelope);
        let replayed = false;
        Self { agent, listener, principal_id, correlation_id, request_digest, replayed, context }
    }

    pub(crate) fn context_type(&self) -> Result<ContextType, Stop> {
        ContextType::parse(&self.context.context_type).ok_or_else(|| missing("type"))
    }

    pub(crate) fn session_id(&self) -> Result<SessionId, Stop> {
        self.context.session.as_ref().map(|session| session.id).ok_or_else(|| missing("session"))
    }

    pub(crate) fn turn(&self) -> Result<&Turn, Stop> {
        self.context.turn.as_ref().ok_or_else(|| missing("turn"))
    }

    /// The turn that this request opens.
    pub(crate) fn own_turn_id(&self) -> TurnId {
        TurnId::of(&self.principal_id, &self.correlation_id)
    }

    /// Writes what happened next in the context's turn.
    pub(crate) async fn append(&mut self, entry: Entry) -> Result<(), Stop> {
        let session_id = self.session_id()?;
        let turn = self.context.turn.as_mut().ok_or_else(|| missing("turn"))?;
        turns::append(&self.agent.gate, session_id, turn, entry).await
    }

    /// Goes on, or stops the chain with everything that was found. A turn that is durable by then and
    /// cannot go on is over, so that the conversation can.
    pub(crate) async fn judged(&mut self, found: InvokeResult) -> Result<(), Stop> {
        if found.is_success() {
            return Ok(());
        }
        if self.context.turn.as_ref().is_some_and(Turn::is_open) {
            self.append(Entry::Failed(found.clone())).await?;
        }
        Err(Stop::Invoke(found))
    }

    /// Tells the model of the next round what happened in this one.
    pub(crate) fn tell(&mut self, message: Message) {
        match &mut self.context.prompt_knowledge {
            PromptKnowledge::Ready(content) => content.messages.push(message),
            PromptKnowledge::NotReady => {}
        }
    }
}

/// A part that the rules have proven to be there. A chain that lacks it is a fault of ours.
pub(crate) fn missing(what: &str) -> Stop {
    Stop::Fault(stepgate_core::gate::Fault::Executor(format!("the context has no {what}")))
}
