//! A histogram of atomics: observers never wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BOUNDS: usize = 12;
/// In nanoseconds: from a phase that only looks to a person who takes a minute.
const TIMES: [u64; BOUNDS] = [
    10_000,
    50_000,
    250_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    50_000_000,
    250_000_000,
    1_000_000_000,
    10_000_000_000,
    60_000_000_000,
];
/// Up to the largest batch that a store is configured for.
const COUNTS: [u64; BOUNDS] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
const NANOSECONDS: f64 = 1e9;

/// How often a value was at most each of the bounds.
pub struct Histogram {
    bounds: &'static [u64; BOUNDS],
    /// How many units are one of the unit that is shown.
    scale: f64,
    /// The values above the bound before, up to their own; the last ones are above all bounds.
    buckets: [AtomicU64; BOUNDS + 1],
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The sum of all values.
    pub sum: f64,
    /// Each bound, with how many values are above the bound before and at most this one; the last bound is `f64::INFINITY`.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// A histogram of times, in seconds.
    pub fn of_seconds() -> Self {
        Self::new(&TIMES, NANOSECONDS)
    }

    /// A histogram of counts.
    pub fn of_counts() -> Self {
        Self::new(&COUNTS, 1.0)
    }

    fn new(bounds: &'static [u64; BOUNDS], scale: f64) -> Self {
        Self { bounds, scale, buckets: Default::default(), sum: AtomicU64::new(0) }
    }

    /// Notes a time.
    pub fn observe_time(&self, took: Duration) {
        self.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Notes a value.
    pub fn observe(&self, value: u64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was noted so far. Values that come meanwhile may be in the sum and not yet in a bucket.
    pub fn snapshot(&self) -> Snapshot {
        let bounds = self.bounds.iter().map(|bound| as_f64(*bound) / self.scale);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        Snapshot {
            sum: as_f64(self.sum.load(Ordering::Relaxed)) / self.scale,
            buckets: bounds.chain([f64::INFINITY]).zip(counts).collect(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures are shown as 64-bit floats")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
