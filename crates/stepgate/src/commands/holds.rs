//! `stepgate hold`: legal holds.

use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::hold::HoldTarget;

use super::confirm::{self, Asked};
use super::find::{self, Kind};
use super::standing::{Standing, is_in_force, order};
use super::{print_one, times};
use crate::cli::{AddHoldArgs, HoldCommand, HoldWhat};
use crate::client::Client;
use crate::data_dir::DataDir;
use crate::show::Times;

const HOLDS: Standing = Standing {
    kind: Kind {
        name: "hold",
        listed_by: "stepgate hold list --all",
        members: &["hold_id", "made_at", "held_by"],
    },
    list: "holds",
    none: "no hold is in force",
    is_in_force,
    block,
};

pub(super) async fn hold(data: &DataDir, command: HoldCommand) -> anyhow::Result<()> {
    match command {
        HoldCommand::Add(args) => add(data, args).await,
        HoldCommand::Lift { id } => HOLDS.lift(data, &id).await,
        HoldCommand::List { all } => HOLDS.print(data, all).await,
    }
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

fn block(hold: &Value, times: Times) -> String {
    let unknown = "every run: this version does not know what it holds";
    order::<HoldTarget>(hold, "hold_id", "held", unknown, times)
}
