//! What an operator has made and can end: grants, holds and stops.

use std::fmt::Display;

use axum::http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stepgate_core::ids::ArtifactId;

use super::confirm::{self, Asked};
use super::find::{self, Kind};
use super::{past, print_list, print_one, rows, text, times};
use crate::cli::Named;
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Times};

/// A kind of thing that an operator has made and can end.
pub(super) struct Standing {
    pub(super) kind: Kind,
    /// The gateway's list of them, which is also the name of its rows.
    pub(super) list: &'static str,
    /// What is said where there are none.
    pub(super) none: &'static str,
    /// Whether one has not ended.
    pub(super) is_in_force: fn(&Value) -> bool,
    /// One of them, for people.
    pub(super) block: fn(&Value, Times) -> String,
}

impl Standing {
    /// Prints those that have not ended, or all.
    pub(super) async fn print(&self, data: &DataDir, is_all: bool) -> anyhow::Result<()> {
        let mut client = Client::of(data, Role::Auditor).await?;
        let mut found = self.all(&mut client).await?;
        found.retain(|row| is_all || (self.is_in_force)(row));
        let times = times(&data.global);
        let blocks =
            || found.iter().map(|row| (self.block)(row, times)).collect::<Vec<_>>().join("\n");
        print_list(&found, &data.global, self.none, blocks)
    }

    /// The one that is meant, and a client to end it, once the person who was shown it has agreed.
    pub(super) async fn agreed(
        &self,
        data: &DataDir,
        named: &Named<ArtifactId>,
        question: &str,
    ) -> anyhow::Result<(Client, ArtifactId)> {
        let find = async |client: &mut Client| {
            let all = self.all(client).await?;
            let newest = all.iter().find(|row| (self.is_in_force)(row));
            let (id, row) = find::among(&self.kind, named, &all, newest).await?;
            let block = row.map(|row| (self.block)(row, times(&data.global)));
            Ok((id, block.unwrap_or_default()))
        };
        let question = async |_: &mut Client, (_, shown): &(ArtifactId, String)| {
            Ok(format!("{shown}\n{question}"))
        };
        let asked = Asked::about(std::slice::from_ref(named));
        let (client, (id, _)) = confirm::operator_about(data, asked, find, question).await?;
        Ok((client, id))
    }

    pub(super) async fn lift(
        &self,
        data: &DataDir,
        named: &Named<ArtifactId>,
    ) -> anyhow::Result<()> {
        let (mut client, id) = self.agreed(data, named, "lift it?").await?;
        let path = format!("/v1/{}/{id}/lift", self.list);
        let lifted = client.ask(Method::POST, &path, None).await?.json()?;
        print_one(&lifted, &data.global, || (self.block)(&lifted, times(&data.global)))
    }

    async fn all(&self, client: &mut Client) -> anyhow::Result<Vec<Value>> {
        let reply = client.get(&format!("/v1/{}", self.list)).await?;
        Ok(rows(&reply, self.list).to_vec())
    }
}

pub(super) fn is_in_force(order: &Value) -> bool {
    order.get("in_force").and_then(Value::as_bool).unwrap_or(true)
}

/// An order about a target of this type in one line, with its note and who lifted it. `done` is what the order does, such
/// as `held`; `unknown` stands for a target that this version does not know.
pub(super) fn order<T: DeserializeOwned + Display>(
    order: &Value,
    id: &str,
    done: &str,
    unknown: &str,
    times: Times,
) -> String {
    let target = order.get("target").cloned().unwrap_or_default();
    let target = serde_json::from_value::<T>(target);
    let target = target.map_or_else(|_| unknown.to_owned(), |target| target.to_string());
    let lift = order.get("lift").filter(|lift| lift.is_object());
    let status = if lift.is_some() { "lifted" } else { "in force" };
    let (id, by) = (text(order, id), text(order, &format!("{done}_by")));
    let made = past(times, order, "made_at");
    let head = format!("{id}  {status}  {target}, {done} by {by} {made}");
    let note = order.get("note").and_then(Value::as_str);
    let note = note.map(|note| format!("\n  note: {}", show::printable(note)));
    let lifted = lift.map(|lift| {
        let by = show::printable(text(lift, "lifted_by"));
        format!("\n  lifted by {by} {}", past(times, lift, "ts"))
    });
    show::printable(&head) + &note.unwrap_or_default() + &lifted.unwrap_or_default()
}
