//! What is off, and why: for operators, at the start, while servers run, and in lists of tools.

use std::fmt;
use std::sync::Arc;

use stepgate_core::lock;
use stepgate_core::tool::Standing;

use super::catalog::State;
use super::server::{ConnectionState, Server};

/// A configured server, or one of its tools, that cannot be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Off {
    /// The server.
    pub server: String,
    /// The tool, as the server calls it; none where the whole server is off.
    pub tool: Option<String>,
    /// Why.
    pub reason: Reason,
}

/// Why something is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server cannot be reached, or is not as configured. It is retried.
    Down(String),
    /// The tool cannot be offered.
    Unusable(String),
    /// The tool was added to a known server, and no operator has accepted it.
    New,
    /// The tool's definition differs from the accepted one.
    Changed,
    /// Another tool, or a core action, has the name under which agents would call it over MCP.
    NameTaken {
        /// The name.
        name: String,
        /// The tool or action that has it.
        by: String,
    },
}

/// What operators are told while servers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Something is off now.
    Off(Off),
    /// A server that was off can be called.
    Up(String),
}

/// Callback for the news. It must not block.
pub type Tell = Arc<dyn Fn(News) + Send + Sync>;

impl Reason {
    /// A code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Down(_) => "down",
            Self::Unusable(_) => "unusable",
            Self::New => "new",
            Self::Changed => "changed",
            Self::NameTaken { .. } => "name_taken",
        }
    }
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, tool, reason } = self;
        let name = match tool {
            Some(tool) => format!("{server}.{tool}"),
            None => server.clone(),
        };
        let look =
            format!("look with `stepgate tools diff {name}`, then `stepgate tools accept {name}`");
        match reason {
            Reason::Down(why) => {
                write!(f, "the tool server `{name}` is off: {why}; it is tried again")
            }
            Reason::Unusable(why) => write!(f, "the tool `{name}` is off: {why}"),
            Reason::New => write!(f, "the tool `{name}` is new and off: {look}"),
            Reason::Changed => {
                write!(f, "the tool `{name}` has changed since it was accepted and is off: {look}")
            }
            Reason::NameTaken { name: taken, by } => write!(
                f,
                "the tool `{name}` is off over MCP: `{by}` has its name there, `{taken}`; rename one of the \
                 servers, or take the mode of one of the tools away"
            ),
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off(off) => off.fmt(f),
            Self::Up(server) => write!(f, "the tool server `{server}` is up"),
        }
    }
}

/// Everything of a server that is off.
pub(super) fn of(server: &Server) -> Vec<Off> {
    let down = match server.state() {
        ConnectionState::Up(_) => None,
        ConnectionState::Down(why) => {
            Some(Off { server: server.spec.name.clone(), tool: None, reason: Reason::Down(why) })
        }
    };
    down.into_iter().chain(tools_of(server)).collect()
}

/// The tools of a server that are off, as far as they are known.
pub(super) fn tools_of(server: &Server) -> Vec<Off> {
    let catalog = lock::read(&server.catalog);
    let off = |tool: &str, reason| Off {
        server: server.spec.name.clone(),
        tool: Some(tool.to_owned()),
        reason,
    };
    let entries = catalog.entries().filter_map(|entry| {
        let reason = match &entry.state {
            State::Unclassified | State::TurnedOff => return None,
            State::Unusable(error) => Reason::Unusable(error.in_short()),
            State::Offered(offer) => match offer.tool.standing {
                Standing::Accepted | Standing::Gone => return None,
                Standing::New => Reason::New,
                Standing::Changed => Reason::Changed,
            },
        };
        Some(off(&entry.definition.name, reason))
    });
    let unread = catalog.unread.iter().map(|unread| {
        off(unread.name.as_deref().unwrap_or("?"), Reason::Unusable(unread.why.clone()))
    });
    entries.chain(unread).collect()
}
