//! `stepgate grants`: calls that an operator approves in advance.

use std::collections::BTreeMap;

use anyhow::ensure;
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::action::proposed_name;
use stepgate_core::grant::Condition;
use stepgate_core::ids::ApprovalId;

use super::confirm::{self, Asked};
use super::find::{self, Kind};
use super::standing::Standing;
use super::{number, past, print_one, text, times};
use crate::cli::{Allowance, CreateGrantArgs, GrantsArgs, GrantsCommand, Span};
use crate::client::Client;
use crate::data_dir::DataDir;
use crate::show::{self, Times};

const GRANTS: Standing = Standing {
    kind: Kind {
        name: "grant",
        listed_by: "stepgate grants",
        members: &["grant_id", "created_at", "principal_id", "tool"],
    },
    list: "grants",
    none: "no grants",
    is_in_force: |grant| text(grant, "status") == "active",
    block,
};

pub(super) async fn grants(data: &DataDir, args: GrantsArgs) -> anyhow::Result<()> {
    match args.command {
        None => GRANTS.print(data, args.all).await,
        Some(GrantsCommand::Create(args)) => create(data, &args).await,
        Some(GrantsCommand::Revoke { id }) => {
            let (mut client, id) = GRANTS.agreed(data, &id, "revoke it?").await?;
            client.ask(Method::DELETE, &format!("/v1/grants/{id}"), None).await?.succeeded()?;
            show::say(format!("revoked {id}"))
        }
    }
}

fn block(grant: &Value, times: Times) -> String {
    let head = format!(
        "{}  {}  {} by {}, {} of {} used, until {}, granted by {} {}",
        text(grant, "grant_id"),
        text(grant, "status"),
        text(grant, "tool"),
        text(grant, "principal_id"),
        number(grant, "used"),
        number(grant, "uses_max"),
        grant_end(grant, times),
        text(grant, "granted_by"),
        past(times, grant, "created_at"),
    );
    let conditions = grant.get("args").and_then(Value::as_object).into_iter().flatten();
    let conditions = conditions.map(|(name, condition)| {
        let condition: Option<Condition> = serde_json::from_value(condition.clone()).ok();
        let line = condition.map_or_else(|| name.clone(), |it| spelled_out(name, &it));
        format!("\n  {}", show::printable(&line))
    });
    let further = [("note", "note"), ("from approval", "approval_id")];
    let further = further.into_iter().filter_map(|(words, name)| {
        let value = grant.get(name).and_then(Value::as_str)?;
        Some(format!("\n  {words}: {}", show::printable(value)))
    });
    let revoked = grant.pointer("/revocation/revoked_by").and_then(Value::as_str);
    let revoked = revoked.map(|by| format!("\n  revoked by {}", show::printable(by)));
    show::printable(&head) + &conditions.chain(further).chain(revoked).collect::<String>()
}

fn grant_end(grant: &Value, times: Times) -> String {
    let end = text(grant, "expires_at");
    end.parse().map_or_else(|_| end.to_owned(), |end| times.to_come(end))
}

fn spelled_out(name: &str, condition: &Condition) -> String {
    match condition {
        Condition::Equals(value) => format!("{name} is exactly {value}"),
        Condition::Between(min, max) => format!("{name} is a number from {min} to {max}"),
        Condition::StartsWith(beginning) => {
            format!("{name} begins with {}", Value::from(beginning.as_str()))
        }
    }
}

async fn create(data: &DataDir, args: &CreateGrantArgs) -> anyhow::Result<()> {
    let Span(life_s) = args.life;
    let mut allowed: BTreeMap<&str, &Condition> = BTreeMap::new();
    for Allowance { name, condition } in &args.allow {
        ensure!(
            allowed.insert(name, condition).is_none(),
            "`--allow` names `{name}` twice: an argument has one condition"
        );
    }
    let find = async |client: &mut Client| find::approval(client, &args.approval, "approved").await;
    let question = async |client: &mut Client, id: &ApprovalId| {
        let approval = client.get(&format!("/v1/approvals/{id}")).await?;
        ensure!(
            text(&approval, "status") == "approved",
            "approval {id} is {}: a grant is made from one that was approved",
            text(&approval, "status")
        );
        let shown = what_is_granted(&approval, &allowed);
        let life = show::span(life_s.saturating_mul(1000));
        Ok(format!("{shown}\nallow {} calls like this for {life}?", args.uses))
    };
    let asked = Asked::about(std::slice::from_ref(&args.approval));
    let (mut client, approval_id) = confirm::operator_about(data, asked, find, question).await?;
    let body = json!({
        "approval_id": approval_id,
        "args": allowed,
        "uses_max": args.uses,
        "life_s": life_s,
        "note": args.note,
    });
    let made = client.ask(Method::POST, "/v1/grants", Some(&body)).await?.json()?;
    print_one(&made, &data.global, || block(&made, times(&data.global)))
}

/// Every argument of an approved call, with what the grant would allow for it.
fn what_is_granted(approval: &Value, allowed: &BTreeMap<&str, &Condition>) -> String {
    let context = approval.get("context").cloned().unwrap_or_default();
    let tool = proposed_name(text(&context, "tool_server"), text(&context, "tool_name"));
    let head = format!("{tool} by {}", text(&context, "principal_id"));
    let args = context.get("args").and_then(Value::as_object).into_iter().flatten();
    let lines = args.map(|(name, value)| match allowed.get(name.as_str()) {
        Some(condition) => spelled_out(name, condition),
        None => spelled_out(name, &Condition::Equals(value.clone())),
    });
    let lines: String = lines.map(|line| format!("\n  {}", show::printable(&line))).collect();
    show::printable(&head) + &lines
}
