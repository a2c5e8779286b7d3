//! Looks up what the command line names by the beginning of its id, or as `last`.
//!
//! Every command uses this one resolver. Where the rows come from is up to the command: a gateway, or the store.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use stepgate_core::bundle::RunObject;
use stepgate_core::ids::{ApprovalId, IdPrefix, PrincipalId, RunId, SessionId};
use stepgate_core::ports::{RunQuery, RunText, SessionQuery, Store};
use stepgate_core::session::Session;

use super::text;
use crate::cli::Named;
use crate::client::Client;
use crate::{show, start};

/// Most candidates that are listed where a beginning is not unique.
pub(super) const CANDIDATES_MAX: u32 = 10;

pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) listed_by: &'static str,
    /// The members of a row that tell what it is, its id first.
    pub(super) members: &'static [&'static str],
}

pub(super) const RUN: Kind = Kind {
    name: "run",
    listed_by: "stepgate runs",
    members: &["tool_run_id", "ts", "principal_id", "tool_name"],
};

const APPROVAL: Kind = Kind {
    name: "approval",
    listed_by: "stepgate approvals --status all",
    members: &["approval_id", "ts_requested", "status"],
};

pub(super) const SESSION: Kind = Kind {
    name: "session",
    listed_by: "stepgate sessions",
    members: &["session_id", "ts", "principal_id"],
};

impl Kind {
    /// The id of a row; empty where it has none.
    fn id<'a>(&self, row: &'a Value) -> &'a str {
        self.members.first().and_then(|name| row.get(name)?.as_str()).unwrap_or_default()
    }

    fn parsed<T: Id>(&self, row: &Value) -> anyhow::Result<T> {
        let parsed = self.id(row).parse();
        parsed.with_context(|| format!("the gateway lists a {} without its id", self.name))
    }

    fn candidate(&self, row: &Value) -> String {
        let members = self.members.iter().filter_map(|name| row.get(name)?.as_str());
        let line: String = members.map(|text| format!("  {}", show::printable(text))).collect();
        format!("\n{line}")
    }
}

pub(super) trait Id: FromStr<Err: Error + Send + Sync + 'static> + Display + Copy {}

impl<T: FromStr<Err: Error + Send + Sync + 'static> + Display + Copy> Id for T {}

#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// The newest that fits the command.
    Newest,
    /// Every one whose id begins like this, whether or not it fits the command: a beginning that is unique only
    /// among those that wait could come to mean another one than the person has seen.
    Beginning(&'a IdPrefix),
}

/// The one object that is meant. `rows` returns what is wanted as JSON, at most one more than [`CANDIDATES_MAX`].
pub(super) async fn find<T: Id>(
    kind: &Kind,
    named: &Named<T>,
    rows: impl AsyncFnOnce(Wanted<'_>) -> anyhow::Result<Vec<Value>>,
) -> anyhow::Result<T> {
    let Kind { name, listed_by, .. } = kind;
    let prefix = match named {
        Named::Whole(id) => return Ok(*id),
        Named::Last => {
            let rows = rows(Wanted::Newest).await?;
            let newest = rows.first().with_context(|| {
                format!("there is no {name} that `last` could mean: `{listed_by}` lists them")
            })?;
            return kind.parsed(newest);
        }
        Named::Beginning(prefix) => prefix,
    };
    let rows = rows(Wanted::Beginning(prefix)).await?;
    let prefix = prefix.as_str();
    match rows.as_slice() {
        [] => bail!("no {name} begins with `{prefix}`: `{listed_by}` lists them"),
        [row] => kind.parsed(row),
        rows => {
            let most = usize::try_from(CANDIDATES_MAX)?;
            let mut listed: String =
                rows.iter().take(most).map(|row| kind.candidate(row)).collect();
            if rows.len() > most {
                listed.push_str("\n  and more");
            }
            bail!(
                "`{prefix}` is the beginning of more than one {name}, and nothing was done:{listed}"
            )
        }
    }
}

/// The one of these rows that is meant, with its id; `newest` is what `last` means.
pub(super) async fn among<'a, T: Id>(
    kind: &Kind,
    named: &Named<T>,
    rows: &'a [Value],
    newest: Option<&Value>,
) -> anyhow::Result<(T, Option<&'a Value>)> {
    let wanted = async |wanted: Wanted<'_>| {
        Ok(match wanted {
            Wanted::Newest => newest.into_iter().cloned().collect(),
            Wanted::Beginning(prefix) => {
                rows.iter().filter(|row| prefix.fits(&kind.id(row))).cloned().collect()
            }
        })
    };
    let id = find(kind, named, wanted).await?;
    Ok((id, rows.iter().find(|row| kind.id(row) == id.to_string())))
}

/// Asks a gateway for rows of a list. `newest` is the filter for `last`; `by_id` is the parameter for the beginning of
/// an id.
pub(super) async fn from_gateway(
    client: &mut Client,
    list: &str,
    by_id: &str,
    newest: &str,
    wanted: Wanted<'_>,
) -> anyhow::Result<Vec<Value>> {
    match wanted {
        Wanted::Newest => client.list(list, newest, None, 1).await,
        Wanted::Beginning(prefix) => {
            let filter = format!("&{by_id}={}", prefix.as_str());
            client.list(list, &filter, None, CANDIDATES_MAX + 1).await
        }
    }
}

/// The session that is meant, of those that the client may see.
pub(super) async fn session(
    client: &mut Client,
    named: Option<&Named<SessionId>>,
) -> anyhow::Result<Option<SessionId>> {
    let Some(named) = named else { return Ok(None) };
    let rows =
        async |wanted: Wanted<'_>| from_gateway(client, "sessions", "id_prefix", "", wanted).await;
    find(&SESSION, named, rows).await.map(Some)
}

/// The run that is meant, of those that the client may see. It may be of another principal than the caller, so whose
/// the newest one is goes to standard error.
pub(super) async fn run(client: &mut Client, named: &Named<RunId>) -> anyhow::Result<RunId> {
    let rows = async |wanted: Wanted<'_>| {
        let rows = from_gateway(client, "runs", "text", "", wanted).await?;
        if let (Wanted::Newest, Some(newest)) = (wanted, rows.first()) {
            let (run, owner) = (text(newest, "tool_run_id"), text(newest, "principal_id"));
            show::note(show::printable(&format!("last: run {run} of `{owner}`")));
        }
        Ok(rows)
    };
    find(&RUN, named, rows).await
}

/// The approval that is meant: `last` is the newest with this status.
pub(super) async fn approval(
    client: &mut Client,
    named: &Named<ApprovalId>,
    status: &str,
) -> anyhow::Result<ApprovalId> {
    let newest = format!("&status={status}");
    let rows = async |wanted: Wanted<'_>| {
        from_gateway(client, "approvals", "id_prefix", &newest, wanted).await
    };
    find(&APPROVAL, named, rows).await
}

/// The run that is meant, in the store: `last` is the newest of the agent as which `run`, `step`, `chat` and `mcp` act on
/// this directory. Runs of other principals over HTTP do not count.
pub(super) async fn run_in(store: &dyn Store, named: &Named<RunId>) -> anyhow::Result<RunId> {
    let rows = async |wanted: Wanted<'_>| {
        let query = match wanted {
            Wanted::Newest => RunQuery {
                principal_id: Some(start::local_agent()?),
                limit: 1,
                ..RunQuery::default()
            },
            Wanted::Beginning(prefix) => RunQuery {
                text: Some(RunText::IdPrefix(prefix.clone())),
                limit: usize::try_from(CANDIDATES_MAX + 1)?,
                ..RunQuery::default()
            },
        };
        let runs = store.runs(query).await?;
        let row = |run| Ok(serde_json::to_value(RunObject::of(run))?);
        runs.iter().map(row).collect()
    };
    find(&RUN, named, rows).await
}

/// The session that is meant, in the store: of this principal, or of any.
pub(super) async fn session_in(
    store: &dyn Store,
    named: Option<&Named<SessionId>>,
    principal_id: Option<&PrincipalId>,
) -> anyhow::Result<Option<SessionId>> {
    let Some(named) = named else { return Ok(None) };
    let rows = async |wanted: Wanted<'_>| {
        let (id_prefix, limit) = match wanted {
            Wanted::Newest => (None, 1),
            Wanted::Beginning(prefix) => (Some(prefix.clone()), CANDIDATES_MAX + 1),
        };
        let (principal_id, limit) = (principal_id.cloned(), usize::try_from(limit)?);
        let query = SessionQuery { id_prefix, principal_id, limit, ..SessionQuery::default() };
        let sessions = store.session_page(query).await?;
        let row = |it: &Session| json!({ "session_id": it.session_id, "ts": it.ts, "principal_id": it.principal_id });
        Ok(sessions.iter().map(row).collect())
    };
    find(&SESSION, named, rows).await.map(Some)
}

#[cfg(test)]
mod tests;
