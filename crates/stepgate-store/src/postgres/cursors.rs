//! Cursors: how far readers of the events have come, and which node reads.

use stepgate_core::ports::Cursor;

use super::cells::escaped;
use super::link::Query;

/// Takes a cursor, unless another living node has it: then there is no row. A reader may read twice, so a
/// lease that is renewed at this moment does no harm.
pub(super) fn take(name: &str, first: u64, incarnation: i64) -> Query {
    let sql = "INSERT INTO cursors AS there (name, reached, owner) VALUES ($1, $2, $3)
               ON CONFLICT (name) DO UPDATE SET owner = excluded.owner
               WHERE there.owner IS NULL OR there.owner = excluded.owner
                  OR NOT EXISTS (SELECT 1 FROM nodes WHERE incarnation = there.owner
                                   AND expires_at > clock_timestamp())
               RETURNING reached";
    let (name, first) = (name.to_owned(), number(first));
    Query::new(sql, vec![Box::new(name), Box::new(first), Box::new(incarnation)])
}

/// Moves a cursor forward, if this node still has it.
pub(super) fn step(cursor: &Cursor, incarnation: i64) -> Query {
    let sql = "UPDATE cursors SET reached = greatest(reached, $2), error = $3
               WHERE name = $1 AND owner = $4 RETURNING reached";
    let error = cursor.error.as_deref().map(|error| escaped(error).into_owned());
    let (name, reached) = (cursor.name.clone(), number(cursor.reached));
    let values = vec![
        Box::new(name) as _,
        Box::new(reached) as _,
        Box::new(error) as _,
        Box::new(incarnation) as _,
    ];
    Query::new(sql, values)
}

/// Every cursor.
pub(super) fn all() -> Query {
    Query::new("SELECT name, reached, error FROM cursors ORDER BY name", Vec::new())
}

fn number(reached: u64) -> i64 {
    i64::try_from(reached).unwrap_or(i64::MAX)
}
