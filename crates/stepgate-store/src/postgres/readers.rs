//! The connections that read, and what becomes of one that has not answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{Object, Pool};
use stepgate_core::ports::StoreError;
use tokio_postgres::Row;

use super::error::while_waiting;
use super::link::{Around, Query, send};
use super::point::told;
use crate::Result;

/// After this time without an answer the idle connections are taken to be silent, too. Reads take milliseconds; where the
/// server is only slow, hardly any connection is idle.
const SUSPECT_AFTER: Duration = Duration::from_secs(2);

/// The rows of each query, on a connection of the pool.
///
/// The connection goes back to the pool when it has answered. If it has not, or if the caller is dropped while it waits,
/// it is closed: the pool only sees whether a connection is open, and would give it to the next caller.
pub(super) async fn ask(
    pool: &Pool,
    around: Around,
    queries: &[Query],
    patience: Duration,
) -> Result<Vec<Vec<Row>>> {
    let client = pool.get().await.map_err(|error| while_waiting(&error))?;
    let mut asked = Asked { pool, client: Some(client), since: Instant::now() };
    let Some(client) = &asked.client else {
        return Err(StoreError::Unavailable("not connected".into()));
    };
    let answer = send(client, around, queries, patience).await;
    if answer.as_ref().err().is_none_or(|failed| !failed.is_of_connection()) {
        drop(asked.client.take());
    }
    answer.map_err(told)
}

/// A connection that has not answered yet.
struct Asked<'a> {
    pool: &'a Pool,
    client: Option<Object>,
    since: Instant,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        drop(Object::take(client));
        // The idle ones lead to the same server, unless they were opened since.
        if self.since.elapsed() >= SUSPECT_AFTER {
            drop(self.pool.retain(|_, metrics| metrics.created > self.since));
        }
    }
}

/// Connections that read.
#[derive(Debug)]
pub(super) struct Readers {
    pub(super) source: Source,
    pub(super) patience: Duration,
}

#[derive(Debug)]
pub(super) enum Source {
    Pool(Pool),
    /// One connection that stays in the transaction that it was opened with.
    OneMoment(Arc<tokio::sync::Mutex<Object>>),
}

impl Readers {
    /// The rows of each query, all from one snapshot.
    pub(super) async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Row>>> {
        match &self.source {
            Source::Pool(pool) => {
                let around = if queries.len() > 1 { Around::Snapshot } else { Around::Nothing };
                ask(pool, around, queries, self.patience).await
            }
            Source::OneMoment(client) => {
                let client = client.lock().await;
                send(&client, Around::Nothing, queries, self.patience).await.map_err(told)
            }
        }
    }

    /// The rows of one query.
    pub(super) async fn rows(&self, query: Query) -> Result<Vec<Row>> {
        Ok(self.read(&[query]).await?.pop().unwrap_or_default())
    }
}
