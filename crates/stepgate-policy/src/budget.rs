//! Budgets: which calls each covers, and what a call takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use stepgate_core::budget::{
    AccountKey, BudgetName, Covering, Due, OverBudget, Per, REFUSED, Terms,
};
use stepgate_core::decimal::Decimal;
use stepgate_core::ids::PrincipalId;
use stepgate_core::ports::Payer;
use stepgate_core::tool::ToolName;

use crate::cause::Cause;
use crate::directory::BUDGETS_FILE;
use crate::shape::{Attribute, Declared, Record, Shape};
use crate::who::Who;

/// A budget, and the calls that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What it allows.
    pub terms: Arc<Terms>,
    /// The tools that it names.
    pub tools: BTreeSet<String>,
    /// The servers that it names. With no tools and no servers it covers all tools.
    pub servers: BTreeSet<String>,
    /// The principals that it covers; all where it names neither principals nor groups.
    pub principals: BTreeSet<PrincipalId>,
    /// The groups that it covers.
    pub groups: BTreeSet<String>,
}

impl Budget {
    /// Whether it covers a tool.
    pub(crate) fn is_about(&self, tool: &ToolName) -> bool {
        (self.tools.is_empty() && self.servers.is_empty())
            || self.tools.contains(tool.as_str())
            || self.servers.contains(tool.server())
    }

    /// Whether it covers this principal's calls of a tool.
    pub(crate) fn covers(&self, who: &Who, tool: &ToolName) -> bool {
        let everyone = self.principals.is_empty() && self.groups.is_empty();
        let named = |name: &str| self.principals.iter().any(|listed| listed.as_str() == name);
        let is_for = everyone
            || named(who.principal.id().unescaped())
            || who.groups.iter().any(|group| self.groups.contains(group.id().unescaped()));
        is_for && self.is_about(tool)
    }

    /// The accounts that a call of a tool is charged to.
    pub(crate) fn covering(&self, payer: Payer<'_>, tool: &ToolName) -> Covering {
        let keys = match self.terms.per {
            Per::Principal => vec![AccountKey::principal(payer.principal_id)],
            Per::Group => payer
                .groups
                .intersection(&self.groups)
                .map(|name| AccountKey::group(name))
                .collect(),
            Per::Session => vec![AccountKey::session(payer.session_id)],
            Per::Tool => vec![AccountKey::tool(tool.as_str())],
            Per::Server => vec![AccountKey::server(tool.server())],
            Per::All => vec![AccountKey::all()],
        };
        Covering { terms: Arc::clone(&self.terms), keys }
    }

    /// What a call takes, beside what is used already.
    pub(crate) fn price(&self, shape: &Record, args: &Map<String, Value>, used: Decimal) -> Priced {
        let amount = match &self.terms.argument {
            None => Ok(Decimal::ONE),
            Some(name) => amount_of(name, shape, args),
        };
        Priced { terms: Arc::clone(&self.terms), used, amount }
    }
}

/// The amount that a call asks for: what the tool gets, or the default that it uses.
fn amount_of(name: &str, shape: &Record, args: &Map<String, Value>) -> Result<Decimal, String> {
    let refuse = |why: &str| format!("`{name}` is {why}");
    let Some(Attribute { seen, default, .. }) = shape.attributes.get(name) else {
        return Err(refuse(Cause::NotInSchema.as_str()));
    };
    match seen {
        Ok(Shape::Long | Shape::Decimal) => {}
        Ok(Shape::String | Shape::Bool | Shape::Set(_) | Shape::Record(_)) => {
            return Err(refuse("not a number"));
        }
        Err(cause) => return Err(refuse(cause.as_str())),
    }
    let value = match (args.get(name), default) {
        (Some(value), _) => value,
        (None, Some(Declared::Value(value))) => value,
        (None, Some(Declared::Unclear)) => return Err(refuse(Cause::UnclearDefault.as_str())),
        (None, None) => return Err(refuse("omitted, and it has no default")),
    };
    let amount = match value {
        Value::Number(number) => Decimal::of(number).map_err(|why| refuse(&why.to_string()))?,
        Value::Null => return Err(refuse(Cause::Null.as_str())),
        Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            return Err(refuse("not a number"));
        }
    };
    if amount < Decimal::ZERO { Err(refuse("negative")) } else { Ok(amount) }
}

/// What a call would take from a budget.
#[derive(Clone, Debug)]
pub(crate) struct Priced {
    pub(crate) terms: Arc<Terms>,
    /// What is used without the call.
    pub(crate) used: Decimal,
    /// Or why the call has no amount.
    amount: Result<Decimal, String>,
}

impl Priced {
    /// What would be used with the call, where it has an amount.
    pub(crate) fn after(&self) -> Option<Decimal> {
        self.used.plus(*self.amount.as_ref().ok()?)
    }

    /// How many percent of the limit would be used with the call.
    pub(crate) fn percent(&self) -> Option<i64> {
        Some(self.after()?.percent_of(self.terms.limit).unwrap_or(i64::MAX))
    }

    /// What the call takes, or why it is denied.
    fn due(&self) -> Result<Due, String> {
        let Self { terms, used, amount } = self;
        let amount = match amount {
            Ok(amount) => *amount,
            Err(why) => return Err(format!("{REFUSED}: `{}`: {why}", terms.name)),
        };
        match used.plus(amount) {
            Some(sum) if sum <= terms.limit => Ok(Due { terms: Arc::clone(terms), amount }),
            Some(_) | None => {
                let (budget, limit) = (terms.name.clone(), terms.limit);
                Err(OverBudget { budget, used: *used, amount, limit }.to_string())
            }
        }
    }

    pub(crate) fn explained(&self) -> ExplainedBudget {
        ExplainedBudget {
            budget: self.terms.name.clone(),
            used: self.used,
            amount: self.amount.as_ref().ok().copied(),
            limit: self.terms.limit,
            percent: self.percent(),
            refusal: self.due().err(),
        }
    }
}

/// A budget that covers a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedBudget {
    /// The budget.
    pub budget: BudgetName,
    /// What is used without the call.
    pub used: Decimal,
    /// What the call takes, where that can be told.
    pub amount: Option<Decimal>,
    /// The limit.
    pub limit: Decimal,
    /// How many percent of the limit would be used with the call, rounded up.
    pub percent: Option<i64>,
    /// Why the budget denies the call.
    pub refusal: Option<String>,
}

/// The names of the budgets that deny a call, and why.
pub(crate) struct Refusal {
    pub(crate) budgets: BTreeSet<String>,
    pub(crate) detail: String,
}

/// What a call takes from each budget, or the budgets that deny it.
pub(crate) fn due(priced: &[Priced]) -> Result<Vec<Due>, Refusal> {
    let (mut due, mut refusals) = (Vec::new(), BTreeMap::new());
    for priced in priced {
        match priced.due() {
            Ok(taken) => due.push(taken),
            Err(why) => drop(refusals.insert(format!("{BUDGETS_FILE}#{}", priced.terms.name), why)),
        }
    }
    if refusals.is_empty() {
        return Ok(due);
    }
    let details: Vec<String> = refusals.values().cloned().collect();
    Err(Refusal { budgets: refusals.into_keys().collect(), detail: details.join("; ") })
}
