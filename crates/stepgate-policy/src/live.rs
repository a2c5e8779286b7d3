//! The set in force. An invalid set never replaces a valid one.

use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use serde::Serialize;
use stepgate_core::digest::Digest;
use stepgate_core::lock::{self, locked};

use crate::compile::Nameable;
use crate::finding::{Finding, LoadError};
use crate::set::PolicySet;

/// The set in force, which can be replaced while steps run. Each decision uses one set from beginning to
/// end.
#[derive(Debug)]
pub struct LivePolicy {
    current: RwLock<Arc<PolicySet>>,
    /// Serializes reloads, so that an earlier read never replaces a later one.
    reloading: Mutex<()>,
    /// Whether this process can encrypt erasable arguments.
    has_payload_key: bool,
}

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Digest of the set that is in force now.
    pub policy_hash: Digest,
    /// Whether it differs from the previous one.
    pub changed: bool,
    /// How many policies it has.
    pub policies: usize,
    /// How many cases were run.
    pub cases: usize,
    /// Warnings for the operator.
    pub warnings: Vec<Finding>,
}

impl LivePolicy {
    /// Puts a set in force. A process without a payload key refuses one that makes arguments erasable.
    pub fn new(set: PolicySet, has_payload_key: bool) -> Result<Self, LoadError> {
        if !has_payload_key {
            set.refuse_without_key()?;
        }
        let current = RwLock::new(Arc::new(set));
        Ok(Self { current, reloading: Mutex::new(()), has_payload_key })
    }

    /// The set in force.
    pub fn current(&self) -> Arc<PolicySet> {
        Arc::clone(&lock::read(&self.current))
    }

    /// Replaces the set in force by the directory's present content. On an error the old set stays in force.
    ///
    /// `is_unchanged` is asked after the files were read. If it denies, they may have been read while one of them
    /// was written: then the set before stays in force, and the answer is none.
    pub fn reload<'a>(
        &self,
        directory: &Path,
        nameable: impl Into<Nameable<'a>>,
        is_unchanged: impl FnOnce() -> bool,
    ) -> Result<Option<Reloaded>, LoadError> {
        let _one_at_a_time = locked(&self.reloading);
        let loaded = PolicySet::load(directory, nameable);
        if !is_unchanged() {
            return Ok(None);
        }
        let set = loaded?;
        if !self.has_payload_key {
            set.refuse_without_key()?;
        }
        let reloaded = Reloaded {
            policy_hash: set.digest(),
            changed: set.digest() != self.current().digest(),
            policies: set.policies().count(),
            cases: set.cases(),
            warnings: set.warnings().to_vec(),
        };
        *lock::write(&self.current) = Arc::new(set);
        Ok(Some(reloaded))
    }
}
