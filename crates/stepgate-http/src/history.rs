//! The last ten minutes of this process in memory, for the small plots of the console. Metrics are for everything else.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use stepgate_core::lock;

/// The time that one sample covers.
pub(crate) const SAMPLE: Duration = Duration::from_secs(10);
const SAMPLES: usize = 60;

/// What happened during one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) requests: u32,
    pub(crate) steps: u32,
    /// The longest time that a request took.
    pub(crate) longest: Duration,
    /// How large the store was when it was last measured, in bytes.
    pub(crate) store_bytes: u64,
}

pub(crate) struct History {
    begun: Instant,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The number of the newest sample since the process began.
    newest: u64,
    samples: VecDeque<Sample>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), kept: Mutex::default() }
    }

    /// Counts something in the present sample.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Sample)) {
        let number = self.begun.elapsed().as_secs() / SAMPLE.as_secs();
        let mut kept = lock::locked(&self.kept);
        kept.advance(number);
        if let Some(sample) = kept.samples.back_mut() {
            change(sample);
        }
    }

    /// The samples, oldest first. There are always equally many: before the process began nothing happened.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.count(|_| {});
        let kept = lock::locked(&self.kept);
        let missing = SAMPLES.saturating_sub(kept.samples.len());
        let before = std::iter::repeat_n(Sample::default(), missing);
        before.chain(kept.samples.iter().copied()).collect()
    }
}

impl Kept {
    fn advance(&mut self, number: u64) {
        if self.samples.is_empty() {
            self.samples.push_back(Sample::default());
            self.newest = number;
        }
        let passed = number.saturating_sub(self.newest);
        let store_bytes = self.samples.back().map_or(0, |sample| sample.store_bytes);
        for _ in 0..passed.min(SAMPLES as u64) {
            self.samples.push_back(Sample { store_bytes, ..Sample::default() });
        }
        self.newest = self.newest.max(number);
        while self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
