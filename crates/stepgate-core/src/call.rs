//! A validated call: of a core action, or of a tool of a tool server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::action::{CORE_SERVER, CoreCall, Touch};
use crate::digest::Digest;
use crate::journal::artifact::{Resource, RiskLevel, ToolClass};
use crate::json::{Map, Value};
use crate::path::SandboxPath;
use crate::result_pointer::pointer_to;
use crate::tool::Tool;

/// The call that a proposal asks for, after validation.
#[derive(Clone, Debug)]
pub enum Call {
    /// A core action, on the sandbox.
    Core(CoreCall),
    /// A tool of a tool server.
    Server(ServerCall),
}

/// A call of a tool server's tool.
#[derive(Clone, Debug)]
pub struct ServerCall {
    /// The tool, as it was known when the call was made.
    pub tool: Arc<Tool>,
    /// The arguments, as they are sent.
    pub args: Map<String, Value>,
}

impl ServerCall {
    /// Whether the tool's default stands for a target that the call omits: it is not known where that comes from.
    /// `defaults` are those that the tool uses, by JSON Pointer.
    pub fn has_default_target(&self, defaults: &Map<String, Value>) -> bool {
        let mut targets = self.tool.flow.targets.iter().flatten();
        !defaults.is_empty()
            && targets.any(|name| defaults.contains_key(&pointer_to([name.as_str()])))
    }
}

impl Call {
    /// The name in a proposal.
    pub fn name(&self) -> &str {
        match self {
            Self::Core(call) => call.action().name(),
            Self::Server(call) => call.tool.name.as_str(),
        }
    }

    /// The server, as the journal names it.
    pub fn tool_server(&self) -> &str {
        match self {
            Self::Core(_) => CORE_SERVER,
            Self::Server(call) => call.tool.name.server(),
        }
    }

    /// The tool, as the journal names it beside its server.
    pub fn tool_name(&self) -> &str {
        match self {
            Self::Core(call) => call.action().name(),
            Self::Server(call) => call.tool.name.tool(),
        }
    }

    /// The intent that an action_request names: fixed per action.
    pub fn intent(&self) -> &'static str {
        match self {
            Self::Core(call) => call.action().intent(),
            Self::Server(_) => "Call a tool of a tool server",
        }
    }

    /// How it affects the sandbox or the tool server.
    pub fn touch(&self) -> Touch {
        match self {
            Self::Core(call) => call.touch(),
            Self::Server(call) => match call.tool.class() {
                ToolClass::Read => Touch::Reads,
                ToolClass::Write => Touch::Writes,
            },
        }
    }

    /// The paths in the sandbox that it touches.
    pub fn paths(&self) -> Vec<&SandboxPath> {
        match self {
            Self::Core(call) => call.paths(),
            Self::Server(_) => vec![],
        }
    }

    /// What it touches, for an action_request.
    pub fn resources(&self) -> Vec<Resource> {
        match self {
            Self::Core(call) => call.resources(),
            Self::Server(call) => {
                vec![Resource { id: call.tool.name.to_string(), kind: "tool".into() }]
            }
        }
    }

    /// How much it can change.
    pub fn risk_level(&self) -> RiskLevel {
        match (self, self.touch()) {
            (Self::Core(_), Touch::Nothing | Touch::Reads) => RiskLevel::Read,
            (Self::Core(_), Touch::Writes) => RiskLevel::Write,
            (Self::Server(call), _) => call.tool.risk_level(),
        }
    }

    /// Whether it changes anything.
    pub fn tool_class(&self) -> ToolClass {
        match self.touch() {
            Touch::Nothing | Touch::Reads => ToolClass::Read,
            Touch::Writes => ToolClass::Write,
        }
    }

    /// The call in its stored form, which is also what policy sees: redacted arguments as digests.
    pub fn written(&self) -> Cow<'_, Self> {
        match self {
            Self::Server(call) if !call.tool.redacted.is_empty() => {
                let args = call.tool.redact(&call.args);
                Cow::Owned(Self::Server(ServerCall { tool: Arc::clone(&call.tool), args }))
            }
            Self::Core(_) | Self::Server(_) => Cow::Borrowed(self),
        }
    }

    /// What the name refers to: the tool's definition, and whether it changes anything.
    pub(crate) fn identity(&self) -> (Option<Digest>, ToolClass) {
        (self.definition_digest(), self.tool_class())
    }

    /// The definition that it was checked against, where a server gave one.
    pub fn definition_digest(&self) -> Option<Digest> {
        match self {
            Self::Core(_) => None,
            Self::Server(call) => Some(call.tool.definition_digest),
        }
    }
}

/// The arguments, each lowered to its cap where it exceeds it; an error where a capped argument is not a
/// number.
pub fn lowered(
    mut args: Map<String, Value>,
    caps: &BTreeMap<String, i64>,
) -> Result<Map<String, Value>, &'static str> {
    for (name, max) in caps {
        match args.get_mut(name) {
            Some(Value::Number(number)) if exceeds(number, *max) => *number = (*max).into(),
            None | Some(Value::Number(_)) => {}
            Some(_) => return Err("what is capped is not a number"),
        }
    }
    Ok(args)
}

/// Whether a number is larger than a cap.
pub fn exceeds(number: &serde_json::Number, max: i64) -> bool {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(number), _, _) => number > max,
        (None, Some(_), _) => true,
        #[expect(
            clippy::cast_precision_loss,
            reason = "a fraction is compared as the double it is"
        )]
        (None, None, Some(number)) => number > max as f64,
        (None, None, None) => true,
    }
}
