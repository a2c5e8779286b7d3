//! `stepgate stop`, `stops` and `lift`: emergency stops.

use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::stop::StopTarget;

use super::find::{self, Kind};
use super::standing::{Standing, is_in_force, order};
use super::{number, print_one, rows, text, times};
use crate::cli::{StopArgs, StopWhat};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Times};

pub(super) const STOPS: Standing = Standing {
    kind: Kind {
        name: "stop",
        listed_by: "stepgate stops --all",
        members: &["stop_id", "made_at", "stopped_by"],
    },
    list: "stops",
    none: "nothing is stopped",
    is_in_force,
    block,
};

/// Stops, without a question: in an emergency every second counts, and a stop is easily lifted.
pub(super) async fn stop(data: &DataDir, args: StopArgs) -> anyhow::Result<()> {
    let mut client = Client::before_recovery(data, Role::Operator).await?;
    let target = target(&mut client, args.what).await?;
    let body = json!({ "target": target, "note": args.note });
    let made = client.ask(Method::POST, "/v1/stops", Some(&body)).await?.json()?;
    if let Some(warning) = made.get("warning").and_then(Value::as_str) {
        show::note(format!("warning: {}", show::printable(warning)));
    }
    print_one(&made, &data.global, || report(&made, times(&data.global)))
}

async fn target(client: &mut Client, what: StopWhat) -> anyhow::Result<StopTarget> {
    let StopWhat { all: _, principal, session, server } = what;
    let session = find::session(client, session.as_ref()).await?;
    let named = principal.map(StopTarget::Principal).or(session.map(StopTarget::Session));
    Ok(named.or(server.map(StopTarget::Server)).unwrap_or(StopTarget::All))
}

/// What is stopped, and what that could not take back.
fn report(made: &Value, times: Times) -> String {
    let stop = made.get("stop").cloned().unwrap_or_default();
    let running = match number(made, "running") {
        0 => "\n  no call is under way".to_owned(),
        count => {
            let named = rows(made, "running_run_ids").iter().filter_map(Value::as_str);
            let named: Vec<String> =
                named.map(|run_id| format!("\n    {}", show::printable(run_id))).collect();
            let more = match count.saturating_sub(named.len() as u64) {
                0 => String::new(),
                more => format!("\n    and {more} more"),
            };
            let names: String = named.concat();
            format!(
                "\n  {count} call(s) may have been sent before, and are not taken back:{names}{more}"
            )
        }
    };
    let waiting = match number(made, "waiting") {
        0 => String::new(),
        count => format!("\n  {count} run(s) wait for an approval, and cannot be approved now"),
    };
    let id = show::printable(text(&stop, "stop_id"));
    format!("{}{running}{waiting}\n  to lift it: stepgate lift {id}", block(&stop, times))
}

fn block(stop: &Value, times: Times) -> String {
    let unknown = "something that this version does not know";
    order::<StopTarget>(stop, "stop_id", "stopped", unknown, times)
}
