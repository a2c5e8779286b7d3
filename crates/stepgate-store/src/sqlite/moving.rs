//! Moves the rows of an older version into chunks, some traces at a time.

use rusqlite::{Connection, TransactionBehavior, params_from_iter};

use super::backup::cells;
use super::cells::into_values;
use crate::backup::BackupError;
use crate::moving::{OLD_TABLES, Progress, TRACES_MAX, chunks_of};
use crate::tables::{CHUNKS, Cell, Table};

/// Why rows cannot be moved.
pub(super) enum Unmoved {
    Sqlite(rusqlite::Error),
    Rows(String),
}

impl From<rusqlite::Error> for Unmoved {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<BackupError> for Unmoved {
    fn from(error: BackupError) -> Self {
        Self::Rows(error.to_string())
    }
}

/// Moves all of them. What was moved before it was interrupted stays moved.
pub(super) fn move_rows(connection: &mut Connection) -> Result<(), Unmoved> {
    let mut rows = 0;
    for Table { name, .. } in OLD_TABLES {
        let count = format!("SELECT count(*) FROM {name}");
        let count: i64 = connection.query_row(&count, [], |row| row.get(0))?;
        rows += u64::try_from(count).unwrap_or(0);
    }
    let mut progress = Progress::of(rows);
    for table in OLD_TABLES {
        loop {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let moved = move_some(&transaction, table)?;
            transaction.commit()?;
            if moved == 0 {
                break;
            }
            progress.add(moved);
        }
    }
    Ok(())
}

/// Moves the rows of the first traces of a table, and returns how many rows there were.
fn move_some(connection: &Connection, first: Table) -> Result<usize, Unmoved> {
    let Table { name, key, .. } = first;
    let sql = format!("SELECT DISTINCT {key} FROM {name} ORDER BY {key} LIMIT {TRACES_MAX}");
    let traces: Vec<String> = connection
        .prepare_cached(&sql)?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut rows: [Vec<Vec<Cell<'static>>>; 3] = Default::default();
    for (rows, table) in rows.iter_mut().zip(OLD_TABLES) {
        let sql = format!("{} WHERE {} = ?1 ORDER BY 2", table.select(), table.key);
        let mut select = connection.prepare_cached(&sql)?;
        for trace in &traces {
            let mut found = select.query([trace])?;
            while let Some(row) = found.next()? {
                rows.push(cells(&table, row)?);
            }
        }
    }
    let moved = rows.iter().map(Vec::len).sum();
    let insert = format!("INSERT {}", into_values(&CHUNKS, CHUNKS.given()));
    let mut insert = connection.prepare_cached(&insert)?;
    for chunk in chunks_of(rows).map_err(Unmoved::Rows)? {
        insert.execute(params_from_iter(chunk))?;
    }
    let mut deleted = 0;
    for Table { name, key, .. } in OLD_TABLES {
        let delete = format!("DELETE FROM {name} WHERE {key} = ?1");
        let mut delete = connection.prepare_cached(&delete)?;
        for trace in &traces {
            deleted += delete.execute([trace])?;
        }
    }
    match deleted == moved {
        true => Ok(moved),
        false => Err(Unmoved::Rows(format!("{deleted} rows are gone, and {moved} were moved"))),
    }
}
