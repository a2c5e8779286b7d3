//! The built-in rule: core actions are permitted, and nothing else exists to be asked about.

use crate::digest::Digest;
use crate::ports::{Policy, PolicyDecision, PolicyRequest, PolicyVerdict};

/// Permits the core actions. Its digest is the digest of this sentence.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltInRule;

impl BuiltInRule {
    const NAME: &'static str = "built-in/core-actions";
}

impl Policy for BuiltInRule {
    fn decide(&self, _: PolicyRequest<'_>) -> PolicyDecision {
        PolicyDecision {
            verdict: PolicyVerdict::Permit,
            policies: vec![Self::NAME.to_owned()],
            policy_hash: Digest::of(Self::NAME),
        }
    }
}
