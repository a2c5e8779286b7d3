//! `stepgate policy shadow`: where the shadow policies would have decided otherwise.

use serde_json::Value;

use super::super::{number, past, print_one, rows, text, texts, times};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, Times};

pub(super) async fn shadow(data: &DataDir, all: bool, limit: u32) -> anyhow::Result<()> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let reply = client.get(&format!("/v1/policy/shadow?all={all}&limit={limit}")).await?;
    let times = times(&data.global);
    print_one(&reply, &data.global, || shown(&reply, all, times))
}

fn shown(reply: &Value, all: bool, times: Times) -> String {
    let differences = reply.get("differences").unwrap_or(&Value::Null);
    let mut parts = vec![candidate(reply.get("shadow").unwrap_or(&Value::Null), times)];
    let is_asked = reply.pointer("/shadow/candidate").is_some_and(Value::is_object);
    if all || is_asked {
        parts.push(summary(differences, all, times));
    }
    let tools = rows(differences, "by_tool");
    if !tools.is_empty() {
        let header = ["TOOL", "IN FORCE", "SHADOW", "DECISIONS"];
        parts.push(format!("\n{}", Table::of(header, tools.iter().map(tool_row))));
    }
    let newest = rows(differences, "newest");
    if !newest.is_empty() {
        let header = ["RUN", "WHEN", "PRINCIPAL", "TOOL", "IN FORCE", "SHADOW", "BY"];
        let newest = newest.iter().map(|row| run_row(row, times));
        parts.push(format!("\n{}", Table::of(header, newest)));
    }
    parts.join("\n")
}

/// Which candidate is asked, or why none is.
fn candidate(shadow: &Value, times: Times) -> String {
    if shadow.is_null() {
        return "no shadow policies: `policy.shadow` in stepgate.toml names their directory".into();
    }
    let directory = show::printable(text(shadow, "directory"));
    if let Some(why) = shadow.get("trouble").and_then(Value::as_str) {
        return format!("`{directory}` is not asked: {}", show::printable_lines(why));
    }
    let candidate = shadow.get("candidate").unwrap_or(&Value::Null);
    format!(
        "`{directory}`: {} policies, asked by this gateway since {}; of {} decisions since then {} differ",
        number(candidate, "policies"),
        past(times, candidate, "since"),
        number(candidate, "asked"),
        number(candidate, "differing"),
    )
}

fn summary(differences: &Value, all: bool, times: Times) -> String {
    let whose = if all { "all candidates" } else { "this candidate" };
    let count = number(differences, "count");
    if count == 0 {
        return format!("no recorded decision differs from {whose}");
    }
    let cut = match differences.get("is_cut").and_then(Value::as_bool) {
        Some(true) => ", and there may be older ones",
        Some(false) | None => "",
    };
    let kinds = rows(differences, "by_kind").iter().map(|kind| {
        format!("\n  {} → {}: {}", text(kind, "from"), text(kind, "to"), number(kind, "count"))
    });
    format!(
        "recorded decisions that differ from {whose}: {count}, first {}, last {}{cut}{}",
        past(times, differences, "first_at"),
        past(times, differences, "last_at"),
        kinds.collect::<String>()
    )
}

fn tool_row(row: &Value) -> [Cell; 4] {
    [
        Cell::member(row, "tool"),
        Cell::member(row, "from"),
        Cell::member(row, "to"),
        Cell::plain(number(row, "count")),
    ]
}

fn run_row(row: &Value, times: Times) -> [Cell; 7] {
    let decision = |name: &str| row.get(name).unwrap_or(&Value::Null);
    let by = texts_or(decision("shadow"), "policies", "no policy");
    [
        Cell::member(row, "run_id"),
        Cell::plain(past(times, row, "ts")),
        Cell::member(row, "principal_id"),
        Cell::member(row, "tool"),
        Cell::plain(words(decision("in_force"))),
        Cell::plain(words(decision("shadow"))),
        Cell::plain(by),
    ]
}

/// The answer, with what it requires.
fn words(decision: &Value) -> String {
    let caps = decision.get("caps").and_then(Value::as_object).into_iter().flatten();
    let caps = caps.map(|(name, max)| format!(", {name} <= {max}"));
    let required = rows(decision, "required").iter().map(|one| {
        let who = texts_or(one, "approvers", "operators");
        format!(", {} of {who}", number(one, "quorum"))
    });
    let further: String = caps.chain(required).collect();
    format!("{}{further}", text(decision, "verdict"))
}

/// The texts under a name, or a word for none.
fn texts_or(of: &Value, name: &str, none: &str) -> String {
    Some(texts(of, name)).filter(|texts| !texts.is_empty()).unwrap_or_else(|| none.to_owned())
}
