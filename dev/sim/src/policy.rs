//! Policies that change while steps are under way, on one node before the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stepgate_core::digest::Digest;
use stepgate_core::ports::{Policy, PolicyDecision, PolicyRequest, PolicyVerdict};

use crate::chance::stirred;
use crate::locked;

/// Which policies are in force where.
pub(crate) struct Policies {
    seed: u64,
    versions: Mutex<BTreeMap<u64, u64>>,
}

impl Policies {
    pub(crate) fn new(nodes: usize, seed: u64) -> Self {
        let versions = (0..nodes as u64).map(|node| (node, 0)).collect();
        Self { seed, versions: Mutex::new(versions) }
    }

    /// Puts another set in force on a node.
    pub(crate) fn change(&self, node: u64) {
        *locked(&self.versions).entry(node).or_default() += 1;
    }
}

/// The policies of one node.
pub(crate) struct NodePolicy {
    pub(crate) policies: Arc<Policies>,
    pub(crate) node: u64,
}

impl Policy for NodePolicy {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let policies = &self.policies;
        let version = locked(&policies.versions).get(&self.node).copied().unwrap_or(0);
        let name = request.call.name();
        let named = name.bytes().fold(0, |named: u64, byte| named.rotate_left(7) ^ u64::from(byte));
        let drawn = stirred(policies.seed ^ stirred(named ^ (version << 32)));
        let verdict = match drawn % 10 {
            // What tells what became of a call is always permitted here.
            _ if name == "s.status" => PolicyVerdict::Permit,
            0..=6 => PolicyVerdict::Permit,
            7 | 8 => PolicyVerdict::RequireApproval("chance".into()),
            _ => PolicyVerdict::Deny,
        };
        let caps = match (drawn >> 8) % 4 {
            0 => BTreeMap::from([("n".to_owned(), 50)]),
            _ => BTreeMap::new(),
        };
        PolicyDecision {
            verdict,
            policies: vec![format!("policy-{version}")],
            policy_hash: Digest::of_bytes(&version.to_le_bytes()),
            caps,
            detail: None,
            defaults: Default::default(),
        }
    }
}
