//! Cache of what the sessions that were used last have been given.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::ids::SessionId;
use crate::lock::locked;
use crate::session_values::{News, ReadUpTo, SessionValues};

/// Most sessions whose values are kept in memory.
const SESSIONS_MAX: usize = 1000;
/// Most values that are kept in memory, of all sessions together.
const VALUES_MAX: usize = 1_000_000;

/// What the sessions that were used last have been given.
#[derive(Clone, Debug, Default)]
pub struct SessionCache(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    sessions: HashMap<SessionId, KeptSession>,
    /// Counts uses, so that the session that was not used for longest is known.
    uses: u64,
}

#[derive(Debug)]
struct KeptSession {
    given: Given,
    used: u64,
    /// How many values it had when it was used last.
    count: usize,
}

/// What a session has been given, as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct Given(Arc<Mutex<SessionValues>>);

impl Given {
    pub(crate) fn values(&self) -> MutexGuard<'_, SessionValues> {
        locked(&self.0)
    }
}

impl SessionCache {
    /// What is known of a session. It may have to be read on.
    pub(crate) fn given(&self, session_id: SessionId) -> Given {
        let mut kept = locked(&self.0);
        kept.uses += 1;
        let used = kept.uses;
        let fresh = || KeptSession { given: Given::default(), used, count: 0 };
        let session = kept.sessions.entry(session_id).or_insert_with(fresh);
        session.used = used;
        session.given.clone()
    }

    /// Takes in what a read found that went on from `before`. The error is the number of another read that came in
    /// between: then nothing is taken in, because it may have been taken in by that one.
    pub(crate) fn take_in(
        &self,
        session_id: SessionId,
        given: &Given,
        (number, before): (u64, &ReadUpTo),
        news: News,
    ) -> Result<(), u64> {
        let mut values = given.values();
        let last = values.read_up_to().number;
        if last != before.number {
            return Err(last);
        }
        values.take_in(number, news);
        let count = values.count();
        drop(values);
        self.keep_within_limits(session_id, count);
        Ok(())
    }

    /// Forgets the sessions that were not used for longest. They are read again when they are used.
    fn keep_within_limits(&self, session_id: SessionId, count: usize) {
        let mut kept = locked(&self.0);
        if let Some(session) = kept.sessions.get_mut(&session_id) {
            session.count = count;
        }
        loop {
            let total: usize = kept.sessions.values().map(|session| session.count).sum();
            if kept.sessions.len() <= SESSIONS_MAX && total <= VALUES_MAX {
                return;
            }
            let others = kept.sessions.iter().filter(|(id, _)| **id != session_id);
            let oldest = others.min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            let Some(oldest) = oldest else { return };
            kept.sessions.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
