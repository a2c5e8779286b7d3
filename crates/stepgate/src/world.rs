//! The real clock and real chance.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use stepgate_core::ports::World;
use stepgate_core::time::Timestamp;

/// The world as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealWorld;

#[async_trait]
impl World for RealWorld {
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millisecond(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }

    fn fresh_uuid(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }

    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
