//! What acts: the sandbox's executor, and the tool servers.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

use crate::action::CoreCall;
use crate::call::ServerCall;
use crate::digest::Digest;
use crate::failure::ExecutionFailure;
use crate::ids::{ArtifactId, IdempotencyKey, RunId};
use crate::json::Value;
use crate::tool::{Tool, ToolName};

/// What is kept from being touched by others until the effect is committed.
pub type Hold = Box<dyn Any + Send>;

/// A call that an executor has looked at and is ready for.
pub struct Prepared {
    /// What stood there before the act.
    pub pre_state: Option<Value>,
    /// Dropped when the effect is committed.
    pub hold: Hold,
}

/// Whether a call is sent for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// It was not sent before.
    First,
    /// It may have been sent before a crash: compare with the state before the act.
    Again,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Done; the result as canonical JSON, where there is one.
    Done(Option<String>),
    /// Not done, or done and unusable.
    Failed(Failed),
    /// Refused at the moment of use, by this rule.
    Refused(&'static str),
    /// The executor itself stopped: nothing is known, recovery decides.
    Unknown(String),
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What the caller is told.
    pub failure: ExecutionFailure,
    /// What only the record is told.
    pub detail: Option<String>,
    /// What the tool itself said about it.
    pub said: Said,
    /// Whether the tool may have acted, or may still act, without having said so.
    pub in_doubt: bool,
}

impl From<ExecutionFailure> for Failed {
    fn from(failure: ExecutionFailure) -> Self {
        Self { failure, detail: None, said: Said::Nothing, in_doubt: failure.leaves_doubt() }
    }
}

/// What a tool said about a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing, or nothing that can be kept.
    Nothing,
    /// A result of its own that says that it failed, in the form of a result: it is kept with the run.
    Error(String),
    /// A result that cannot be used: only its SHA-256 is kept.
    Unusable(Digest),
}

/// What acts on the sandbox.
#[async_trait]
pub trait Executor: Send + Sync {
    /// The executor's name, for the tool_call.
    fn id(&self) -> &str;

    /// Whether what became of a call to the executor of this name can be found out here. One that was
    /// put back from a copy also answers for what it was.
    fn answers_for(&self, executor_id: &str) -> bool {
        executor_id == self.id()
    }

    /// AUTHORIZE's look at the world: resolves what the call touches, holds what it changes, reads
    /// what stands there. The error is the sandbox rule that says no.
    async fn prepare(&self, call: &CoreCall) -> Result<Prepared, &'static str>;

    /// Whether the file that a person was asked about is the one that stands there now. Both are states before
    /// the act of one call, as `prepare` reads them.
    fn is_as_asked(&self, asked: &Value, now: &Value) -> bool {
        asked == now
    }

    /// Holds what the call changes, for a call whose state before the act is already recorded. None where
    /// others hold it for longer than recovery should wait: another node may wait for what this one holds.
    async fn hold(&self, call: &CoreCall) -> Option<Hold>;

    /// Acts.
    async fn dispatch(
        &self,
        call: &CoreCall,
        pre_state: Option<&Value>,
        dispatch: Dispatch,
    ) -> Effect;
}

/// A call on its way to a tool server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The run.
    pub run_id: RunId,
    /// The tool_call, the same at every dispatch.
    pub tool_call_id: ArtifactId,
    /// The key under which the tool acts once, where it honours one.
    pub key: IdempotencyKey,
    /// Whether it is sent for the first time.
    pub dispatch: Dispatch,
}

/// What acts through tool servers.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// The tool of this name, as it is known now.
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>>;

    /// Every tool, in the order of their names.
    fn tools(&self) -> Vec<Arc<Tool>>;

    /// Whether any tool has arguments that are not written down, also one that is not known now.
    fn has_redacted(&self) -> bool {
        self.tools().iter().any(|tool| !tool.redacted.is_empty())
    }

    /// The name of what acts for this server here, for the tool_call; none where nothing does.
    fn executor_id(&self, server: &str) -> Option<String> {
        Some(server.to_owned())
    }

    /// Takes the server's permit for one call. An error means that nothing can be sent now, and
    /// nothing was.
    async fn prepare(&self, call: &ServerCall) -> Result<Hold, Failed>;

    /// Sends it and waits for the answer, no longer than the tool may take.
    async fn dispatch(&self, call: &ServerCall, sending: &Sending) -> Effect;
}

/// No tool server is configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoToolServers;

#[async_trait]
impl ToolServers for NoToolServers {
    fn tool(&self, _: &ToolName) -> Option<Arc<Tool>> {
        None
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn executor_id(&self, _: &str) -> Option<String> {
        None
    }

    async fn prepare(&self, _: &ServerCall) -> Result<Hold, Failed> {
        Err(ExecutionFailure::Unavailable.into())
    }

    async fn dispatch(&self, _: &ServerCall, _: &Sending) -> Effect {
        Effect::Unknown("no tool server is configured".into())
    }
}
