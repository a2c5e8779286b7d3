//! Rate limits by token buckets: requests and bytes per principal, and failed authentications per address.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Instant;

use stepgate_core::ids::PrincipalId;
use stepgate_core::lock;

use super::ServeConfig;
use crate::network::Network;

/// Most buckets of one kind. Above that full buckets are dropped, and if that is not enough, all.
const BUCKETS_MAX: usize = 10_000;
/// A body costs one more request for each so many bytes, because it is recorded.
const BYTES_PER_REQUEST: u64 = 4096;

pub(super) struct Rates {
    principals: Buckets<PrincipalId>,
    failures: Buckets<Network>,
    /// What agents sent and received.
    bytes: Buckets<PrincipalId>,
}

impl Rates {
    pub(super) fn new(limits: &ServeConfig) -> Self {
        let failures = f64::from(limits.failed_auth_per_minute_max);
        let hourly = float(limits.agent_bytes_per_hour_max);
        Self {
            principals: Buckets::new(
                f64::from(limits.requests_per_second_max),
                f64::from(limits.requests_burst_max),
            ),
            failures: Buckets::new(failures / 60.0, failures),
            bytes: Buckets::new(hourly / 3600.0, hourly),
        }
    }

    /// Takes one request of a principal. The error is the number of seconds to wait.
    pub(super) fn request(&self, principal: &PrincipalId) -> Result<(), u64> {
        self.principals.take(principal, 1.0)
    }

    /// Charges a body, besides its request. The body has already been read, so this never fails: the next request
    /// waits instead.
    pub(super) fn body(&self, principal: &PrincipalId, bytes: u64) {
        let further = u32::try_from(bytes / BYTES_PER_REQUEST).unwrap_or(u32::MAX);
        if further > 0 {
            self.principals.charge(principal, f64::from(further));
        }
    }

    /// Takes one failed authentication of an address. The error is the number of seconds to wait.
    pub(super) fn failure(&self, network: Network) -> Result<(), u64> {
        self.failures.take(&network, 1.0)
    }

    /// Whether an agent may send more. The error is the number of seconds to wait.
    pub(super) fn may_send(&self, agent: &PrincipalId) -> Result<(), u64> {
        self.bytes.take(agent, 0.0)
    }

    /// Charges what an agent sent or received. It has been read or made already, so this never fails: the next request
    /// waits instead.
    pub(super) fn sent(&self, agent: &PrincipalId, bytes: u64) {
        self.bytes.charge(agent, float(bytes));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate limit needs no exact bytes above 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

struct Buckets<K> {
    per_second: f64,
    burst: f64,
    levels: Mutex<HashMap<K, Level>>,
}

#[derive(Clone, Copy)]
struct Level {
    left: f64,
    at: Instant,
}

impl<K: Clone + Eq + Hash> Buckets<K> {
    fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst, levels: Mutex::default() }
    }

    fn take(&self, key: &K, cost: f64) -> Result<(), u64> {
        self.at(key, |level| {
            if level.left >= cost {
                level.left -= cost;
                return Ok(());
            }
            let seconds = ((cost - level.left) / self.per_second).ceil().clamp(1.0, 3600.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            Err(seconds as u64)
        })
    }

    fn charge(&self, key: &K, cost: f64) {
        self.at(key, |level| level.left = (level.left - cost).max(-self.burst));
    }

    fn at<T>(&self, key: &K, change: impl FnOnce(&mut Level) -> T) -> T {
        let now = Instant::now();
        let refilled = |level: &Level| {
            let gained = now.saturating_duration_since(level.at).as_secs_f64() * self.per_second;
            (level.left + gained).min(self.burst)
        };
        let mut levels = lock::locked(&self.levels);
        if levels.len() >= BUCKETS_MAX && !levels.contains_key(key) {
            levels.retain(|_, level| refilled(level) < self.burst);
            if levels.len() >= BUCKETS_MAX {
                levels.clear();
            }
        }
        let level = levels.entry(key.clone()).or_insert(Level { left: self.burst, at: now });
        *level = Level { left: refilled(level), at: now };
        change(level)
    }
}

#[cfg(test)]
mod tests;
