use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::event::EventType;
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::ports::{ApprovalQuery, EventQuery, RunQuery};
use stepgate_core::run::Status;
use uuid::Uuid;

use super::{approvals_sql, events_sql, runs_sql};
use crate::sqlite::open::{SqliteOptions, writer};

fn plan_of(connection: &Connection, (sql, params): (String, Vec<Value>)) -> Vec<String> {
    let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let rows = plan.query_map(params_from_iter(params), |row| row.get::<_, String>("detail"));
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn every_list_finds_its_rows_in_order_by_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = writer(&path, &SqliteOptions::default()).unwrap();
    let principal_id = Some(PrincipalId::parse("agent-1").unwrap());
    let all = RunQuery { limit: 50, ..RunQuery::default() };
    let theirs = RunQuery { principal_id: principal_id.clone(), ..all.clone() };
    let session_id = Some(SessionId::new(Uuid::nil()));
    let before = Some(RunId::new(Uuid::nil()));
    let by_session = "SEARCH tool_runs USING COVERING INDEX tool_runs_by_session (session_id=?)";
    let filtered = "SEARCH tool_runs USING INDEX tool_runs_by_session (session_id=? AND rowid<?)";
    let in_session = "SEARCH tool_runs USING INDEX tool_runs_by_session (session_id=?)";
    let unfinished = "SCAN tool_runs USING INDEX tool_runs_unfinished";
    let events = EventQuery { after: 7, limit: 50, ..EventQuery::default() };
    let their_events = EventQuery { principal_id: principal_id.clone(), ..events.clone() };
    let event_types = vec![EventType::ToolCalled, EventType::ToolFailed];
    let followed = "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)";
    let loose = "SEARCH events USING INDEX events_loose (position>?)";
    let approvals = ApprovalQuery { limit: 50, ..ApprovalQuery::default() };
    let pending = Some(ApprovalStatus::Pending);
    let rows = [
        (runs_sql(&all), "SCAN tool_runs"),
        (runs_sql(&theirs), by_session),
        (runs_sql(&RunQuery { before, status: Some(Status::Ok), ..theirs.clone() }), filtered),
        (runs_sql(&RunQuery { session_id, ..theirs.clone() }), in_session),
        (runs_sql(&RunQuery { status: Some(Status::Approved), ..theirs }), unfinished),
        (events_sql(&events), followed),
        (events_sql(&EventQuery { event_types, ..their_events.clone() }), followed),
        (events_sql(&EventQuery { loose_only: true, ..their_events }), loose),
        (approvals_sql(&approvals), "SCAN approvals"),
        (
            approvals_sql(&ApprovalQuery { status: pending, ..approvals.clone() }),
            "SCAN approvals USING INDEX approvals_pending",
        ),
        (
            approvals_sql(&ApprovalQuery { status: pending, principal_id, ..approvals }),
            "SCAN approvals USING INDEX approvals_pending",
        ),
    ];
    for (sql, expected) in rows {
        let text = sql.0.clone();
        let plan = plan_of(&connection, sql);
        assert!(plan.iter().any(|line| line == expected), "{text}: {plan:#?}");
        let scans = plan.iter().filter(|line| line.starts_with("SCAN"));
        assert!(scans.count() <= usize::from(expected.starts_with("SCAN")), "{text}: {plan:#?}");
        let is_lateral = text.contains("newest");
        let is_sorted = plan.iter().any(|line| line.contains("TEMP B-TREE"));
        assert!(is_lateral || !is_sorted, "{text}: {plan:#?}");
    }
}
