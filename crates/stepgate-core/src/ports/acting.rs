//! The ports that act: the sandbox's executor, and the tool servers.

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

/// Keeps other calls away from what this call uses, until the effect is committed.
pub type Hold = Box<dyn Any + Send>;

/// A call that an executor has checked and is ready to run.
pub struct Prepared {
    /// The state before the call.
    pub pre_state: Option<Value>,
    /// Dropped when the effect is committed.
    pub hold: Hold,
}

/// Whether a call is sent for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// It was not sent before.
    First,
    /// It may have been sent before a crash: the executor compares with the recorded state before the call.
    Again,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Done; the result as canonical JSON, where there is one.
    Done(Option<String>),
    /// Not done, or done with an unusable result.
    Failed(Failed),
    /// Refused at the moment of use by this sandbox rule.
    Refused(&'static str),
    /// The executor itself stopped: the result is unknown, and recovery decides.
    Unknown(String),
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The failure that the caller is told.
    pub failure: ExecutionFailure,
    /// The detail that goes to the record alone.
    pub detail: Option<String>,
    /// What the tool itself returned.
    pub said: Said,
    /// Whether the tool may have acted, or may still act, without reporting it.
    pub in_doubt: bool,
}

impl From<ExecutionFailure> for Failed {
    fn from(failure: ExecutionFailure) -> Self {
        Self { failure, detail: None, said: Said::Nothing, in_doubt: failure.leaves_doubt() }
    }
}

/// What a tool returned for a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing, or nothing that can be kept.
    Nothing,
    /// A well-formed result in which the tool reports an error: it is kept with the run.
    Error(String),
    /// A result that cannot be used: only its SHA-256 is kept.
    Unusable(Digest),
}

/// Runs core actions on the sandbox.
#[async_trait]
pub trait Executor: Send + Sync {
    /// The executor's name, for the tool_call.
    fn id(&self) -> &str;

    /// Whether this executor can find out what became of a call that was sent to the executor of this name.
    /// A sandbox that was restored from a backup also answers for its earlier name.
    fn answers_for(&self, executor_id: &str) -> bool {
        executor_id == self.id()
    }

    /// AUTHORIZE's check of the sandbox: resolves the call's paths, takes the hold on what it changes, and
    /// reads the current state. The error is the sandbox rule that refuses the call.
    async fn prepare(&self, call: &CoreCall) -> Result<Prepared, &'static str>;

    /// Whether the file that a person was asked about is the file that is there now. Both values are states
    /// before the call, as `prepare` reads them.
    fn is_as_asked(&self, asked: &Value, now: &Value) -> bool {
        asked == now
    }

    /// Takes the hold for a call whose state before the call is already recorded. None where other calls
    /// keep it for longer than recovery should wait: another node may be waiting for what this one holds.
    async fn hold(&self, call: &CoreCall) -> Option<Hold>;

    /// Runs the call.
    async fn dispatch(
        &self,
        call: &CoreCall,
        pre_state: Option<&Value>,
        dispatch: Dispatch,
    ) -> Effect;
}

/// A call that is about to be sent to a tool server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The run.
    pub run_id: RunId,
    /// The tool_call's id, the same at every dispatch.
    pub tool_call_id: ArtifactId,
    /// The idempotency key. A tool that honours it acts once.
    pub key: IdempotencyKey,
    /// Whether it is sent for the first time.
    pub dispatch: Dispatch,
}

/// Calls the tools of tool servers.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// The tool of this name, as it is known now.
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>>;

    /// Every tool, in the order of their names.
    fn tools(&self) -> Vec<Arc<Tool>>;

    /// Whether any tool has redacted arguments, also one that is not known now.
    fn has_redacted(&self) -> bool {
        self.tools().iter().any(|tool| !tool.redacted.is_empty())
    }

    /// The id of the executor that acts for this server here, for the tool_call; none where there is none.
    fn executor_id(&self, server: &str) -> Option<String> {
        Some(server.to_owned())
    }

    /// Takes the server's permit for one call. An error means that the call cannot be sent now, and was not
    /// sent.
    async fn prepare(&self, call: &ServerCall) -> Result<Hold, Failed>;

    /// Sends the call and waits for the answer, until the tool's timeout at most.
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
