//! Numbers from a seed: the same seed, the same figures.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A generator of its own (SplitMix64): small, and good enough to place sessions and to name steps.
#[derive(Clone, Debug)]
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Of this moment: for ids, which must not come again.
    pub(super) fn of_now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(mixed(now.as_secs()) ^ u64::from(now.subsec_nanos()))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.state)
    }

    /// Between 0 and 1, and never 0.
    pub(super) fn part(&mut self) -> f64 {
        let bits = (self.number() >> 11) + 1;
        bits as f64 / (1u64 << 53) as f64
    }

    /// A time between two things that happen by chance.
    pub(super) fn pause(&mut self, mean: f64) -> f64 {
        -mean * self.part().ln()
    }

    /// How many there are of something that goes on by chance: at least one.
    pub(super) fn run_length(&mut self, mean: f64) -> usize {
        let goes_on = 1.0 - 1.0 / mean.max(1.0);
        let mut length = 1;
        while self.part() <= goes_on {
            length += 1;
        }
        length
    }

    /// An id as a client makes it for a step: a UUID of version 4.
    pub(super) fn step_id(&mut self) -> String {
        let (high, low) = (self.number(), self.number());
        uuid((high & !0xF000) | 0x4000, low)
    }

    /// An id as a client makes it for a session: a UUID of version 7.
    pub(super) fn session_id(&mut self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let milliseconds = u64::try_from(now.as_millis()).unwrap_or_default();
        let (high, low) = (self.number(), self.number());
        uuid((milliseconds << 16) | 0x7000 | (high & 0xFFF), low)
    }
}

/// Every bit of the answer depends on every bit of the question.
pub(super) fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn uuid(high: u64, low: u64) -> String {
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFFF,
        low >> 48,
        low & 0xFFFF_FFFF_FFFF
    )
}
