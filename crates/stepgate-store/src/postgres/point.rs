//! A connection that its callers share, so that concurrent queries share a round trip. It serves the
//! look-ups of every step (keys and step indexes) and a node's own bookkeeping.

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
use crate::Result;
use crate::tables::Cell;

/// Limit of the steps in progress on all nodes together. This many indexes are skipped where the database
/// has lost the last index that it gave.
const UNDER_WAY_MAX: i64 = 100_000;

/// Limit of the sessions that are cached with their highest index.
const SESSIONS_MAX: usize = 10_000;

/// The answer to a caller that waits for an index.
type Given = Result<u64>;

/// Callers that wait for an index of a session.
#[derive(Debug, Default)]
struct Waiting {
    callers: Vec<oneshot::Sender<Given>>,
    /// The highest index that this node was given.
    highest: i64,
    /// Whether a task is already asking for them.
    is_asked: bool,
}

/// Whether a write is durable before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// It is.
    Before,
    /// A little later: for data that a crash of the server may lose.
    After,
}

/// The connection; it is reopened where it was lost.
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

    pub(super) async fn stop(&self) {
        *self.client.lock().await = None;
    }

    /// Queries rows by a key.
    pub(super) async fn ask(&self, query: Query) -> Result<Vec<Row>> {
        let deadline = tokio::time::Instant::now() + self.patience;
        // A deadline for both: callers queue for the connection, and each in front may take as long as its
        // attempt to connect takes to fail.
        let connecting = tokio::time::timeout_at(deadline, self.client()).await;
        let client = connecting.map_err(|_| told(Failed::Silent(self.patience)))??;
        let patience = deadline.saturating_duration_since(tokio::time::Instant::now());
        match send(&client, Around::Nothing, &[query], patience).await {
            Ok(mut rows) => Ok(rows.pop().unwrap_or_default()),
            Err(failed) => {
                if client.is_closed() || failed.is_of_connection() {
                    self.forget(&client).await;
                }
                Err(told(failed))
            }
        }
    }

    /// The next step index of a session. A caller that asks while another one asks for the same session gets
    /// an index from the next round trip.
    pub(super) async fn next_index(self: &Arc<Self>, session_id: SessionId) -> Given {
        let (caller, given) = oneshot::channel();
        let is_first = {
            let mut indexes = locked(&self.indexes);
            make_room(&mut indexes);
            let waiting = indexes.entry(session_id).or_default();
            waiting.callers.push(caller);
            !std::mem::replace(&mut waiting.is_asked, true)
        };
        if is_first {
            // A separate task: if the first caller is dropped, the others still get an answer.
            tokio::spawn(Arc::clone(self).give(session_id));
        }
        let gone = |_| StoreError::Unavailable("the store is closing".into());
        given.await.map_err(gone)?
    }

    /// Gives indexes until no caller waits for one of this session.
    async fn give(self: Arc<Self>, session_id: SessionId) {
        loop {
            let (callers, highest) = {
                let mut indexes = locked(&self.indexes);
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
            if let Some(waiting) = locked(&self.indexes).get_mut(&session_id) {
                match &last {
                    Ok(last) => waiting.highest = *last,
                    // Callers that came meanwhile would only wait for the same error.
                    Err(_) => callers.append(&mut waiting.callers),
                }
            }
            for (caller, place) in callers.into_iter().zip(1..) {
                let given = last.clone().and_then(|last| {
                    u64::try_from(last - count + place)
                        .map_err(|_| StoreError::Unavailable("a step index is negative".into()))
                });
                // A caller that was dropped leaves a gap, which is legal.
                let _left = caller.send(given);
            }
        }
    }

    /// Reserves `count` indexes, and returns the last. They are higher than any index that a node was given,
    /// including those of this node that the database may have lost.
    async fn reserve(&self, session_id: SessionId, count: i64, highest: i64) -> Result<i64> {
        let sql = "UPDATE step_indexes SET given = greatest(given, $3) + $2
                   WHERE session_id = $1 RETURNING given";
        loop {
            let values = [Cell::text_of(session_id), Cell::Number(count), Cell::Number(highest)];
            let rows = self.ask(Query::of(sql, values)).await?;
            if let Some(given) = rows.first().and_then(|row| row.try_get(0).ok()) {
                return Ok(given);
            }
            self.number_again(session_id, highest).await?;
        }
    }

    /// Restarts the indexes of a session. A session gets its counter when it is opened. If the counter is
    /// gone, the server has crashed or another one took over, and steps with an earlier index may still be
    /// in progress on any node. Their possible indexes are skipped, and that is durable before the next
    /// index is given.
    async fn number_again(&self, session_id: SessionId, highest: i64) -> Result<()> {
        let sql = "WITH raised AS (
                     UPDATE sessions
                     SET step_index_floor = greatest(step_index_floor, last_step_index, $2) + $3
                     WHERE session_id = $1 RETURNING session_id, step_index_floor,
                       set_config('synchronous_commit', 'on', true) AS durability)
                   INSERT INTO step_indexes AS index (session_id, given)
                   SELECT session_id, step_index_floor FROM raised WHERE durability = 'on'
                   ON CONFLICT (session_id) DO UPDATE
                   SET given = greatest(index.given, excluded.given) RETURNING given";
        let (highest, under_way) = (Cell::Number(highest), Cell::Number(UNDER_WAY_MAX));
        let values = [Cell::text_of(session_id), highest, under_way];
        let rows = self.ask(Query::of(sql, values)).await?;
        if rows.is_empty() { Err(StoreError::UnknownSession(session_id)) } else { Ok(()) }
    }

    async fn client(&self) -> Result<Arc<ClientWrapper>> {
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
}

/// Evicts the sessions that no caller waits for, where there are too many. The database has their indexes
/// too; only if it loses them at the same time does it continue from its rows.
fn make_room(indexes: &mut HashMap<SessionId, Waiting>) {
    if indexes.len() >= SESSIONS_MAX {
        indexes.retain(|_, waiting| waiting.is_asked);
    }
}

/// The meaning of a failure where nothing was to be written.
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
