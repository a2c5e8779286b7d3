use rusqlite::Connection;

use super::MIGRATIONS;

/// The SQL statements of a source file: its string literals that begin like one.
fn statements(source: &'static str) -> impl Iterator<Item = &'static str> {
    let literals = source.split('"').skip(1).step_by(2);
    literals.filter(|literal| {
        ["SELECT", "UPDATE", "DELETE"].iter().any(|verb| literal.starts_with(verb))
    })
}

#[test]
fn every_statement_by_key_uses_an_index() {
    let connection = Connection::open_in_memory().unwrap();
    for migration in MIGRATIONS {
        connection.execute_batch(migration).unwrap();
    }
    let sources = [include_str!("../read.rs"), include_str!("../write.rs")];
    let mut seen = 0;
    for sql in sources.into_iter().flat_map(statements) {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![rusqlite::types::Value::Null; plan.parameter_count()];
        let mut rows = plan.query(rusqlite::params_from_iter(parameters)).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let detail: String = row.get("detail").unwrap();
            let is_list = sql.ends_with("FROM sessions ORDER BY session_id");
            // A heading: its work is in a line of its own.
            let is_heading = detail.starts_with("CORRELATED SCALAR SUBQUERY");
            let is_search = detail.starts_with("SEARCH");
            assert!(is_search || is_heading || is_list, "{sql}: {detail}");
        }
        seen += 1;
    }
    assert!(seen > 20, "only {seen} statements were found");
}
