//! Figures of this process for `/metrics`. A step adds to atomics: nothing here waits, and no figure allocates once
//! its label is known.
//!
//! Times come from the spans of `stepgate_core::spans`, which a process has one subscriber for; so they are of the
//! process. Steps are counted by the service that takes them.

mod exports;
mod histogram;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, RwLock};

use stepgate_core::failure::Phase;
use stepgate_core::lock;

pub use exports::{Exports, Signal};
pub use histogram::{Histogram, Snapshot};
pub use steps::{ActionLabel, StepCounts};

/// Most actions and tools with figures of their own. The figures of further ones are added up under [`OTHER`].
pub const LABELS_MAX: usize = 256;
/// The label of everything beyond [`LABELS_MAX`].
pub const OTHER: &str = "other";

/// The figures that come from spans.
pub static METERS: LazyLock<Meters> = LazyLock::new(Meters::new);

/// How long the parts of steps take.
pub struct Meters {
    phases: [Histogram; Phase::ALL.len()],
    tools: Labelled<Histogram>,
    /// How long commits take, as their callers wait for them.
    pub commits: Histogram,
    /// How many writes share a transaction.
    pub batch_writes: Histogram,
    /// How long a model takes to answer, with its retries.
    pub model_calls: Histogram,
    /// Runs that this node took from another one, which is gone.
    pub takeovers: AtomicU64,
    /// Runs that recovery finished.
    pub recovered: AtomicU64,
    /// What became of the records for a collector.
    pub exports: Exports,
}

impl Meters {
    fn new() -> Self {
        Self {
            phases: Phase::ALL.map(|_| Histogram::of_seconds()),
            tools: Labelled::new(Histogram::of_seconds),
            commits: Histogram::of_seconds(),
            batch_writes: Histogram::of_counts(),
            model_calls: Histogram::of_seconds(),
            takeovers: AtomicU64::new(0),
            recovered: AtomicU64::new(0),
            exports: Exports::default(),
        }
    }

    /// How long the phase of this name takes.
    pub fn phase(&self, name: &str) -> Option<&Histogram> {
        let mut phases = Phase::ALL.into_iter().zip(&self.phases);
        phases.find(|(phase, _)| phase.as_str() == name).map(|(_, meter)| meter)
    }

    /// How long calls of a tool take.
    pub fn tool(&self, name: &str) -> Arc<Histogram> {
        self.tools.of(name)
    }

    /// The phases.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, Snapshot)> {
        Phase::ALL.into_iter().zip(self.phases.iter().map(Histogram::snapshot))
    }

    /// The tools that were called, by name.
    pub fn tools(&self) -> Vec<(String, Snapshot)> {
        self.tools.all(Histogram::snapshot)
    }

    pub(crate) fn count_recovered(&self, runs: usize) {
        self.recovered.fetch_add(u64::try_from(runs).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Figures by label, at most [`LABELS_MAX`] of them and one for all others.
pub(crate) struct Labelled<T> {
    known: RwLock<HashMap<String, Arc<T>>>,
    other: Arc<T>,
    fresh: fn() -> T,
}

impl<T> Labelled<T> {
    pub(crate) fn new(fresh: fn() -> T) -> Self {
        Self { known: RwLock::default(), other: Arc::new(fresh()), fresh }
    }

    /// The figure of a label. A reader's lock: only a label that is new waits for others.
    pub(crate) fn of(&self, label: &str) -> Arc<T> {
        if let Some(known) = lock::read(&self.known).get(label) {
            return Arc::clone(known);
        }
        let mut known = lock::write(&self.known);
        if known.len() >= LABELS_MAX && !known.contains_key(label) {
            return Arc::clone(&self.other);
        }
        Arc::clone(known.entry(label.to_owned()).or_insert_with(|| Arc::new((self.fresh)())))
    }

    /// What every label has, in the order of the labels; [`OTHER`] is last, once there are too many.
    pub(crate) fn all<R>(&self, read: impl Fn(&T) -> R) -> Vec<(String, R)> {
        let known = lock::read(&self.known);
        let mut all: Vec<_> = known.iter().map(|(label, it)| (label.clone(), read(it))).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        if known.len() >= LABELS_MAX {
            all.push((OTHER.to_owned(), read(&self.other)));
        }
        all
    }
}
