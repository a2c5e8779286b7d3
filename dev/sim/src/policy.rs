//! Policies that change while steps are under way, on one node before the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stepgate_core::budget::{AccountKey, BudgetName, Covering, Due, Per, Terms, WindowLength};
use stepgate_core::call::Call;
use stepgate_core::decimal::Decimal;
use stepgate_core::digest::Digest;
use stepgate_core::ports::{Payer, Policy, PolicyDecision, PolicyRequest, PolicyVerdict};

use crate::chance::stirred;
use crate::environment::Environment;
use crate::locked;
use crate::sabotage::Sabotage;
use crate::servers::{CHANGING, amount_of};

/// Which policies are in force where.
pub(crate) struct Policies {
    seed: u64,
    versions: Mutex<BTreeMap<u64, u64>>,
    budget: Option<Budget>,
}

/// The one budget: what all calls of the tools that change something ask for together.
struct Budget {
    limit: Decimal,
    /// What a call is charged with. Only a missing guard has another limit here.
    terms: Arc<Terms>,
}

impl Budget {
    fn of(env: &Environment) -> Option<Self> {
        let limit = Decimal::parse(&env.weather.budget?.to_string()).ok()?;
        let terms = Terms {
            name: BudgetName::parse("spent").ok()?,
            argument: Some("n".to_owned()),
            limit: match env.is_sabotaged(Sabotage::TrustReading) {
                true => Decimal::MAX,
                false => limit,
            },
            per: Per::All,
            window: WindowLength::Ever,
            zone: Terms::UTC,
        };
        Some(Self { limit, terms: Arc::new(terms) })
    }

    /// What a call takes, with its cap applied; none where the budget does not cover it.
    fn amount(&self, call: &Call, caps: &BTreeMap<String, i64>) -> Option<Decimal> {
        let Call::Server(server_call) = call else { return None };
        let cap = caps.get("n").copied().unwrap_or(i64::MAX);
        let amount = amount_of(&server_call.args).min(u64::try_from(cap).ok()?);
        let is_covered = CHANGING.contains(&call.name());
        is_covered.then(|| Decimal::parse(&amount.to_string()).ok()).flatten()
    }
}

impl Policies {
    pub(crate) fn new(env: &Environment, seed: u64) -> Self {
        let versions = (0..env.weather.nodes as u64).map(|node| (node, 0)).collect();
        Self { seed, versions: Mutex::new(versions), budget: Budget::of(env) }
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
    fn budgets(&self, _: Payer<'_>, call: &Call) -> Vec<Covering> {
        let covering = self
            .policies
            .budget
            .as_ref()
            .filter(|budget| budget.amount(call, &BTreeMap::new()).is_some());
        let keys = || vec![AccountKey::all()];
        covering
            .map(|it| Covering { terms: Arc::clone(&it.terms), keys: keys() })
            .into_iter()
            .collect()
    }

    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let policies = &self.policies;
        let version = locked(&policies.versions).get(&self.node).copied().unwrap_or(0);
        let name = request.call.name();
        let named = name.bytes().fold(0, |named: u64, byte| named.rotate_left(7) ^ u64::from(byte));
        let drawn = stirred(policies.seed ^ stirred(named ^ (version << 32)));
        let caps = match (drawn >> 8) % 4 {
            0 => BTreeMap::from([("n".to_owned(), 50)]),
            _ => BTreeMap::new(),
        };
        let budget = policies.budget.as_ref();
        let due = budget.and_then(|budget| Some((budget, budget.amount(request.call, &caps)?)));
        let is_over = due.is_some_and(|(budget, amount)| {
            let used = request.facts.used.get("spent").copied().unwrap_or_default();
            used.plus(amount).is_none_or(|sum| sum > budget.limit)
        });
        let verdict = match drawn % 10 {
            _ if is_over => PolicyVerdict::Deny,
            // What tells what became of a call is always permitted here.
            _ if name == "s.status" => PolicyVerdict::Permit,
            0..=6 => PolicyVerdict::Permit,
            7 | 8 => PolicyVerdict::RequireApproval("chance".into()),
            _ => PolicyVerdict::Deny,
        };
        let due = due.map(|(budget, amount)| Due { terms: Arc::clone(&budget.terms), amount });
        PolicyDecision {
            verdict,
            policies: vec![format!("policy-{version}")],
            policy_hash: Digest::of_bytes(&version.to_le_bytes()),
            caps,
            detail: None,
            defaults: Default::default(),
            due: due.into_iter().collect(),
            erasable: Default::default(),
        }
    }
}
