//! `/runs`: the runs, newest first, with filters.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use stepgate_core::ids::{PrincipalId, RunId};
use stepgate_core::ports::{RunQuery, RunText, StoreError};
use stepgate_core::run::{Arrival, Run, Status};
use stepgate_core::time::Timestamp;

use super::{Frame, Moment, Tab, Text, Trouble, Visit, ago, duration, html};
use crate::runs::TEXT_BYTES_MAX;
use crate::{App, Params};

const ROWS: usize = 50;
/// Longest tool name in the table.
const NAME_CHARS_MAX: usize = 60;

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: Frame,
    filters: Filters,
    statuses: [Status; 7],
    rows: Vec<RunRow>,
    /// The query of the next page.
    older: Option<String>,
    /// Why the filters could not be used.
    complaint: Option<String>,
}

/// The filters as the form has them. A field that was left empty filters nothing.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Filters {
    status: String,
    tool: String,
    principal: String,
    session: String,
    since: String,
    until: String,
    text: String,
    before: String,
}

pub(super) struct RunRow {
    pub(super) arrival: Arrival,
    pub(super) tool: Text,
    pub(super) status: StatusWord,
    pub(super) at: Moment,
    pub(super) age: String,
    pub(super) took: Option<String>,
}

/// A status: a CSS class, and words for people.
pub(super) struct StatusWord {
    pub(super) class: &'static str,
    pub(super) words: &'static str,
}

pub(super) async fn list(
    Visit(app, visitor): Visit,
    Params(filters): Params<Filters>,
) -> Result<Response, Trouble> {
    let now = app.service.gate.world.now();
    let (rows, complaint) = match filters.query() {
        Ok(query) => (read(&app, query, now).await?, None),
        Err(complaint) => (Vec::new(), Some(complaint)),
    };
    let oldest = rows.last().filter(|_| rows.len() == ROWS).map(|row| row.arrival.run_id);
    let page = RunsPage {
        frame: Frame::at(Tab::Runs, "Runs", &visitor),
        older: oldest.map(|oldest| filters.older_than(oldest)),
        statuses: Status::ALL,
        filters,
        rows,
        complaint,
    };
    let status = match page.complaint {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    Ok(html(status, &page))
}

pub(super) async fn read(
    app: &App,
    query: RunQuery,
    now: Timestamp,
) -> Result<Vec<RunRow>, StoreError> {
    let runs = app.service.gate.store.runs(RunQuery { limit: ROWS, ..query }).await?;
    Ok(runs.iter().map(|run| RunRow::of(run, now)).collect())
}

impl Filters {
    fn has(&self, status: &Status) -> bool {
        self.status == status.as_str()
    }

    fn query(&self) -> Result<RunQuery, String> {
        fn read<T, E>(
            name: &str,
            field: &str,
            parse: impl Fn(&str) -> Result<T, E>,
        ) -> Result<Option<T>, String> {
            let read = chosen(field).map(|text| parse(text).map_err(|_| (name, text)));
            read.transpose().map_err(|(name, text)| format!("“{text}” is not a {name}."))
        }
        const TIME: &str = "time, such as 2026-01-31 or 2026-01-31T12:00";
        Ok(RunQuery {
            before: read("run id", &self.before, str::parse)?,
            after: None,
            session_id: read("session id", &self.session, str::parse)?,
            principal_id: read("principal", &self.principal, PrincipalId::parse)?,
            status: read("status", &self.status, |text| Status::parse(text).ok_or(()))?,
            tool_name: chosen(&self.tool).map(str::to_owned),
            since: read(TIME, &self.since, Timestamp::parse_short)?,
            until: read(TIME, &self.until, Timestamp::parse_short)?,
            text: read("text to look for", &self.text, search_text)?,
            limit: ROWS,
        })
    }

    /// The query string of the page after this one.
    fn older_than(&self, oldest: RunId) -> String {
        let filters = Self { before: oldest.to_string(), ..self.clone() };
        let filters = serde_json::to_value(filters).unwrap_or_default();
        let fields = filters.as_object().into_iter().flatten().filter_map(|(name, value)| {
            chosen(value.as_str()?).map(|value| format!("{name}={}", escaped(value)))
        });
        fields.collect::<Vec<_>>().join("&")
    }
}

fn search_text(text: &str) -> Result<RunText, ()> {
    if text.len() <= TEXT_BYTES_MAX { Ok(RunText::of(text)) } else { Err(()) }
}

/// What a field has; none if it was left empty.
fn chosen(field: &str) -> Option<&str> {
    Some(field.trim()).filter(|text| !text.is_empty())
}

/// A value in a query string: everything except letters and digits is escaped.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

impl RunRow {
    pub(super) fn of(run: &Run, now: Timestamp) -> Self {
        let tool = run.tool_name.as_deref().unwrap_or("not readable");
        let received_at = run.arrival.received_at;
        Self {
            arrival: run.arrival.clone(),
            tool: Text::of(&stepgate_gateway::text::shortened(tool, NAME_CHARS_MAX)),
            status: StatusWord::of(run.status),
            at: Moment::of(received_at),
            age: ago(received_at, now),
            took: run.ending.as_ref().map(|ending| duration(ending.latency_ms)),
        }
    }
}

impl StatusWord {
    pub(super) fn of(status: Status) -> Self {
        let (class, words) = match status {
            Status::Started => ("under-way", "under way"),
            Status::ApprovalRequired => ("pending", "waits for a person"),
            Status::Approved => ("under-way", "approved, under way"),
            Status::Ok => ("good", "done"),
            Status::Error => ("bad", "refused or failed"),
            Status::Timeout => ("bad", "timed out"),
            Status::Denied => ("denied", "denied"),
        };
        Self { class, words }
    }
}
