//! `GET /v1/budgets`: how much of the budgets is used.

use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::budget::BudgetName;
use stepgate_gateway::budgets::{self, BudgetObject};

use super::{Params, Problem, Watcher};

/// Accounts of a budget that are listed by default, and at most.
const LISTED: usize = 100;
const LISTED_MAX: usize = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetParams {
    /// Only this budget.
    budget: Option<BudgetName>,
    /// How many accounts of each budget to list, the fullest first.
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Budgets {
    budgets: Vec<BudgetObject>,
}

/// The budgets in force, in the order of their names.
pub(super) async fn list(
    Watcher(app, _): Watcher,
    Params(params): Params<BudgetParams>,
) -> Result<Json<Budgets>, Problem> {
    let limit = match params.limit.unwrap_or(LISTED) {
        limit @ 0..=LISTED_MAX => limit,
        _ => return Err(Problem::malformed(format!("`limit` must be at most {LISTED_MAX}"))),
    };
    let mut budgets = match &app.service.control {
        Some(control) => budgets::list(&app.service.gate, &control.policy.current(), limit).await?,
        None => Vec::new(),
    };
    budgets.retain(|it| params.budget.as_ref().is_none_or(|asked| it.budget == *asked));
    Ok(Json(Budgets { budgets }))
}
