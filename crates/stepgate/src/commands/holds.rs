//! `stepgate hold`: legal holds.

use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::hold::HoldTarget;
use stepgate_core::ids::ArtifactId;

use super::confirm::{self, Asked};
use super::find::{self, Kind};
use super::{past, print_list, print_one, text, times};
use crate::cli::{AddHoldArgs, HoldCommand, HoldWhat, Named};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Times};

const HOLD: Kind = Kind {
    name: "hold",
    listed_by: "stepgate hold list --all",
    members: &["hold_id", "made_at", "held_by"],
};

pub(super) async fn hold(data: &DataDir, command: HoldCommand) -> anyhow::Result<u8> {
    match command {
        HoldCommand::Add(args) => add(data, args).await?,
        HoldCommand::Lift { id } => lift(data, &id).await?,
        HoldCommand::List { all } => list(data, all).await?,
    }
    Ok(0)
}

async fn add(data: &DataDir, args: AddHoldArgs) -> anyhow::Result<()> {
    let find = async |client: &mut Client| target(client, &args.what).await;
    let question = async |_: &mut Client, target: &HoldTarget| {
        Ok(format!("hold {target} in the store, until it is lifted?"))
    };
    let named = args.what.run.as_slice();
    let asked = Asked::about(named);
    let (mut client, target) = confirm::operator_about(data, asked, find, question).await?;
    let body = json!({ "target": target, "note": args.note });
    let made = client.ask(Method::POST, "/v1/holds", Some(&body)).await?.json()?;
    print_one(&made, &data.global, || block(&made, times(&data.global)))
}

async fn target(client: &mut Client, what: &HoldWhat) -> anyhow::Result<HoldTarget> {
    let HoldWhat { principal, session, run } = what;
    if let Some(principal_id) = principal {
        return Ok(HoldTarget::Principal(principal_id.clone()));
    }
    if let Some(run) = run {
        return Ok(HoldTarget::Run(find::run(client, run).await?));
    }
    let session = find::session(client, session.as_ref()).await?;
    session.map(HoldTarget::Session).ok_or_else(|| anyhow::anyhow!("which runs?"))
}

/// A hold, in one line, and its note.
fn block(hold: &Value, times: Times) -> String {
    let target = hold.get("target").cloned().unwrap_or_default();
    let target = match serde_json::from_value::<HoldTarget>(target) {
        Ok(target) => target.to_string(),
        Err(_) => "every run: this version does not know what it holds".to_owned(),
    };
    let lift = hold.get("lift").filter(|lift| lift.is_object());
    let status = if lift.is_some() { "lifted" } else { "in force" };
    let head = format!(
        "{}  {status}  {target}, held by {} {}",
        text(hold, "hold_id"),
        text(hold, "held_by"),
        past(times, hold, "made_at"),
    );
    let note = hold.get("note").and_then(Value::as_str);
    let note = note.map(|note| format!("\n  note: {}", show::printable(note)));
    let lifted = lift.map(|lift| {
        let by = show::printable(text(lift, "lifted_by"));
        format!("\n  lifted by {by} {}", past(times, lift, "ts"))
    });
    show::printable(&head) + &note.unwrap_or_default() + &lifted.unwrap_or_default()
}

async fn list(data: &DataDir, is_all: bool) -> anyhow::Result<()> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let mut holds = all(&mut client).await?;
    holds.retain(|hold| is_all || is_in_force(hold));
    let times = times(&data.global);
    let blocks = || holds.iter().map(|hold| block(hold, times)).collect::<Vec<_>>().join("\n");
    print_list(&holds, &data.global, "no hold is in force", blocks)
}

async fn all(client: &mut Client) -> anyhow::Result<Vec<Value>> {
    let reply = client.get("/v1/holds").await?;
    Ok(reply.get("holds").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn is_in_force(hold: &Value) -> bool {
    hold.get("in_force").and_then(Value::as_bool).unwrap_or(true)
}

async fn lift(data: &DataDir, named: &Named<ArtifactId>) -> anyhow::Result<()> {
    let find = async |client: &mut Client| meant(client, named, times(&data.global)).await;
    let question =
        async |_: &mut Client, (_, shown): &(ArtifactId, String)| Ok(format!("{shown}\nlift it?"));
    let asked = Asked::about(std::slice::from_ref(named));
    let (mut client, (id, _)) = confirm::operator_about(data, asked, find, question).await?;
    let lifted = client.ask(Method::POST, &format!("/v1/holds/{id}/lift"), None).await?.json()?;
    print_one(&lifted, &data.global, || block(&lifted, times(&data.global)))
}

/// The hold that is meant, and how it looks.
async fn meant(
    client: &mut Client,
    named: &Named<ArtifactId>,
    times: Times,
) -> anyhow::Result<(ArtifactId, String)> {
    let holds = all(client).await?;
    let newest = holds.iter().find(|hold| is_in_force(hold));
    let (id, hold) = find::among(&HOLD, named, &holds, newest).await?;
    Ok((id, hold.map(|hold| block(hold, times)).unwrap_or_default()))
}
