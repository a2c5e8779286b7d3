//! `stepgate stop`, `stops` and `lift`: emergency stops.

use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::ids::ArtifactId;
use stepgate_core::stop::StopTarget;

use super::confirm::{self, Asked};
use super::find::{self, Kind};
use super::{past, print_list, print_one, text, times};
use crate::cli::{LiftArgs, Named, StopArgs, StopWhat, StopsArgs};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Times};

const STOP: Kind = Kind {
    name: "stop",
    listed_by: "stepgate stops --all",
    members: &["stop_id", "made_at", "stopped_by"],
};

/// Stops, without a question: in an emergency every second counts, and a stop is easily lifted.
pub(super) async fn stop(data: &DataDir, args: StopArgs) -> anyhow::Result<u8> {
    let mut client = Client::before_recovery(data, Role::Operator).await?;
    let target = target(&mut client, args.what).await?;
    let body = json!({ "target": target, "note": args.note });
    let made = client.ask(Method::POST, "/v1/stops", Some(&body)).await?.json()?;
    if let Some(warning) = made.get("warning").and_then(Value::as_str) {
        show::note(format!("warning: {}", show::printable(warning)));
    }
    print_one(&made, &data.global, || report(&made, times(&data.global)))?;
    Ok(0)
}

async fn target(client: &mut Client, what: StopWhat) -> anyhow::Result<StopTarget> {
    let StopWhat { all: _, principal, session, server } = what;
    let session = find::session(client, session.as_ref()).await?;
    let named = principal.map(StopTarget::Principal).or(session.map(StopTarget::Session));
    Ok(named.or(server.map(StopTarget::Server)).unwrap_or(StopTarget::All))
}

/// What is stopped, and what that could not take back.
fn report(made: &Value, times: Times) -> String {
    let number = |name: &str| made.get(name).and_then(Value::as_u64).unwrap_or_default();
    let stop = made.get("stop").cloned().unwrap_or_default();
    let running = match number("running") {
        0 => "\n  no call is under way".to_owned(),
        count => {
            let named = made.get("running_run_ids").and_then(Value::as_array).into_iter().flatten();
            let named: Vec<String> = named
                .filter_map(Value::as_str)
                .map(|run_id| format!("\n    {}", show::printable(run_id)))
                .collect();
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
    let waiting = match number("waiting") {
        0 => String::new(),
        count => format!("\n  {count} run(s) wait for an approval, and cannot be approved now"),
    };
    let id = show::printable(text(&stop, "stop_id"));
    format!("{}{running}{waiting}\n  to lift it: stepgate lift {id}", block(&stop, times))
}

/// A stop, in one line, and its note.
fn block(stop: &Value, times: Times) -> String {
    let target = stop.get("target").cloned().unwrap_or_default();
    let target = match serde_json::from_value::<StopTarget>(target) {
        Ok(target) => target.to_string(),
        Err(_) => "something that this version does not know".to_owned(),
    };
    let lift = stop.get("lift").filter(|lift| lift.is_object());
    let status = if lift.is_some() { "lifted" } else { "in force" };
    let head = format!(
        "{}  {status}  {target}, stopped by {} {}",
        text(stop, "stop_id"),
        text(stop, "stopped_by"),
        past(times, stop, "made_at"),
    );
    let note = stop.get("note").and_then(Value::as_str);
    let note = note.map(|note| format!("\n  note: {}", show::printable(note)));
    let lifted = lift.map(|lift| {
        let by = show::printable(text(lift, "lifted_by"));
        format!("\n  lifted by {by} {}", past(times, lift, "ts"))
    });
    show::printable(&head) + &note.unwrap_or_default() + &lifted.unwrap_or_default()
}

pub(super) async fn stops(data: &DataDir, args: &StopsArgs) -> anyhow::Result<u8> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let mut stops = all(&mut client).await?;
    stops.retain(|stop| args.all || is_in_force(stop));
    let times = times(&data.global);
    let blocks = || stops.iter().map(|stop| block(stop, times)).collect::<Vec<_>>().join("\n");
    print_list(&stops, &data.global, "nothing is stopped", blocks)?;
    Ok(0)
}

async fn all(client: &mut Client) -> anyhow::Result<Vec<Value>> {
    let reply = client.get("/v1/stops").await?;
    Ok(reply.get("stops").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn is_in_force(stop: &Value) -> bool {
    stop.get("in_force").and_then(Value::as_bool).unwrap_or(true)
}

pub(super) async fn lift(data: &DataDir, args: &LiftArgs) -> anyhow::Result<u8> {
    let LiftArgs { id: named } = args;
    let find = async |client: &mut Client| meant(client, named, times(&data.global)).await;
    let question =
        async |_: &mut Client, (_, shown): &(ArtifactId, String)| Ok(format!("{shown}\nlift it?"));
    let asked = Asked::about(std::slice::from_ref(named));
    let (mut client, (id, _)) = confirm::operator_about(data, asked, find, question).await?;
    let lifted = client.ask(Method::POST, &format!("/v1/stops/{id}/lift"), None).await?.json()?;
    print_one(&lifted, &data.global, || block(&lifted, times(&data.global)))?;
    Ok(0)
}

/// The stop that is meant, and how it looks.
async fn meant(
    client: &mut Client,
    named: &Named<ArtifactId>,
    times: Times,
) -> anyhow::Result<(ArtifactId, String)> {
    let stops = all(client).await?;
    let newest = stops.iter().find(|stop| is_in_force(stop));
    let (id, stop) = find::among(&STOP, named, &stops, newest).await?;
    Ok((id, stop.map(|stop| block(stop, times)).unwrap_or_default()))
}
