use super::{APPROVALS, CHUNKS, EFFECTS, EVENTS, rows_sql};
use crate::sqlite::open::{SqliteOptions, writer};

#[test]
fn the_rows_of_a_page_are_found_in_order_by_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = writer(&path, &SqliteOptions::default()).unwrap();
    for (table, order, index) in [
        (CHUNKS, "sequence_number", "sqlite_autoindex_chunks_1 (trace_id=?)"),
        (EVENTS, "position", "events_by_run (tool_run_id=?)"),
        (APPROVALS, "position", "sqlite_autoindex_approvals_2 (tool_run_id=?)"),
        (EFFECTS, "position", "sqlite_autoindex_effects_2 (trace_id=?)"),
    ] {
        let sql = format!("EXPLAIN QUERY PLAN {}", rows_sql(table, order));
        let mut plan = connection.prepare(&sql).unwrap();
        let plan = plan.query_map([1, 9], |row| row.get::<_, String>("detail")).unwrap();
        let plan: Vec<String> = plan.map(Result::unwrap).collect();
        let runs = "SEARCH runs USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)".to_owned();
        assert_eq!(plan, [runs, format!("SEARCH its USING INDEX {index}")], "{sql}");
    }
}
