//! What calls took from budgets and gave back, against their journals; and the accounts, against the sum of it all.

use std::collections::HashMap;

use crate::archived::ArchivedCharge;
use crate::budget::{Account, Balance, Charge};
use crate::decimal::Decimal;
use crate::event::{Event, EventType};
use crate::journal::Replayed;
use crate::journal::artifact::{SupervisorDecision, ToolCall};
use crate::json::Value;
use crate::ports::Dossier;
use crate::result_pointer::pointer_to;

use super::{Problem, place_of};

/// The charges in the events of one type; none for an event that is no charge.
fn charges(dossier: &Dossier, event_type: EventType) -> Vec<Option<Charge>> {
    let events = dossier.events.iter().map(|linked| &linked.event);
    events.filter(|event| event.event_type == event_type).map(charge_in).collect()
}

fn charge_in(event: &Event) -> Option<Charge> {
    serde_json::from_value(event.payload.clone()).ok()
}

/// What does not follow from a run's journal: each charge is what its call needs, and is given back where the effect
/// says that the call did not happen, and only there.
pub(super) fn check(dossier: &Dossier, replayed: &Replayed) -> Vec<Problem> {
    let reserved = charges(dossier, EventType::BudgetReserved);
    let released = charges(dossier, EventType::BudgetReleased);
    if reserved.is_empty() && released.is_empty() {
        return Vec::new();
    }
    let Replayed { call, decision, effect, .. } = replayed;
    let is_needed = |charge: &Option<Charge>| match (charge, call) {
        (Some(charge), Some(call)) => is_what_is_needed(charge, call, decision.as_ref()),
        (None, _) | (_, None) => false,
    };
    let accounts = reserved.iter().flatten().map(Charge::account);
    let mut accounts: Vec<Account> = accounts.collect();
    accounts.sort_unstable();
    let each_once = accounts.is_sorted_by(|account, next| account < next);
    let did_not_happen = effect.as_ref().is_some_and(|effect| effect.did_not_happen());
    let due_back = if did_not_happen { reserved.as_slice() } else { &[] };
    let problems = [
        (!reserved.iter().all(is_needed)).then_some("a charge is not what the call needs"),
        (!each_once).then_some("the call was charged twice"),
        (released != due_back).then_some("what was given back does not follow from the effect"),
    ];
    let place = place_of("events", dossier.run.arrival.run_id);
    problems.into_iter().flatten().map(|what| Problem::new(place.clone(), what)).collect()
}

/// Whether a call needs this amount: its argument, or the default that policy saw, or one for a call.
fn is_what_is_needed(
    charge: &Charge,
    call: &ToolCall,
    decision: Option<&SupervisorDecision>,
) -> bool {
    let Some(name) = &charge.argument else { return charge.amount == Decimal::ONE };
    let default = || {
        let pointer = pointer_to([name.as_str()]);
        decision?.meta.defaults.as_ref()?.get(&pointer)
    };
    match call.call.args.get(name).or_else(default) {
        Some(Value::Number(number)) => Decimal::of(number) == Ok(charge.amount),
        Some(_) | None => false,
    }
}

/// What a run's calls took from accounts, and gave back, in ten-thousandths.
pub(crate) fn net_charges(dossier: &Dossier) -> impl Iterator<Item = (Account, i64)> {
    dossier.events.iter().filter_map(|linked| signed_charge(&linked.event))
}

/// What an event took from an account; less than nothing where it gave back.
fn signed_charge(event: &Event) -> Option<(Account, i64)> {
    let sign = if event.event_type == EventType::BudgetReserved {
        1
    } else if event.event_type == EventType::BudgetReleased {
        -1
    } else {
        return None;
    };
    // An event that cannot be read is a problem of its run.
    let charge = charge_in(event)?;
    Some((charge.account(), sign * charge.amount.units()))
}

/// The sum of all charges, account by account.
#[derive(Default)]
pub(super) struct Ledger(HashMap<Account, i128>);

impl Ledger {
    /// Adds the first of a run's events: those that there were when the accounts were read.
    pub(super) fn add(&mut self, dossier: &Dossier, events: u64) {
        let events_max = usize::try_from(events).unwrap_or(usize::MAX);
        let events = dossier.events.iter().take(events_max);
        for (account, units) in events.filter_map(|linked| signed_charge(&linked.event)) {
            *self.0.entry(account).or_default() += i128::from(units);
        }
    }

    /// Adds what archived runs took.
    pub(super) fn add_archived(&mut self, charges: &[ArchivedCharge]) {
        for charge in charges {
            let sum = self.0.entry(charge.account()).or_default();
            *sum += i128::from(charge.amount.units());
        }
    }

    /// Accounts that are not the sum of their charges.
    pub(super) fn against(mut self, balances: &[Balance]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for Balance { account, used } in balances {
            let sum = self.0.remove(account);
            if sum != Some(i128::from(used.units())) {
                let what = match sum.and_then(|sum| i64::try_from(sum).ok()) {
                    Some(sum) => format!("{used} is used and {} charged", Decimal::from_units(sum)),
                    None => format!("{used} is used and nothing charged"),
                };
                problems.push(Problem::new(place(account), what));
            }
        }
        problems.extend(self.0.keys().map(|account| Problem::new(place(account), "is gone")));
        problems
    }
}

fn place(account: &Account) -> String {
    format!("budget {account}")
}
