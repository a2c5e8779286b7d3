//! The real clock and random numbers.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use async_trait::async_trait;
use stepgate_core::event::payload::Request;
use stepgate_core::ports::World;
use stepgate_core::time::Timestamp;
use uuid::{ContextV7, Uuid};

use crate::request;

/// Keeps ids of the same millisecond in order.
static CONTEXT: Mutex<ContextV7> = Mutex::new(ContextV7::new());

/// The real clock and UUID source.
#[derive(Clone, Copy, Debug)]
pub struct RealWorld;

#[async_trait]
impl World for RealWorld {
    fn now(&self) -> Timestamp {
        now()
    }

    fn fresh_uuid(&self) -> Uuid {
        uuid_at(SystemTime::now())
    }

    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn request(&self) -> Option<Request> {
        request::current()
    }
}

pub(crate) fn now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millisecond(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}

/// Refuses the time of a clock that was never set: every record would have a wrong time.
pub fn refuse_unset_clock(now: SystemTime) -> anyhow::Result<()> {
    ensure!(
        now >= UNIX_EPOCH,
        "the clock of this machine says that it is before 1970: set it, and start again"
    );
    Ok(())
}

/// A new UUIDv7 for this time. Times before 1970 count as 1970.
fn uuid_at(time: SystemTime) -> Uuid {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, nanoseconds) = (since_1970.as_secs(), since_1970.subsec_nanos());
    Uuid::new_v7(uuid::Timestamp::from_unix(&CONTEXT, seconds, nanoseconds))
}

#[cfg(test)]
mod tests;
