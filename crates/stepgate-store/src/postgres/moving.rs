//! Moves the rows of an older version into chunks, some traces at a time.

use tokio_postgres::{Client, GenericClient};

use super::backup::cells;
use super::columns::{arrays, by_column};
use super::error::{OpenError, while_opening};
use crate::moving::{OLD_TABLES, Progress, TRACES_MAX, chunks_of};
use crate::tables::{CHUNKS, Cell, Table};

/// Moves all of them. What was moved before it was interrupted stays moved.
pub(super) async fn move_rows(client: &mut Client, shown: &str) -> Result<(), OpenError> {
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    let mut rows = 0;
    for Table { name, .. } in OLD_TABLES {
        let count = format!("SELECT count(*) FROM {name}");
        let count: i64 = client.query_one(&count, &[]).await.map_err(lift)?.get(0);
        rows += u64::try_from(count).unwrap_or(0);
    }
    let mut progress = Progress::of(rows);
    for table in OLD_TABLES {
        loop {
            let transaction = client.transaction().await.map_err(lift)?;
            let moved = move_some(&transaction, table, shown).await?;
            transaction.commit().await.map_err(lift)?;
            if moved == 0 {
                break;
            }
            progress.add(moved);
        }
    }
    Ok(())
}

/// Moves the rows of the first traces of a table, and returns how many rows there were.
async fn move_some(
    client: &impl GenericClient,
    first: Table,
    shown: &str,
) -> Result<usize, OpenError> {
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    let unmoved = |detail: String| OpenError::Unmoved { shown: shown.to_owned(), detail };
    let Table { name, key, .. } = first;
    let sql = format!("SELECT DISTINCT {key} FROM {name} ORDER BY {key} LIMIT {TRACES_MAX}");
    let traces: Vec<String> =
        client.query(&sql, &[]).await.map_err(lift)?.iter().map(|row| row.get(0)).collect();
    let mut rows: [Vec<Vec<Cell<'static>>>; 3] = Default::default();
    for (rows, table) in rows.iter_mut().zip(OLD_TABLES) {
        let sql = format!("{} WHERE {} = ANY($1) ORDER BY 1, 2", table.select(), table.key);
        for row in &client.query(&sql, &[&traces]).await.map_err(lift)? {
            rows.push(cells(&table, row).map_err(|error| unmoved(error.to_string()))?);
        }
    }
    let moved = rows.iter().map(Vec::len).sum();
    let columns = CHUNKS.typed(CHUNKS.given());
    let (names, arrays) = (CHUNKS.given(), arrays(&columns));
    let insert = format!("INSERT INTO chunks ({names}) SELECT * FROM unnest({arrays})");
    let values = by_column(&columns, chunks_of(rows).map_err(unmoved)?);
    let values: Vec<_> = values.iter().map(|value| value.as_ref() as _).collect();
    client.execute(&insert, &values).await.map_err(lift)?;
    let mut deleted = 0;
    for Table { name, key, .. } in OLD_TABLES {
        let delete = format!("DELETE FROM {name} WHERE {key} = ANY($1)");
        deleted += client.execute(&delete, &[&traces]).await.map_err(lift)?;
    }
    match usize::try_from(deleted) == Ok(moved) {
        true => Ok(moved),
        false => Err(unmoved(format!("{deleted} rows are gone, and {moved} were moved"))),
    }
}
