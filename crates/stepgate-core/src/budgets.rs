//! What a call is charged: the accounts are read before the decision, so that policies can know them, and charged in
//! the commit that makes the call durable. The reading is a fact; only the commit enforces the limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::{Account, Charge, Covering, Due, Terms};
use crate::call::Call;
use crate::decimal::Decimal;
use crate::gate::Gate;
use crate::ids::{PrincipalId, SessionId};
use crate::ports::{Payer, StoreError};

/// The accounts that a call would be charged to, and how much of each was used when they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts(Vec<Read>);

#[derive(Clone, Debug)]
struct Read {
    terms: Arc<Terms>,
    account: Account,
    used: Decimal,
}

impl Accounts {
    /// Reads the accounts of a call in the windows of now.
    pub(crate) async fn read(
        gate: &Gate,
        principal_id: &PrincipalId,
        session_id: SessionId,
        call: &Call,
    ) -> Result<Self, StoreError> {
        let groups = gate.groups.of(principal_id);
        let payer = Payer { principal_id, session_id, groups: &groups };
        let covering = gate.policy.budgets(payer, call);
        if covering.is_empty() {
            return Ok(Self::default());
        }
        let now = gate.world.now();
        let accounts = covering.into_iter().flat_map(|Covering { terms, keys }| {
            let window = terms.window_at(now);
            keys.into_iter().map(move |key| {
                let account = Account { budget: terms.name.clone(), key, window };
                (Arc::clone(&terms), account)
            })
        });
        let (terms, accounts): (Vec<_>, Vec<_>) = accounts.unzip();
        let used = gate.store.used(&accounts).await?;
        let read = terms.into_iter().zip(accounts).zip(used);
        Ok(Self(read.map(|((terms, account), used)| Read { terms, account, used }).collect()))
    }

    /// How much of each budget is used: of its fullest account, where there are several.
    pub(crate) fn used(&self) -> BTreeMap<String, Decimal> {
        let mut used = BTreeMap::new();
        for read in &self.0 {
            let fullest = used.entry(read.terms.name.to_string()).or_default();
            *fullest = read.used.max(*fullest);
        }
        used
    }

    /// The charges of a decision. None where the decision was taken on other budgets than those that were read: the
    /// policies were replaced in between.
    pub(crate) fn charges(&self, due: &[Due]) -> Option<Vec<Charge>> {
        let mut charges = Vec::new();
        for Due { terms, amount } in due {
            let before = charges.len();
            let read = self.0.iter().filter(|read| read.terms == *terms);
            charges.extend(read.map(|read| Charge {
                amount: *amount,
                argument: terms.argument.clone(),
                budget: terms.name.clone(),
                key: read.account.key.clone(),
                limit: terms.limit,
                window: read.account.window,
            }));
            if charges.len() == before {
                return None;
            }
        }
        Some(charges)
    }
}
