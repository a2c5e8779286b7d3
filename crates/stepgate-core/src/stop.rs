//! Emergency stops: an operator's order that calls are refused until it is lifted.
//!
//! An order is an event of the system session, and its id is the event's id. `consent_cache.rs` knows which orders are in
//! force. AUTHORIZE asks before it decides on a call, and EXECUTE once more before it sends the call.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{PrincipalId, SessionId};

/// The beginning of the reason for which a stopped call is refused. What follows is for the record, not for the agent.
pub(crate) const STOPPED: &str = "STOPPED: ";

/// An operator's order to refuse calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StoredStop")]
pub struct StopOrder {
    /// What that person noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who made it.
    pub stopped_by: PrincipalId,
    /// What is stopped.
    pub target: StopTarget,
}

/// What a stop covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopTarget {
    /// Every call.
    All,
    /// The calls of a principal.
    Principal(PrincipalId),
    /// The calls of a session.
    Session(SessionId),
    /// The calls of a tool server; `core` for the built-in actions.
    Server(String),
}

/// The answer to the order of a stop or a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made<T> {
    /// It is in force from now on.
    Now(T),
    /// Another order is about the same already, and stays as it is.
    Before(T),
}

/// The parties to a call: who asks, in which session, and which server would act.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallParties<'a> {
    pub(crate) principal_id: &'a PrincipalId,
    pub(crate) session_id: SessionId,
    pub(crate) server: &'a str,
}

impl StopTarget {
    pub(crate) fn covers(&self, call: CallParties<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Principal(principal_id) => principal_id == call.principal_id,
            Self::Session(session_id) => *session_id == call.session_id,
            Self::Server(server) => server == call.server,
        }
    }
}

impl fmt::Display for StopTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "everything"),
            Self::Principal(principal_id) => write!(f, "principal `{principal_id}`"),
            Self::Session(session_id) => write!(f, "session {session_id}"),
            Self::Server(server) => write!(f, "server `{server}`"),
        }
    }
}

impl StopOrder {
    /// Why a call that it covers is refused, for the record.
    pub(crate) fn reason(&self) -> String {
        let by = &self.stopped_by;
        match &self.note {
            None => format!("{STOPPED}by {by}"),
            Some(note) => format!("{STOPPED}by {by}, who noted: {note}"),
        }
    }
}

#[cfg(test)]
mod tests;
