//! A request in progress through the steps, with the ports that it needs.

use stepgate_core::digest::Digest;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::requests::{self, NotTold, REQUEST_BYTES_MAX, ToldBy};

use crate::context::Context;
use crate::envelope::{ContextType, Envelope};
use crate::invoke::InvokeResult;
use crate::model::Message;
use crate::ports::{Agent, Listener};
use crate::stop::Stop;
use crate::turn::{Entry, Turn, TurnId};
use crate::turns;
use crate::validator::Step;

/// A request, with the principal that the token proves.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The principal.
    pub principal_id: PrincipalId,
    /// The idempotency key.
    pub correlation_id: String,
    /// The request as it arrived.
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

/// A request in progress, with the ports that it needs.
pub(crate) struct Flow<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) listener: &'a dyn Listener,
    pub(crate) principal_id: PrincipalId,
    pub(crate) correlation_id: String,
    /// Tells a repeated request from another one with the same key.
    pub(crate) request_digest: Digest,
    /// Whether the answer was recorded already, so that nothing was left to do.
    pub(crate) replayed: bool,
    pub(crate) context: Context,
}

impl<'a> Flow<'a> {
    pub(crate) fn new(agent: &'a Agent, request: Request, listener: &'a dyn Listener) -> Self {
        let Request { principal_id, correlation_id, envelope } = request;
        let request_digest = Digest::of(&envelope);
        let context = Context::new(envelope);
        let replayed = false;
        Self { agent, listener, principal_id, correlation_id, request_digest, replayed, context }
    }

    pub(crate) fn context_type(&self) -> Result<ContextType, Stop> {
        self.context.context_type.ok_or_else(|| missing("type"))
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

    /// Writes the next entry of the context's turn.
    pub(crate) async fn append(&mut self, entry: Entry) -> Result<(), Stop> {
        let session_id = self.session_id()?;
        if let Some((_, _, envelope)) = entry.request() {
            // Before the turn's own event: a crash between the two would otherwise lose the request.
            self.tell_request(session_id, envelope).await?;
        }
        let turn = self.context.turn.as_mut().ok_or_else(|| missing("turn"))?;
        turns::append(&self.agent.gate, session_id, turn, entry).await
    }

    /// Records what the user asked for, so that policies know which arguments stand in it. What the user attaches may be
    /// another person's words, and does not count. What is beyond the limits does not count either.
    async fn tell_request(&self, session_id: SessionId, envelope: &Envelope) -> Result<(), Stop> {
        let Some(text) = &envelope.instructions else { return Ok(()) };
        let text = text.get(..text.floor_char_boundary(REQUEST_BYTES_MAX)).unwrap_or_default();
        let gate = &self.agent.gate;
        match requests::tell(gate, session_id, text, ToldBy::Turn, &self.principal_id).await {
            Ok(()) | Err(NotTold::Length | NotTold::TooMany) => Ok(()),
            Err(NotTold::Fault(fault)) => Err(fault.into()),
        }
    }

    /// Continues, or stops the chain with all errors that the rules find. A turn that is durable by then and
    /// cannot continue is ended, so that the conversation can continue.
    pub(crate) async fn check(
        &mut self,
        rules: fn(&Context, Step) -> InvokeResult,
        step: Step,
    ) -> Result<(), Stop> {
        let found = rules(&self.context, step);
        if found.is_success() {
            return Ok(());
        }
        if self.context.turn.as_ref().is_some_and(Turn::is_open) {
            self.append(Entry::Failed(found.clone())).await?;
        }
        Err(Stop::Invoke(found))
    }

    /// Adds a message of this round to the prompt of the next one.
    pub(crate) fn tell(&mut self, message: Message) {
        if let Some(prompt) = &mut self.context.prompt {
            prompt.messages.push(message);
        }
    }
}

/// The error for a part that the rules have proven to be present. A chain without it is a defect of ours.
pub(crate) fn missing(what: &str) -> Stop {
    Stop::Fault(stepgate_core::gate::Fault::Executor(format!("the context has no {what}")))
}
