//! Cursors: how far readers of the events have come, and which node reads.

use stepgate_core::ports::Cursor;

use super::cells::escaped;
use super::link::Query;
use crate::tables::Cell;

/// Takes a cursor, unless another living node has it: then there is no row. A reader may read twice, so a
/// lease that is renewed at this moment does no harm.
pub(super) fn take(name: &str, first: u64, incarnation: i64) -> Query {
    let sql = "INSERT INTO cursors AS there (name, reached, owner) VALUES ($1, $2, $3)
               ON CONFLICT (name) DO UPDATE SET owner = excluded.owner
               WHERE there.owner IS NULL OR there.owner = excluded.owner
                  OR NOT EXISTS (SELECT 1 FROM nodes WHERE incarnation = there.owner
                                   AND expires_at > clock_timestamp())
               RETURNING reached";
    Query::of(sql, [Cell::text_of(name), first.into(), Cell::Number(incarnation)])
}

/// Moves a cursor forward, if this node still has it.
pub(super) fn step(cursor: &Cursor, incarnation: i64) -> Query {
    let sql = "UPDATE cursors SET reached = greatest(reached, $2), error = $3
               WHERE name = $1 AND owner = $4 RETURNING reached";
    let error = cursor.error.as_deref().map(|error| Cell::text_of(escaped(error)));
    let (name, reached) = (Cell::text_of(&cursor.name), cursor.reached.into());
    Query::of(sql, [name, reached, error.into(), Cell::Number(incarnation)])
}
