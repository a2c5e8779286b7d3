//! The budgets in force, and how much of each account is used in the window of now.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use stepgate_core::budget::{AccountKey, Balance, BudgetName, Per, WindowLength};
use stepgate_core::decimal::Decimal;
use stepgate_core::gate::Gate;
use stepgate_core::ids::PrincipalId;
use stepgate_core::ports::StoreError;
use stepgate_core::time::Timestamp;
use stepgate_policy::{Budget, PolicySet};

/// A budget, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Budget")]
pub struct BudgetObject {
    /// Its name.
    pub budget: BudgetName,
    /// The argument that is added up; null where calls are counted.
    pub argument: Option<String>,
    /// The most that an account may have used in a window.
    pub limit: Decimal,
    /// Who or what has an account.
    pub per: Per,
    /// How long a window is.
    pub window: WindowLength,
    /// The time zone of the windows.
    pub zone: String,
    /// When the present window ends; null where it does not.
    pub window_ends: Option<Timestamp>,
    /// The tools that it names.
    pub tools: BTreeSet<String>,
    /// The servers that it names. With no tools and no servers it covers all tools of tool servers.
    pub servers: BTreeSet<String>,
    /// The principals that it names. With no principals and no groups it covers everyone.
    pub principals: BTreeSet<PrincipalId>,
    /// The groups that it names.
    pub groups: BTreeSet<String>,
    /// The accounts that were charged in the present window, the fullest first.
    pub accounts: Vec<AccountObject>,
    /// Whether there are more accounts than these.
    pub is_cut: bool,
}

/// An account of a budget, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "BudgetAccount")]
pub struct AccountObject {
    /// Whose it is: `principal:ann`, `group:finance`, `session:ID`, `tool:bank.send_money`, `server:bank` or `all`.
    pub key: AccountKey,
    /// What is used.
    pub used: Decimal,
    /// How many percent of the limit that is, rounded up.
    pub percent: i64,
}

/// Every budget of a policy set, with at most so many accounts each.
pub async fn list(
    gate: &Gate,
    set: &PolicySet,
    accounts_max: usize,
) -> Result<Vec<BudgetObject>, StoreError> {
    let mut budgets = Vec::new();
    for budget in set.all_budgets() {
        budgets.push(standing(gate, budget, accounts_max).await?);
    }
    Ok(budgets)
}

async fn standing(
    gate: &Gate,
    budget: &Budget,
    accounts_max: usize,
) -> Result<BudgetObject, StoreError> {
    let Budget { terms, tools, servers, principals, groups } = budget;
    let window = terms.window_at(gate.world.now());
    let mut balances =
        gate.store.accounts(&terms.name, window, accounts_max.saturating_add(1)).await?;
    let is_cut = balances.len() > accounts_max;
    balances.truncate(accounts_max);
    let account = |Balance { account, used }: Balance| AccountObject {
        key: account.key,
        used,
        percent: used.percent_of(terms.limit).unwrap_or(i64::MAX),
    };
    Ok(BudgetObject {
        budget: terms.name.clone(),
        argument: terms.argument.clone(),
        limit: terms.limit,
        per: terms.per,
        window: terms.window,
        zone: terms.zone_name().to_owned(),
        window_ends: window.end(),
        tools: tools.clone(),
        servers: servers.clone(),
        principals: principals.clone(),
        groups: groups.clone(),
        accounts: balances.into_iter().map(account).collect(),
        is_cut,
    })
}
