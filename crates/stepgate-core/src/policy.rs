//! The built-in rule: core actions are permitted, and nothing else is.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Action;
use crate::call::Call;
use crate::digest::Digest;
use crate::ids::PrincipalId;
use crate::json::Map;
use crate::ports::{
    Policy, PolicyDecision, PolicyErasable, PolicyRequest, PolicyVerdict, Prospect,
};

/// Permits the core actions. Its digest is the digest of this sentence.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltInRule;

impl BuiltInRule {
    const NAME: &'static str = "built-in/core-actions";
}

impl Policy for BuiltInRule {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let (verdict, policies) = match request.call {
            Call::Core(_) => (PolicyVerdict::Permit, vec![Self::NAME.to_owned()]),
            Call::Server(_) => (PolicyVerdict::Deny, vec![]),
        };
        PolicyDecision {
            verdict,
            policies,
            policy_hash: Digest::of(Self::NAME),
            caps: BTreeMap::new(),
            detail: None,
            defaults: Map::new(),
            due: Vec::new(),
            erasable: PolicyErasable::default(),
        }
    }

    fn prospect(&self, _: &PrincipalId, _: &BTreeSet<String>, action: &str) -> Prospect {
        Prospect { could_permit: Action::parse(action).is_some(), could_ask: false }
    }
}
