//! Calls whose answer nobody has got. MCP tells clients to send a lost call again under a new id, and
//! without a key nothing in the second call names the first: here it is found by what it asks.
//!
//! A call comes in here when its answer's stream broke, when it was answered with a notice or with an
//! error of the gateway's own only, or when the gateway stopped before it was over. The same call of the same principal takes it out, and
//! gets its answer. Two calls that are both alive are two calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepgate_core::digest::Digest;
use stepgate_core::ids::{PrincipalId, ProposalId};
use stepgate_core::json::{Map, Value};
use stepgate_core::run::Run;
use stepgate_core::time::Timestamp;
use uuid::Uuid;

/// Most calls that are remembered. Beyond them the oldest is forgotten: its call again is a new call.
const CALLS_MAX: usize = 10_000;
/// What the ids of calls without a key begin with, so that a later process knows them.
const MARK: [u8; 6] = *b"mcpcal";

/// A stream of a session's, which its client can take up where it broke.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stream {
    pub(super) session: String,
    pub(super) number: u64,
}

/// What makes two calls the same: who asks, for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sameness(Digest);

impl Sameness {
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

/// The calls.
pub(super) struct Unanswered {
    calls: Mutex<Calls>,
    /// How long after its end a call can be joined.
    join: Duration,
}

#[derive(Default)]
struct Calls {
    by_sameness: HashMap<Sameness, VecDeque<ProposalId>>,
    /// In the order in which they came; some may have been taken out since.
    order: VecDeque<Waiting>,
}

struct Waiting {
    sameness: Sameness,
    proposal_id: ProposalId,
    /// The stream over which the client may still get the answer.
    stream: Option<Stream>,
}

impl Unanswered {
    pub(super) fn new(join: Duration) -> Self {
        Self { calls: Mutex::default(), join }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody has got the answer of this call, and nobody will, but perhaps over this stream.
    pub(super) fn add(&self, sameness: Sameness, proposal_id: ProposalId, stream: Option<Stream>) {
        let mut calls = self.calls();
        let same = calls.by_sameness.entry(sameness).or_default();
        if same.contains(&proposal_id) {
            if stream.is_none() {
                calls.unbind(|waiting| waiting.proposal_id == proposal_id);
            }
            return;
        }
        same.push_back(proposal_id.clone());
        calls.order.push_back(Waiting { sameness, proposal_id, stream });
        if calls.order.len() > CALLS_MAX
            && let Some(Waiting { sameness, proposal_id, .. }) = calls.order.pop_front()
        {
            calls.forget(sameness, &proposal_id);
        }
    }

    /// A client takes up this stream, so it gets the answer of the call that was lost with it.
    pub(super) fn resumed(&self, stream: &Stream) -> Option<(Sameness, ProposalId)> {
        let mut calls = self.calls();
        let waiting = calls.order.iter().find(|waiting| waiting.stream.as_ref() == Some(stream))?;
        let (sameness, proposal_id) = (waiting.sameness, waiting.proposal_id.clone());
        calls.forget(sameness, &proposal_id);
        Some((sameness, proposal_id))
    }

    /// The session is let go: nobody takes up its streams any more.
    pub(super) fn ended(&self, session: &str) {
        let is_its = |stream: &Stream| stream.session == session;
        self.calls().unbind(|waiting| waiting.stream.as_ref().is_some_and(is_its));
    }

    /// The client asks after this call by its name, so the same call without a name is another one.
    pub(super) fn named(&self, sameness: Sameness, proposal_id: &ProposalId) {
        self.calls().forget(sameness, proposal_id);
    }

    /// The oldest call that is the same, if there is one.
    pub(super) fn take(&self, sameness: Sameness) -> Option<ProposalId> {
        let mut calls = self.calls();
        let proposal_id = calls.by_sameness.get(&sameness)?.front()?.clone();
        calls.forget(sameness, &proposal_id);
        Some(proposal_id)
    }

    /// Whether a call that ended then may still be joined.
    pub(super) fn is_young(&self, ended: Timestamp, now: Timestamp) -> bool {
        u128::from(now.since_ms(ended)) <= self.join.as_millis()
    }

    /// A run that was under way when the gateway stopped, where it came without a key.
    pub(super) fn take_up(&self, run: &Run) {
        let Ok(Value::Object(proposal)) = serde_json::from_slice(&run.arrival.payload.bytes) else {
            return;
        };
        let text = |name: &str| proposal.get(name).and_then(Value::as_str);
        let args = proposal.get("args").and_then(Value::as_object);
        let (Some(id), Some(action), Some(args)) = (text("id"), text("action"), args) else {
            return;
        };
        if !is_unkeyed(id) {
            return;
        }
        if let Ok(proposal_id) = ProposalId::parse(id) {
            self.add(Sameness::of(&run.arrival.principal_id, action, args), proposal_id, None);
        }
    }
}

impl Calls {
    /// No stream gives the answer of these any more.
    fn unbind(&mut self, is_one: impl Fn(&Waiting) -> bool) {
        for waiting in self.order.iter_mut().filter(|waiting| is_one(waiting)) {
            waiting.stream = None;
        }
    }

    fn forget(&mut self, sameness: Sameness, proposal_id: &ProposalId) {
        if let Some(same) = self.by_sameness.get_mut(&sameness) {
            same.retain(|other| other != proposal_id);
            if same.is_empty() {
                self.by_sameness.remove(&sameness);
            }
        }
        self.order.retain(|waiting| waiting.proposal_id != *proposal_id);
    }
}

#[cfg(test)]
mod tests;
