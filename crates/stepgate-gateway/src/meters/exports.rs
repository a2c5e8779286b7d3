//! What became of spans, lines and metrics that are exported.

use std::sync::atomic::{AtomicU64, Ordering};

use stepgate_core::spelled;

spelled! {
    /// What is exported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Signal {
        /// Spans.
        Traces = "traces",
        /// Log lines.
        Logs = "logs",
        /// Metrics.
        Metrics = "metrics",
    }
}

/// Counts of records, by signal.
#[derive(Default)]
pub struct Exports {
    traces: Counts,
    logs: Counts,
    metrics: Counts,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Exports {
    fn of(&self, signal: Signal) -> &Counts {
        match signal {
            Signal::Traces => &self.traces,
            Signal::Logs => &self.logs,
            Signal::Metrics => &self.metrics,
        }
    }

    /// Counts records that the collector took.
    pub fn sent(&self, signal: Signal, records: usize) {
        add(&self.of(signal).sent, records);
    }

    /// Counts records that are lost: the queue was full, or the collector took them not.
    pub fn dropped(&self, signal: Signal, records: usize) {
        add(&self.of(signal).dropped, records);
    }

    /// Every count, with its signal and what became of the records.
    pub fn all(&self) -> impl Iterator<Item = (Signal, &'static str, u64)> {
        Signal::ALL.into_iter().flat_map(|signal| {
            let Counts { sent, dropped } = self.of(signal);
            let counts = [("sent", sent), ("dropped", dropped)];
            counts.map(|(outcome, count)| (signal, outcome, count.load(Ordering::Relaxed)))
        })
    }
}

fn add(count: &AtomicU64, records: usize) {
    count.fetch_add(u64::try_from(records).unwrap_or(u64::MAX), Ordering::Relaxed);
}
