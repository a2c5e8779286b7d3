//! What the limits refuse: every refusal is counted, and the log tells of the first of many.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use stepgate_core::lock;
use stepgate_core::spelled;
use tracing::warn;

/// A limit is told of again after so long without a refusal.
const QUIET: Duration = Duration::from_secs(60);

spelled! {
    /// A limit that protects callers from each other.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Limit {
        /// `serve.connections_max`: another connection gave way, or this one was refused.
        Connections = "connections",
        /// `serve.connections_per_address_max`: an older connection of the same address gave way.
        ConnectionsOfAddress = "connections_of_address",
        /// The process may open no more files: another connection gave way.
        OpenFiles = "open_files",
        /// A principal's share of the requests under way.
        RequestsUnderWay = "requests_under_way",
        /// `serve.requests_per_second_max`.
        RequestRate = "request_rate",
        /// `serve.failed_auth_per_minute_max`.
        FailedAuth = "failed_auth",
        /// A caller's share of `serve.body_memory_bytes_max`.
        BodyMemory = "body_memory",
        /// `serve.agent_bytes_per_hour_max`.
        AgentBytes = "agent_bytes",
        /// `store.free_bytes_min`.
        FreeSpace = "free_space",
    }
}

impl Limit {
    /// For the log: what happened, and what to look at.
    fn told(self) -> &'static str {
        match self {
            Self::Connections => {
                "every connection is taken (serve.connections_max): those that are not in use give way"
            }
            Self::ConnectionsOfAddress => {
                "too many connections without a token from one address \
                 (serve.connections_per_address_max): its oldest give way"
            }
            Self::OpenFiles => {
                "this process can open no more files (`ulimit -n`, LimitNOFILE): connections that are \
                 not in use give way"
            }
            Self::RequestsUnderWay => "a principal has its share of the requests under way",
            Self::RequestRate => "a principal asks too often (serve.requests_per_second_max)",
            Self::FailedAuth => {
                "too many requests without a valid token from one address \
                 (serve.failed_auth_per_minute_max)"
            }
            Self::BodyMemory => {
                "unfinished bodies take a caller's share of memory (serve.body_memory_bytes_max)"
            }
            Self::AgentBytes => {
                "an agent has sent and received too much (serve.agent_bytes_per_hour_max)"
            }
            Self::FreeSpace => {
                "the disk has less free space than store.free_bytes_min: agents are refused, operators \
                 are not"
            }
        }
    }
}

/// Counts refusals, and remembers which limits were told of.
#[derive(Default)]
pub(crate) struct Refusals {
    by_limit: Mutex<BTreeMap<Limit, Refused>>,
}

struct Refused {
    count: u64,
    last: Instant,
}

impl Refusals {
    /// Counts a refusal. `who` was refused.
    pub(crate) fn count(&self, limit: Limit, who: &dyn Display) {
        if self.is_first(limit, Instant::now()) {
            let (limit, told) = (limit.as_str(), limit.told());
            warn!(
                limit,
                "{told}; first for {who}, further ones are only counted (stepgate_refusals)"
            );
        }
    }

    /// How often each limit refused, by the label of the metric.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let by_limit = lock::locked(&self.by_limit);
        by_limit.iter().map(|(limit, refused)| (limit.as_str(), refused.count)).collect()
    }

    /// Counts a refusal, and says whether it is the first after a quiet time.
    fn is_first(&self, limit: Limit, now: Instant) -> bool {
        let mut by_limit = lock::locked(&self.by_limit);
        let count = by_limit.get(&limit).map_or(0, |refused| refused.count) + 1;
        let before = by_limit.insert(limit, Refused { count, last: now });
        before.is_none_or(|before| now.saturating_duration_since(before.last) >= QUIET)
    }
}

#[cfg(test)]
mod tests;
