//! A connection that its callers share, so that what they ask at the same time is one round trip: for
//! what every step asks, keys and step indexes, and for what a node does about itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use stepgate_core::ids::SessionId;
use stepgate_core::lock::locked;
use stepgate_core::ports::StoreError;
use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::error;
use super::link::{Around, Failed, Query, send};
use super::open::Lines;

/// How many steps can be under way on all nodes together, at most. So many indexes are left out where the
/// database has lost the last that it gave.
const UNDER_WAY_MAX: i64 = 100_000;

/// How many sessions are remembered with their highest index.
const SESSIONS_MAX: usize = 10_000;

/// What a caller who waits for an index is told.
type Given = Result<u64, StoreError>;

/// Callers who wait for an index of a session.
#[derive(Debug, Default)]
struct Waiting {
    callers: Vec<oneshot::Sender<Given>>,
    /// The highest index that this node was given.
    highest: i64,
    /// Whether somebody is asking for them.
    is_asked: bool,
}

/// Whether what is written becomes durable before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// It does.
    Before,
    /// A little later: for what may be forgotten in a crash of the server.
    After,
}

/// The connection, made anew where it was lost.
#[derive(Debug)]
pub(super) struct Point {
    lines: Lines,
    patience: Duration,
    durability: Durability,
    client: tokio::sync::Mutex<Option<Arc<ClientWrapper>>>,
    indexes: Mutex<HashMap<SessionId, Waiting>>,
}

impl Point {
    pub(super) fn new(lines: Lines, patience: Duration, durability: Durability) -> Arc<Self> {
        let client = tokio::sync::Mutex::default();
        Arc::new(Self { lines, patience, durability, client, indexes: Mutex::default() })
    }

    /// Gives the connection back.
    pub(super) async fn stop(&self) {
        *self.client.lock().await = None;
    }

    /// Asks for rows by a key.
    pub(super) async fn ask(&self, query: Query) -> Result<Vec<Row>, StoreError> {
        let deadline = tokio::time::Instant::now() + self.patience;
        // Whoever waits for the connection waits behind all that did, each for as long as it takes to fail.
        let connecting = tokio::time::timeout_at(deadline, self.client()).await;
        let client = connecting.map_err(|_| told(Failed::Silent(self.patience)))??;
        let patience = deadline.saturating_duration_since(tokio::time::Instant::now());
        match send(&client, Around::Nothing, &[query], patience).await {
            Ok(mut rows) => Ok(rows.pop().unwrap_or_default()),
            Err(failed) => {
                if client.is_closed() || matches!(failed, Failed::Silent(_)) {
                    self.forget(&client).await;
                }
                Err(told(failed))
            }
        }
    }

    /// The next step index of a session. Who asks while another asks for the same session is given an
    /// index of the next round trip.
    pub(super) async fn next_index(self: &Arc<Self>, session_id: SessionId) -> Given {
        let (caller, given) = oneshot::channel();
        let is_first = {
            let mut indexes = self.indexes();
            make_room(&mut indexes);
            let waiting = indexes.entry(session_id).or_default();
            waiting.callers.push(caller);
            !std::mem::replace(&mut waiting.is_asked, true)
        };
        if is_first {
            // A task: a caller who leaves does not leave the others without an answer.
            tokio::spawn(Arc::clone(self).give(session_id));
        }
        let gone = |_| StoreError::Unavailable("the store is closing".into());
        given.await.map_err(gone)?
    }

    /// Gives indexes until nobody waits for one of this session.
    async fn give(self: Arc<Self>, session_id: SessionId) {
        loop {
            let (callers, highest) = {
                let mut indexes = self.indexes();
                let Some(waiting) = indexes.get_mut(&session_id) else { return };
                if waiting.callers.is_empty() {
                    waiting.is_asked = false;
                    return;
                }
                (std::mem::take(&mut waiting.callers), waiting.highest)
            };
            let count = i64::try_from(callers.len()).unwrap_or(i64::MAX);
            let last = self.reserve(session_id, count, highest).await;
            let mut callers = callers;
            if let Some(waiting) = self.indexes().get_mut(&session_id) {
                match &last {
                    Ok(last) => waiting.highest = *last,
                    // Who came meanwhile would wait for the same once more.
                    Err(_) => callers.append(&mut waiting.callers),
                }
            }
            for (caller, place) in callers.into_iter().zip(1..) {
                let given = last.clone().and_then(|last| {
                    u64::try_from(last - count + place)
                        .map_err(|_| StoreError::Unavailable("a step index is negative".into()))
                });
                // A caller who left leaves a gap, which is legal.
                let _left = caller.send(given);
            }
        }
    }

    /// Takes so many indexes, and answers the last. Higher than any that a node was given, and than any that
    /// this node was given and the database may have forgotten.
    async fn reserve(
        &self,
        session_id: SessionId,
        count: i64,
        highest: i64,
    ) -> Result<i64, StoreError> {
        let sql = "UPDATE step_indexes SET given = greatest(given, $3) + $2
                   WHERE session_id = $1 RETURNING given";
        loop {
            let values: Vec<_> = vec![
                Box::new(session_id.to_string()) as _,
                Box::new(count) as _,
                Box::new(highest) as _,
            ];
            let rows = self.ask(Query::new(sql, values)).await?;
            if let Some(given) = rows.first().and_then(|row| row.try_get(0).ok()) {
                return Ok(given);
            }
            self.number_again(session_id, highest).await?;
        }
    }

    /// Begins anew with the indexes of a session. It was numbered when it was opened: where its number is gone,
    /// the server has crashed or another one took over, and steps that were given an index before may still be
    /// under way on any node. What they can have is left out, and that is durable before the next one is given.
    async fn number_again(&self, session_id: SessionId, highest: i64) -> Result<(), StoreError> {
        let sql = "WITH raised AS (
                     UPDATE sessions
                     SET step_index_floor = greatest(step_index_floor, last_step_index, $2) + $3
                     WHERE session_id = $1 RETURNING session_id, step_index_floor,
                       set_config('synchronous_commit', 'on', true) AS durability)
                   INSERT INTO step_indexes AS index (session_id, given)
                   SELECT session_id, step_index_floor FROM raised WHERE durability = 'on'
                   ON CONFLICT (session_id) DO UPDATE
                   SET given = greatest(index.given, excluded.given) RETURNING given";
        let values: Vec<_> = vec![
            Box::new(session_id.to_string()) as _,
            Box::new(highest) as _,
            Box::new(UNDER_WAY_MAX) as _,
        ];
        let rows = self.ask(Query::new(sql, values)).await?;
        if rows.is_empty() { Err(StoreError::UnknownSession(session_id)) } else { Ok(()) }
    }

    async fn client(&self) -> Result<Arc<ClientWrapper>, StoreError> {
        let mut client = self.client.lock().await;
        if let Some(there) = &*client
            && !there.is_closed()
        {
            return Ok(Arc::clone(there));
        }
        let fresh = Arc::new(self.lines.open(self.durability).await?);
        *client = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    async fn forget(&self, lost: &Arc<ClientWrapper>) {
        let mut client = self.client.lock().await;
        if client.as_ref().is_some_and(|there| Arc::ptr_eq(there, lost)) {
            *client = None;
        }
    }

    fn indexes(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Waiting>> {
        locked(&self.indexes)
    }
}

/// Forgets the sessions that nobody waits for, where there are too many. The database knows their indexes too;
/// only where it forgets them at the same time does it go on from what it finds in its rows.
fn make_room(indexes: &mut HashMap<SessionId, Waiting>) {
    if indexes.len() >= SESSIONS_MAX {
        indexes.retain(|_, waiting| waiting.is_asked);
    }
}

/// What a failure means where nothing was to be written.
pub(super) fn told(failed: Failed) -> StoreError {
    match failed {
        Failed::Told(error) => error::while_open(&error),
        Failed::Silent(patience) => StoreError::Unavailable(format!(
            "PostgreSQL has not answered for {} seconds",
            patience.as_secs_f32().round()
        )),
    }
}

#[cfg(test)]
mod tests;
