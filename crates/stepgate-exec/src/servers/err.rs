//! Why a tool server, or one of its tools, is off. For the operator, with a remedy.

/// Why a tool server, or one of its tools, is off. If the server is required, the gateway does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StartError {
    /// A name that no server can have, or that two servers have.
    #[error(
        "`{server}` cannot be the name of a tool server: one to 32 of a-z, 0-9, `_` and `-`, not \
         `core`, and each once; rename [servers.{server}]"
    )]
    Name { server: String },
    /// It does not run, does not answer, or does not list its tools.
    #[error("the tool server `{server}` did not start: {why}{}", last_words(.stderr))]
    Start {
        server: String,
        why: String,
        /// The last lines of its standard error.
        stderr: Vec<String>,
    },
    /// It has a tool that no configuration can enable.
    #[error(
        "the tool server `{server}` has a tool `{tool}`: generic command execution cannot be enabled, \
         and it is never offered"
    )]
    CommandExecution { server: String, tool: String },
    #[error(
        "the tool server `{server}` has no tool `{tool}`: correct or remove [servers.{server}.tools]; \
         it has {}", named(.known)
    )]
    UnknownTool {
        server: String,
        tool: String,
        /// The tools that it has.
        known: Vec<String>,
    },
    /// The configuration redacts an argument that does not exist, so the redaction would hide nothing.
    #[error(
        "`{argument}` cannot be redacted for {}: no such argument is in the schema; correct \
         `redacted` or `erasable`, which have names of arguments and not paths into them; {} {}",
        owner(.server, .tool.as_deref()), .tool.as_ref().map_or("they have", |_| "it has"), named(.known)
    )]
    Redacted {
        server: String,
        /// The tool whose table names it; none where the server's table does.
        tool: Option<String>,
        argument: String,
        /// The arguments that exist.
        known: Vec<String>,
    },
    #[error(
        "the tool `{server}.{tool}` writes, and nothing says what becomes of a call in doubt: set \
         `honours_key = true` if the server acts once per key, or `in_doubt` to \"redispatch\", \
         \"query\" or \"ask\", in [servers.{server}] or for the tool"
    )]
    NoDelivery { server: String, tool: String },
    #[error(
        "the tool `{server}.{tool}` names `{status_tool}` as its status tool, and that {why}: \
         `status_tool` must be a tool of the same server with mode \"read_only\""
    )]
    StatusTool { server: String, tool: String, status_tool: String, why: &'static str },
    #[error(
        "the tool `{tool}` of the server `{server}` cannot be offered: {why}; set its `mode` to \"off\", \
         or correct the server"
    )]
    Definition { server: String, tool: String, why: String },
}

impl StartError {
    /// The server was not started, and no process says why.
    pub(super) fn start(server: &str, why: String) -> Self {
        Self::Start { server: server.to_owned(), why, stderr: Vec::new() }
    }

    /// The error without the names of the server and the tool, with the last lines of standard error.
    pub(super) fn in_short(&self) -> String {
        const LAST_WORDS_MAX: usize = 3;
        match self {
            Self::Start { why, stderr, .. } => {
                let last = stderr.get(stderr.len().saturating_sub(LAST_WORDS_MAX)..);
                match last.unwrap_or_default() {
                    [] => why.clone(),
                    last => format!("{why}: {}", last.join("; ")),
                }
            }
            Self::Definition { why, .. } => {
                format!("{why}; set its `mode` to \"off\", or correct the server")
            }
            Self::CommandExecution { .. } => {
                "generic command execution cannot be enabled, and it is never offered".to_owned()
            }
            Self::Name { .. }
            | Self::UnknownTool { .. }
            | Self::Redacted { .. }
            | Self::NoDelivery { .. }
            | Self::StatusTool { .. } => self.to_string(),
        }
    }

    /// The server that it is about, as configured.
    pub fn server(&self) -> &str {
        match self {
            Self::Name { server }
            | Self::Start { server, .. }
            | Self::CommandExecution { server, .. }
            | Self::UnknownTool { server, .. }
            | Self::Redacted { server, .. }
            | Self::NoDelivery { server, .. }
            | Self::StatusTool { server, .. }
            | Self::Definition { server, .. } => server,
        }
    }
}

fn last_words(stderr: &[String]) -> String {
    match stderr {
        [] => String::new(),
        lines => format!("; its last words:\n  {}", lines.join("\n  ")),
    }
}

fn owner(server: &str, tool: Option<&str>) -> String {
    match tool {
        Some(tool) => format!("the tool `{server}.{tool}`"),
        None => format!("any tool of the server `{server}`"),
    }
}

fn named(known: &[String]) -> String {
    const NAMED_MAX: usize = 32;
    match known {
        [] => "none".to_owned(),
        known => {
            let names: Vec<_> =
                known.iter().take(NAMED_MAX).map(|name| format!("`{name}`")).collect();
            let rest = if known.len() > NAMED_MAX { " and more" } else { "" };
            format!("{}{rest}", names.join(", "))
        }
    }
}
