//! `stepgate budget`.

use clap::Args;
use stepgate_core::budget::BudgetName;

#[derive(Debug, Args)]
pub(crate) struct BudgetArgs {
    /// Only this budget.
    #[arg(value_name = "NAME", value_parser = BudgetName::parse)]
    pub(crate) name: Option<BudgetName>,
}
