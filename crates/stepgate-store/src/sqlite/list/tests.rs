use rusqlite::{Connection, StatementStatus, params_from_iter};
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::event::EventType;
use stepgate_core::ids::{IdPrefix, PrincipalId, RunId, SessionId};
use stepgate_core::ports::{ApprovalQuery, EventQuery, RunQuery, RunText, SessionQuery, TurnQuery};
use stepgate_core::run::Status;
use stepgate_core::time::Timestamp;
use uuid::Uuid;

use super::{counted, number, opened_turns};
use crate::search::Finder;
use crate::select::{self, Engine, Select};
use crate::sqlite::open::{SqliteOptions, writer};
use crate::tables::Cell;

/// A query as SQLite gets it.
type Asked = (String, Vec<Cell<'static>>);

fn asked<T>(select: Select<T>) -> Asked {
    (select.sql.replace('$', "?"), select.values)
}

fn plan_of(connection: &Connection, (sql, values): Asked) -> Vec<String> {
    let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let rows = plan.query_map(params_from_iter(values), |row| row.get::<_, String>("detail"));
    rows.unwrap().map(Result::unwrap).collect()
}

fn runs_sql(connection: &Connection, query: &RunQuery) -> Asked {
    let count = |finder| (number(connection, counted(query, finder)).unwrap(), finder);
    let finder = Finder::shortest(Finder::candidates(query).into_iter().map(count));
    asked(super::runs(query, finder))
}

fn events_sql(query: &EventQuery) -> Asked {
    asked(select::events(Engine::Sqlite, query))
}

fn approvals_sql(query: &ApprovalQuery) -> Asked {
    asked(select::approvals(query))
}

fn sessions_sql(query: &SessionQuery) -> Asked {
    asked(select::session_page(Engine::Sqlite, query))
}

fn turns_sql(query: &TurnQuery) -> Asked {
    asked(opened_turns(query))
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
    let filtered = "SEARCH tool_runs USING INDEX tool_runs_by_session (session_id=? AND rowid<?)";
    let in_session = "SEARCH tool_runs USING INDEX tool_runs_by_session (session_id=?)";
    let unfinished = "SCAN tool_runs USING INDEX tool_runs_unfinished";
    let events = EventQuery { after: 7, limit: 50, ..EventQuery::default() };
    let their_events = EventQuery { principal_id: principal_id.clone(), ..events.clone() };
    let event_types = vec![EventType::ToolCalled, EventType::ToolFailed];
    let event_types_differing = vec![EventType::PolicyDiffers];
    let differing = EventQuery { event_types: event_types_differing, ..events.clone() };
    let followed = "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)";
    let loose = "SEARCH events USING INDEX events_loose (position>?)";
    let approvals = ApprovalQuery { limit: 50, ..ApprovalQuery::default() };
    let pending = Some(ApprovalStatus::Pending);
    let rows = [
        (runs_sql(&connection, &all), "SCAN tool_runs"),
        (runs_sql(&connection, &theirs), in_session),
        (
            runs_sql(&connection, &RunQuery { before, status: Some(Status::Ok), ..theirs.clone() }),
            filtered,
        ),
        (runs_sql(&connection, &RunQuery { session_id, ..theirs.clone() }), in_session),
        (runs_sql(&connection, &RunQuery { status: Some(Status::Approved), ..theirs }), unfinished),
        (events_sql(&events), followed),
        (events_sql(&EventQuery { event_types, ..their_events.clone() }), followed),
        (events_sql(&EventQuery { loose_only: true, ..their_events }), loose),
        (events_sql(&differing), "SEARCH events USING INDEX events_differing (position>?)"),
        (
            events_sql(&EventQuery { back_from: Some(90), ..differing }),
            "SEARCH events USING INDEX events_differing (position>? AND position<?)",
        ),
        (approvals_sql(&approvals), "SCAN approvals"),
        (
            approvals_sql(&ApprovalQuery { status: pending, ..approvals.clone() }),
            "SCAN approvals USING INDEX approvals_pending",
        ),
        (
            approvals_sql(&ApprovalQuery {
                status: pending,
                oldest_first: true,
                ..approvals.clone()
            }),
            "SCAN approvals USING INDEX approvals_pending",
        ),
        (
            approvals_sql(&ApprovalQuery { status: pending, principal_id, ..approvals }),
            "SCAN approvals USING INDEX approvals_pending",
        ),
    ];
    for (sql, expected) in rows {
        check_plan(&connection, sql, expected);
    }
}

#[track_caller]
fn check_plan(connection: &Connection, sql: Asked, expected: &str) {
    let text = sql.0.clone();
    let plan = plan_of(connection, sql);
    assert!(plan.iter().any(|line| line == expected), "{text}: {plan:#?}");
    let scans = plan.iter().filter(|line| line.starts_with("SCAN"));
    assert!(scans.count() <= usize::from(expected.starts_with("SCAN")), "{text}: {plan:#?}");
    // Rows of several sessions are merged by a sort; all others come in order.
    let is_merged = text.contains(" session_id IN") && text.contains("FROM tool_runs");
    let is_sorted = plan.iter().any(|line| line.contains("TEMP B-TREE"));
    assert_eq!(is_sorted, is_merged, "{text}: {plan:#?}");
}

#[test]
fn every_filter_of_runs_and_the_lists_of_sessions_and_turns_use_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = writer(&path, &SqliteOptions::default()).unwrap();
    let principal_id = Some(PrincipalId::parse("agent-1").unwrap());
    let session_id = Some(SessionId::new(Uuid::nil()));
    let time = Some(Timestamp::from_millisecond(1_790_000_000_000));
    let all = RunQuery { limit: 50, ..RunQuery::default() };
    let sessions = SessionQuery { limit: 50, ..SessionQuery::default() };
    let turns = TurnQuery { limit: 50, ..TurnQuery::default() };
    let rows = [
        (
            runs_sql(&connection, &RunQuery { tool_name: Some("x".into()), ..all.clone() }),
            "SEARCH tool_runs USING INDEX tool_runs_by_tool (tool_name=?)",
        ),
        (
            runs_sql(&connection, &RunQuery { status: Some(Status::Timeout), ..all.clone() }),
            "SEARCH tool_runs USING INDEX tool_runs_not_ok (status=?)",
        ),
        (
            runs_sql(&connection, &RunQuery { text: Some(RunText::of("0198b2c4")), ..all.clone() }),
            "SEARCH tool_runs USING INDEX sqlite_autoindex_tool_runs_1 (tool_run_id>? AND tool_run_id<?)",
        ),
        (
            runs_sql(&connection, &RunQuery { since: time, until: time, ..all.clone() }),
            "SEARCH tool_runs USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        ),
        (
            runs_sql(
                &connection,
                &RunQuery { since: time, tool_name: Some("x".into()), ..all.clone() },
            ),
            "SEARCH tool_runs USING INDEX tool_runs_by_tool (tool_name=? AND position>?)",
        ),
        (sessions_sql(&sessions), "SCAN sessions"),
        (
            sessions_sql(&SessionQuery { principal_id: principal_id.clone(), ..sessions }),
            "SEARCH sessions USING INDEX sessions_of_principal (principal_id=?)",
        ),
        (turns_sql(&turns), "SCAN events USING INDEX events_loose"),
        (
            turns_sql(&TurnQuery { session_id, ..turns }),
            "SEARCH events USING INDEX events_turns (session_id=?)",
        ),
    ];
    for (sql, expected) in rows {
        check_plan(&connection, sql, expected);
    }
}

#[test]
fn the_beginning_of_an_id_is_looked_up_in_the_index_of_ids_whatever_else_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = writer(&path, &SqliteOptions::default()).unwrap();
    let principal_id = Some(PrincipalId::parse("agent-1").unwrap());
    let id_prefix = Some(IdPrefix::parse("0198b2c4").unwrap());
    let approvals = ApprovalQuery { id_prefix: id_prefix.clone(), ..ApprovalQuery::default() };
    let sessions = SessionQuery { id_prefix: id_prefix.clone(), ..SessionQuery::default() };
    let turns = TurnQuery { id_prefix, ..TurnQuery::default() };
    let theirs = principal_id.clone();
    let rows = [
        (approvals_sql(&approvals), "approvals", "approval_id"),
        (
            approvals_sql(&ApprovalQuery {
                principal_id: theirs.clone(),
                status: Some(ApprovalStatus::Pending),
                ..approvals
            }),
            "approvals",
            "approval_id",
        ),
        (sessions_sql(&sessions), "sessions", "session_id"),
        (
            sessions_sql(&SessionQuery { principal_id: theirs, ..sessions }),
            "sessions",
            "session_id",
        ),
        (turns_sql(&turns), "events", "event_id"),
        (turns_sql(&TurnQuery { principal_id, ..turns }), "events", "event_id"),
    ];
    for (sql, table, id) in rows {
        let found =
            format!("SEARCH {table} USING INDEX sqlite_autoindex_{table}_1 ({id}>? AND {id}<?)");
        check_plan(&connection, sql, &found);
    }
}

/// The cost of a list: SQLite's own count of its steps.
fn steps_of(connection: &Connection, (sql, values): Asked) -> (usize, i32) {
    let mut statement = connection.prepare(&sql).unwrap();
    let found = statement.query_map(params_from_iter(values), |_| Ok(())).unwrap().count();
    (found, statement.get_status(StatementStatus::VmStep))
}

/// One principal has nearly all runs, in many sessions; another has a few, which are the oldest.
#[test]
fn runs_of_a_principal_cost_neither_all_runs_nor_all_of_theirs() {
    const RUNS: usize = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = writer(&path, &SqliteOptions::default()).unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN;
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 42)
             INSERT INTO sessions (session_id, principal_id, kind, ts, head_number, head_digest,
                                   last_step_index)
             SELECT 's' || i, iif(i < 40, 'most', 'few'), 'named', '', 0, '', 0 FROM n;
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {RUNS} - 1)
             INSERT INTO tool_runs (tool_run_id, ts, session_id, principal_id, step_index, status,
                                    payload_bytes, payload)
             SELECT 'r' || i, '', 's' || iif(i < 20, 40 + i % 2, i % 40), '', 0, 'ok', 0, x''
             FROM n;
             COMMIT;"
        ))
        .unwrap();
    for (principal, rows, steps_max) in [("few", 20, 2_000), ("most", 50, 20_000), ("none", 0, 100)]
    {
        let principal_id = Some(PrincipalId::parse(principal).unwrap());
        let theirs = RunQuery { principal_id, limit: 50, ..RunQuery::default() };
        for status in [None, Some(Status::Ok)] {
            let query = RunQuery { status, ..theirs.clone() };
            let (found, steps) = steps_of(&connection, runs_sql(&connection, &query));
            assert_eq!(found, rows, "{principal}");
            assert!(steps < steps_max, "{principal}, {status:?}: {steps} steps");
        }
    }
}

/// A million would take minutes to write here; the cost of a list does not grow with the number of runs.
#[test]
fn a_filter_reads_little_more_than_it_shows() {
    const RUNS: usize = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = writer(&path, &SqliteOptions::default()).unwrap();
    // A run every second. One in a thousand is of a rare tool, and one in a thousand failed: the oldest.
    connection
        .execute_batch(&format!(
            "BEGIN;
             INSERT INTO sessions (session_id, principal_id, kind, ts, head_number, head_digest,
                                   last_step_index)
             VALUES ('s', 'most', 'named', '', 0, '', 0), ('few', 'few', 'named', '', 0, '', 0);
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {RUNS} - 1),
               run(i, ms) AS (SELECT i, 1790000000000 + i * 1000 FROM n)
             INSERT INTO tool_runs (tool_run_id, ts, session_id, principal_id, step_index, status,
                                    tool_name, payload_bytes, payload)
             SELECT printf('%08x-%04x-7000-8000-%012x', ms >> 16, ms & 65535, i),
                    strftime('%Y-%m-%dT%H:%M:%fZ', ms / 1000.0, 'unixepoch'),
                    iif(i < 20, 'few', 's'), iif(i < 20, 'few', 'most'), 0,
                    iif(i < 20, 'error', 'ok'), iif(i < 20, 'rare.tool', 'tool.' || (i % 7)), 0, x''
             FROM run;
             COMMIT;"
        ))
        .unwrap();
    let at = |second: i64| Some(Timestamp::from_millisecond(1_790_000_000_000 + second * 1000));
    let all = RunQuery { limit: 50, ..RunQuery::default() };
    let text = |text| Some(RunText::of(text));
    let [most, none] = ["most", "none"].map(|name| Some(PrincipalId::parse(name).unwrap()));
    let rows = [
        (RunQuery { status: Some(Status::Error), ..all.clone() }, 20),
        (RunQuery { tool_name: Some("rare.tool".into()), ..all.clone() }, 20),
        (RunQuery { text: text("RARE"), ..all.clone() }, 20),
        (RunQuery { text: text("tool"), ..all.clone() }, 50),
        (RunQuery { text: text("nothing"), ..all.clone() }, 0),
        (RunQuery { until: at(100), ..all.clone() }, 50),
        (RunQuery { since: at(100), until: at(130), ..all.clone() }, 30),
        (RunQuery { since: at(10), until: at(30), text: text("rare"), ..all.clone() }, 10),
        (RunQuery { principal_id: most.clone(), text: text("rare"), ..all.clone() }, 0),
        (RunQuery { principal_id: most, status: Some(Status::Error), ..all.clone() }, 0),
        (RunQuery { principal_id: none.clone(), text: text("tool"), ..all.clone() }, 0),
        (RunQuery { principal_id: none, tool_name: Some("tool.1".into()), ..all }, 0),
    ];
    for (query, expected) in rows {
        let (found, steps) = steps_of(&connection, runs_sql(&connection, &query));
        assert_eq!(found, expected, "{query:?}");
        assert!(steps < 10_000, "{query:?}: {steps} steps");
    }
}
