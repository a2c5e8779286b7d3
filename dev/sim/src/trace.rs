//! What happened, in order. Its digest is the same for two runs of one seed, or chance came from elsewhere.

use stepgate_core::ids::RunId;
use uuid::Uuid;

use crate::chance::stirred;
use crate::schedule::Instant;

/// The events of one simulation.
#[derive(Debug)]
pub(crate) struct Trace {
    is_shown: bool,
    digest: u64,
    events: u64,
    lines: Vec<String>,
}

impl Trace {
    /// A trace that keeps its lines, or only their digest.
    pub(crate) fn new(is_shown: bool) -> Self {
        Self { is_shown, digest: 0, events: 0, lines: Vec::new() }
    }

    pub(crate) fn note(
        &mut self,
        now: Instant,
        what: &'static str,
        place: u64,
        about: u64,
        text: impl FnOnce() -> String,
    ) {
        self.events += 1;
        let name = what.bytes().fold(0, |name: u64, byte| name.rotate_left(5) ^ u64::from(byte));
        for part in [now, name, place, about] {
            self.digest = stirred(self.digest ^ part);
        }
        if self.is_shown {
            let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
            self.lines.push(format!("{seconds:>4}.{micros:06}  n{place}  {what:<12} {}", text()));
        }
    }

    /// The digest of everything so far.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// How many events there were.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The lines, where they were kept.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

/// The part of a run's id by which people tell it from others.
pub(crate) fn short(run_id: RunId) -> String {
    run_id.to_string().chars().rev().take(6).collect::<Vec<_>>().into_iter().rev().collect()
}

/// A run, a key or a text as a number, for the trace's digest.
pub(crate) fn number_of(id: Uuid) -> u64 {
    let (high, low) = id.as_u64_pair();
    high ^ low
}
