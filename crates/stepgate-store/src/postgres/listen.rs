//! Changes by other nodes: notifications from the server for decisions of people, and polling for the rest.

use std::future::poll_fn;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use deadpool_postgres::Pool;
use stepgate_core::ids::RunId;
use stepgate_core::ports::Announcement;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::AsyncMessage;

use super::link::{Around, Query};
use super::open::Address;
use super::readers::ask;
use crate::select;
use crate::tables::EVENTS;

/// Poll interval for changes without a notification.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Limit of the queued notifications. A lost notification is found by the next poll.
const TELLINGS_MAX: usize = 1024;

/// Pause before a reconnect.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// The notification channel of a store's nodes, in SQL. A schema's name can be as long as a channel's name,
/// so its hash is used.
pub(super) const CHANNEL: &str = "'stepgate ' ||
    left(encode(sha256(convert_to(current_schema()::text, 'UTF8')), 'hex'), 32)";

/// The first words of a notification.
pub(super) const DECIDED: &str = "decided";
pub(super) const ENDED: &str = "ended";

/// Receives changes by other nodes.
#[derive(Debug)]
pub(super) struct Listener {
    hearing: Mutex<Hearing>,
    /// The last event at the last poll.
    seen: AtomicI64,
    pool: Pool,
    patience: Duration,
    listening: JoinHandle<()>,
}

/// The queue of notifications, and the time of the next poll.
#[derive(Debug)]
struct Hearing {
    told: mpsc::Receiver<Announcement>,
    look_at: Instant,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Listener {
    /// Starts listening. Notifications carry the number of their node, so that a node ignores its own.
    pub(super) fn start(
        address: Address,
        pool: Pool,
        patience: Duration,
        is_own: impl Fn(i64) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (tell, told) = mpsc::channel(TELLINGS_MAX);
        let listening = tokio::spawn(async move {
            loop {
                // Changes that are missed meanwhile are found by polling.
                let _ended = listen(&address, &tell, &is_own).await;
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
        });
        let hearing = Mutex::new(Hearing { told, look_at: Instant::now() + LOOK_AGAIN });
        Self { hearing, seen: AtomicI64::new(-1), pool, patience, listening }
    }

    pub(super) fn stop(&self) {
        self.listening.abort();
    }

    /// The next change by another node, or that there may be more. It polls on time however many
    /// notifications come: revoked tokens and accepted tools are not notified.
    pub(super) async fn next(&self) -> Announcement {
        let mut hearing = self.hearing.lock().await;
        let Hearing { told, look_at } = &mut *hearing;
        loop {
            if Instant::now() >= *look_at {
                let has_more = self.has_more().await;
                *look_at = Instant::now() + LOOK_AGAIN;
                if has_more {
                    return Announcement::More;
                }
            }
            match tokio::time::timeout_at(*look_at, told.recv()).await {
                Ok(Some(elsewhere)) => return elsewhere,
                // The listening task has ended; polling continues.
                Ok(None) => tokio::time::sleep_until(*look_at).await,
                Err(_) => {}
            }
        }
    }

    /// Whether there are events since the last poll.
    async fn has_more(&self) -> bool {
        let query = [Query::from(select::last_position(EVENTS))];
        let Ok(rows) = ask(&self.pool, Around::Nothing, &query, self.patience).await else {
            return false;
        };
        let row = rows.first().and_then(|rows| rows.first());
        let last: i64 = row.and_then(|row| row.try_get(0).ok()).unwrap_or_default();
        self.seen.swap(last, Ordering::Relaxed) != last
    }
}

async fn listen(
    address: &Address,
    tell: &mpsc::Sender<Announcement>,
    is_own: &(impl Fn(i64) -> bool + Send + Sync),
) -> Result<(), tokio_postgres::Error> {
    let Some((client, mut connection)) = address.connect().await else { return Ok(()) };
    let hearing = async {
        loop {
            let message = poll_fn(|context| connection.poll_message(context)).await;
            let Some(message) = message else { return Ok(()) };
            let AsyncMessage::Notification(telling) = message? else { continue };
            let heard = match heard(telling.payload()) {
                Some((_, incarnation)) if is_own(incarnation) => continue,
                Some((elsewhere, _)) => elsewhere,
                None => Announcement::More,
            };
            // If the queue is full, the change is found by polling.
            let _told = tell.try_send(heard);
        }
    };
    let asking = async {
        let sql = format!("SELECT format('LISTEN %I', {CHANNEL})");
        let row = client.query_typed_one(&sql, &[]).await?;
        client.batch_execute(row.get(0)).await?;
        // The connection lives as long as its client.
        std::future::pending::<Result<(), tokio_postgres::Error>>().await
    };
    tokio::select! {
        ended = hearing => ended,
        ended = asking => ended,
    }
}

/// The content of a notification, and the node that sent it.
fn heard(telling: &str) -> Option<(Announcement, i64)> {
    let mut words = telling.split(' ');
    let (word, run_id, incarnation) = (words.next()?, words.next()?, words.next()?);
    let run_id = RunId::from_str(run_id).ok()?;
    let elsewhere = match word {
        DECIDED => Announcement::Decided(run_id),
        ENDED => Announcement::Ended(run_id),
        _ => return None,
    };
    Some((elsewhere, incarnation.parse().ok()?))
}
