//! The bindings of keys as older versions kept them: in `effects`, and not in the rows of their runs.

use std::path::Path;

use rusqlite::Connection;

/// The columns of a binding in the row of a run, and what `effects` has instead.
pub(crate) const OF_RUNS: &str =
    "idempotency_key, tool_server, bound_tool, lower(hex(asked_digest)), tool_run_id, settled";
pub(crate) const OF_EFFECTS: &str =
    "idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled";

/// Moves the bindings of the first runs of a SQLite store, and returns how many there were. The triggers are as before.
pub(crate) fn keep_in_effects(path: &Path, last_position: i64) -> usize {
    let stranger = Connection::open(path).unwrap();
    let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'";
    let triggers: Vec<(String, String)> = stranger
        .prepare(sql)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (name, _) in &triggers {
        stranger.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    let theirs = "FROM tool_runs WHERE idempotency_key IS NOT NULL AND position <= ?1";
    let copy =
        format!("INSERT INTO effects ({OF_EFFECTS}) SELECT {OF_RUNS} {theirs} ORDER BY position");
    let moved = stranger.execute(&copy, [last_position]).unwrap();
    let clear =
        "UPDATE tool_runs SET idempotency_key = NULL, tool_server = NULL, bound_tool = NULL,
                                      asked_digest = NULL, settled = NULL WHERE position <= ?1";
    stranger.execute(clear, [last_position]).unwrap();
    for (_, sql) in &triggers {
        stranger.execute_batch(sql).unwrap();
    }
    moved
}
