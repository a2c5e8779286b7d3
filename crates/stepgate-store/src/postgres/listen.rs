//! What other nodes do: told by the server where a person decided, and looked for otherwise.

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

use super::link::{Around, send};
use super::list;
use super::open::Address;

/// How often the store is looked at for what nobody tells.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How many tellings wait at most. Whoever misses one looks.
const TELLINGS_MAX: usize = 1024;

/// How long to wait before the server is asked for a connection again.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// Where the nodes of a store tell each other something, in SQL. The name of a schema may be as long as that of
/// a channel, so it is not written out.
pub(super) const CHANNEL: &str = "'stepgate ' ||
    left(encode(sha256(convert_to(current_schema()::text, 'UTF8')), 'hex'), 32)";

/// The words of a telling.
pub(super) const DECIDED: &str = "decided";
pub(super) const ENDED: &str = "ended";

/// What came from other nodes.
#[derive(Debug)]
pub(super) struct Listener {
    hearing: Mutex<Hearing>,
    /// The last event that was there at the last look.
    seen: AtomicI64,
    pool: Pool,
    patience: Duration,
    listening: JoinHandle<()>,
}

/// What was told, and when to look for what was not.
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
    /// Begins to listen. What this node tells has its number, which it does not listen to.
    pub(super) fn start(
        address: Address,
        pool: Pool,
        patience: Duration,
        is_own: impl Fn(i64) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (tell, told) = mpsc::channel(TELLINGS_MAX);
        let listening = tokio::spawn(async move {
            loop {
                // Whatever was missed meanwhile is found by looking.
                let _ended = listen(&address, &tell, &is_own).await;
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
        });
        let hearing = Mutex::new(Hearing { told, look_at: Instant::now() + LOOK_AGAIN });
        Self { hearing, seen: AtomicI64::new(-1), pool, patience, listening }
    }

    /// Listens no more.
    pub(super) fn stop(&self) {
        self.listening.abort();
    }

    /// The next thing that another node did, or that there may be more. Looks by the clock, however much is
    /// told: tokens that are revoked, and tools that are accepted, are told to nobody.
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
                // Whoever tells is gone; the looking goes on.
                Ok(None) => tokio::time::sleep_until(*look_at).await,
                Err(_) => {}
            }
        }
    }

    /// Whether there are events that were not there at the last look.
    async fn has_more(&self) -> bool {
        let Ok(client) = self.pool.get().await else { return false };
        let query = [list::last_position()];
        let Ok(rows) = send(&client, Around::Nothing, &query, self.patience).await else {
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
    let (client, mut connection) = address.connect().await?;
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
            // One that finds no room is found by looking.
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

/// What a telling says, and who tells it.
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
