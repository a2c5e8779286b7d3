//! Moves the rows of an older version into chunks, some traces at a time.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params_from_iter};

use super::backup::cells;
use super::cells::into_values;
use super::error::{OpenError, while_opening};
use crate::moving::{OLD_TABLES, Progress, TRACES_MAX, chunks_of};
use crate::tables::{CHUNKS, Cell, Table};

/// Moves all of them. What was moved before it was interrupted stays moved.
pub(super) fn move_rows(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let lift = |error: rusqlite::Error| while_opening(path, &error);
    let mut rows = 0;
    for Table { name, .. } in OLD_TABLES {
        let count = format!("SELECT count(*) FROM {name}");
        let count: i64 = connection.query_row(&count, [], |row| row.get(0)).map_err(lift)?;
        rows += u64::try_from(count).unwrap_or(0);
    }
    let mut progress = Progress::of(rows);
    for table in OLD_TABLES {
        loop {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let transaction = transaction.map_err(lift)?;
            let moved = move_some(&transaction, table, path)?;
            transaction.commit().map_err(lift)?;
            if moved == 0 {
                break;
            }
            progress.add(moved);
        }
    }
    Ok(())
}

/// Moves the rows of the first traces of a table, and returns how many rows there were.
fn move_some(connection: &Connection, first: Table, path: &Path) -> Result<usize, OpenError> {
    let lift = |error: rusqlite::Error| while_opening(path, &error);
    let unmoved = |detail: String| OpenError::Damaged { path: path.to_owned(), detail };
    let Table { name, key, .. } = first;
    let sql = format!("SELECT DISTINCT {key} FROM {name} ORDER BY {key} LIMIT {TRACES_MAX}");
    let mut select = connection.prepare_cached(&sql).map_err(lift)?;
    let traces = select.query_map([], |row| row.get(0)).and_then(Iterator::collect);
    let traces: Vec<String> = traces.map_err(lift)?;
    let mut rows: [Vec<Vec<Cell<'static>>>; 3] = Default::default();
    for (rows, table) in rows.iter_mut().zip(OLD_TABLES) {
        let sql = format!("{} WHERE {} = ?1 ORDER BY 2", table.select(), table.key);
        let mut select = connection.prepare_cached(&sql).map_err(lift)?;
        for trace in &traces {
            let mut found = select.query([trace]).map_err(lift)?;
            while let Some(row) = found.next().map_err(lift)? {
                rows.push(cells(&table, row).map_err(|error| unmoved(error.to_string()))?);
            }
        }
    }
    let moved = rows.iter().map(Vec::len).sum();
    let insert = format!("INSERT {}", into_values(&CHUNKS, CHUNKS.given()));
    let mut insert = connection.prepare_cached(&insert).map_err(lift)?;
    for chunk in chunks_of(rows).map_err(unmoved)? {
        insert.execute(params_from_iter(chunk)).map_err(lift)?;
    }
    let mut deleted = 0;
    for Table { name, key, .. } in OLD_TABLES {
        let delete = format!("DELETE FROM {name} WHERE {key} = ?1");
        let mut delete = connection.prepare_cached(&delete).map_err(lift)?;
        for trace in &traces {
            deleted += delete.execute([trace]).map_err(lift)?;
        }
    }
    match deleted == moved {
        true => Ok(moved),
        false => Err(unmoved(format!("{deleted} rows are gone, and {moved} were moved"))),
    }
}
