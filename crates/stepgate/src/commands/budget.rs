//! `stepgate budget`: the budgets, and how much of each is used.

use anyhow::bail;
use serde_json::Value;
use stepgate_core::budget::BudgetName;
use stepgate_core::time::Timestamp;

use super::{print_list, rows, text, times};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Times};

pub(super) async fn budget(data: &DataDir, name: Option<BudgetName>) -> anyhow::Result<()> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let query = name.as_ref().map(|name| format!("?budget={name}")).unwrap_or_default();
    let reply = client.get(&format!("/v1/budgets{query}")).await?;
    let budgets = rows(&reply, "budgets");
    if let (Some(name), []) = (&name, budgets) {
        bail!("there is no budget `{name}`; `stepgate budget` lists those that there are");
    }
    let times = times(&data.global);
    let blocks = || budgets.iter().map(|it| block(it, times)).collect::<Vec<_>>().join("\n");
    let none = "there is no budget; `budgets.toml` beside the policies has them";
    print_list(budgets, &data.global, none, blocks)
}

/// A budget in one line, and a line for each account.
fn block(budget: &Value, times: Times) -> String {
    let argument = budget.get("argument").and_then(Value::as_str);
    let what = argument.map_or("calls".to_owned(), |argument| format!("of `{argument}`"));
    let per = match text(budget, "per") {
        "all" => "for all together".to_owned(),
        per => format!("for each {per}"),
    };
    let window = match text(budget, "window_ends").parse::<Timestamp>() {
        Ok(ends) => format!(
            "in a {} ({}), which ends {}",
            text(budget, "window"),
            text(budget, "zone"),
            times.to_come(ends)
        ),
        Err(_) => "for ever".to_owned(),
    };
    let (name, limit) = (text(budget, "budget"), text(budget, "limit"));
    let mut lines = vec![show::printable(&format!("{name}: {limit} {what} {per} {window}"))];
    let accounts = rows(budget, "accounts");
    for account in accounts {
        let percent = account.get("percent").and_then(Value::as_i64).unwrap_or_default();
        let line =
            format!("  {percent:>3} %  {:>12}  {}", text(account, "used"), text(account, "key"));
        lines.push(show::printable(&line));
    }
    match (accounts.len(), budget.get("is_cut").and_then(Value::as_bool)) {
        (0, _) => lines.push("  nothing is used".to_owned()),
        (_, Some(true)) => lines.push("  and more".to_owned()),
        (_, Some(false) | None) => {}
    }
    lines.join("\n")
}
