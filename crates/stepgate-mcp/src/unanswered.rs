//! Calls whose answer was not delivered. MCP tells clients to send a lost call again under a new id. Without an
//! idempotency key nothing in the second call names the first, so it is found here by its content.
//!
//! A call is added when the stream of its answer broke, when it was answered only with a notice or with an error of
//! the gateway, or when the gateway stopped before the call was over. An equal call of the same principal takes it
//! out and gets its answer. Two equal calls that are both connected are two calls.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use stepgate_core::digest::Digest;
use stepgate_core::ids::{PrincipalId, ProposalId};
use stepgate_core::json::{Map, Value};
use stepgate_core::lock::locked;
use stepgate_core::run::Run;
use stepgate_core::time::Timestamp;
use uuid::Uuid;

/// Most calls that are remembered. Above that the oldest is forgotten: an equal call is then a new call.
const CALLS_MAX: usize = 10_000;
/// Prefix of the ids of calls without a key, so that a later process recognises them.
const MARK: [u8; 6] = *b"mcpcal";

/// A stream of a session, which its client can resume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stream {
    pub(super) session: String,
    pub(super) number: u64,
}

/// What makes two calls equal: the principal, the action and the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallFingerprint(Digest);

impl CallFingerprint {
    pub(super) fn of(principal_id: &PrincipalId, action: &str, args: &Map<String, Value>) -> Self {
        Self(Digest::of(&(principal_id, action, args)))
    }
}

/// An id for a call that came without a key.
pub(super) fn fresh_id() -> Uuid {
    let mut bytes = *Uuid::new_v4().as_bytes();
    bytes.iter_mut().zip(MARK).for_each(|(byte, mark)| *byte = mark);
    Uuid::new_v8(bytes)
}

/// Whether a proposal's id was made for a call without a key.
fn is_unkeyed(id: &str) -> bool {
    Uuid::try_parse(id)
        .is_ok_and(|id| id.get_version_num() == 8 && id.as_bytes().starts_with(&MARK))
}

pub(super) struct Unanswered {
    /// In the order in which they were added.
    calls: Mutex<VecDeque<Waiting>>,
    /// How long after its end a call can be joined.
    join: Duration,
}

struct Waiting {
    sameness: CallFingerprint,
    proposal_id: ProposalId,
    /// The stream on which the client may still get the answer.
    stream: Option<Stream>,
}

impl Waiting {
    fn is(&self, sameness: CallFingerprint, proposal_id: &ProposalId) -> bool {
        self.sameness == sameness && self.proposal_id == *proposal_id
    }
}

impl Unanswered {
    pub(super) fn new(join: Duration) -> Self {
        Self { calls: Mutex::default(), join }
    }

    /// Adds a call whose answer was not delivered. The client can still get it only by resuming `stream`.
    pub(super) fn add(
        &self,
        sameness: CallFingerprint,
        proposal_id: ProposalId,
        stream: Option<Stream>,
    ) {
        let mut calls = locked(&self.calls);
        if let Some(known) = calls.iter_mut().find(|call| call.is(sameness, &proposal_id)) {
            if stream.is_none() {
                known.stream = None;
            }
            return;
        }
        calls.push_back(Waiting { sameness, proposal_id, stream });
        if calls.len() > CALLS_MAX {
            calls.pop_front();
        }
    }

    /// Takes the call that was lost with this stream: the client resumes the stream and gets the answer there.
    pub(super) fn resumed(&self, stream: &Stream) -> Option<(CallFingerprint, ProposalId)> {
        let found = self.take_first(|call| call.stream.as_ref() == Some(stream))?;
        Some((found.sameness, found.proposal_id))
    }

    fn take_first(&self, is_one: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let mut calls = locked(&self.calls);
        let at = calls.iter().position(is_one)?;
        calls.remove(at)
    }

    /// Notes that a session was dropped: its streams cannot be resumed any more.
    pub(super) fn ended(&self, session: &str) {
        for call in locked(&self.calls).iter_mut() {
            call.stream.take_if(|stream| stream.session == session);
        }
    }

    /// Forgets a call that the client names by its key: an equal call without a key is then a new call.
    pub(super) fn named(&self, sameness: CallFingerprint, proposal_id: &ProposalId) {
        locked(&self.calls).retain(|call| !call.is(sameness, proposal_id));
    }

    pub(super) fn take(&self, sameness: CallFingerprint) -> Option<ProposalId> {
        Some(self.take_first(|call| call.sameness == sameness)?.proposal_id)
    }

    /// Whether a call that ended at this time may still be joined.
    pub(super) fn is_young(&self, ended: Timestamp, now: Timestamp) -> bool {
        u128::from(now.since_ms(ended)) <= self.join.as_millis()
    }

    /// Adds a run of the process before, if it came without a key.
    pub(super) fn take_up(&self, run: &Run) {
        let Ok(Value::Object(proposal)) = serde_json::from_slice(&run.arrival.payload.bytes) else {
            return;
        };
        let text = |name: &str| proposal.get(name).and_then(Value::as_str);
        let args = proposal.get("args").and_then(Value::as_object);
        let (Some(id), Some(action), Some(args)) = (text("id"), text("action"), args) else {
            return;
        };
        if let Ok(proposal_id) = ProposalId::parse(id)
            && is_unkeyed(id)
        {
            let sameness = CallFingerprint::of(&run.arrival.principal_id, action, args);
            self.add(sameness, proposal_id, None);
        }
    }
}

#[cfg(test)]
mod tests;
