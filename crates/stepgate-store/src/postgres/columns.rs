//! Rows as PostgreSQL takes many at once: an array for each column.

use super::cells::escaped;
use super::link::Value;
use crate::tables::{Cell, Column, Kind};

/// The columns as arrays for `unnest`, which makes a row of each place in them.
pub(super) fn arrays(columns: &[Column<'_>]) -> String {
    let array = |kind: Kind| match kind {
        Kind::Number => "bigint[]",
        Kind::Text | Kind::FreeText => "text[]",
        Kind::Bytes => "bytea[]",
    };
    let numbered = (1..).zip(columns);
    let arrays: Vec<_> =
        numbered.map(|(number, (_, kind))| format!("${number}::{}", array(*kind))).collect();
    arrays.join(", ")
}

/// The values of rows, an array for each column, in PostgreSQL's form.
pub(super) fn by_column(columns: &[Column<'_>], rows: Vec<Vec<Cell<'_>>>) -> Vec<Value> {
    let mut cells: Vec<Vec<Cell<'_>>> = vec![Vec::new(); columns.len()];
    for row in rows {
        for (column, cell) in cells.iter_mut().zip(row) {
            column.push(cell);
        }
    }
    let column = |((_, kind), cells): (&Column<'_>, Vec<Cell<'_>>)| -> Value {
        let cells = cells.into_iter();
        match kind {
            Kind::Number => Box::new(cells.map(number).collect::<Vec<_>>()),
            Kind::Text => Box::new(cells.map(text).collect::<Vec<_>>()),
            Kind::FreeText => {
                let escaped = |text: String| escaped(&text).into_owned();
                Box::new(cells.map(|cell| text(cell).map(escaped)).collect::<Vec<_>>())
            }
            Kind::Bytes => Box::new(cells.map(bytes).collect::<Vec<_>>()),
        }
    };
    columns.iter().zip(cells).map(column).collect()
}

/// A cell has its column's type or is null: SQLite's tables are strict, and so are our own rows.
fn number(cell: Cell<'_>) -> Option<i64> {
    match cell {
        Cell::Number(number) => Some(number),
        Cell::Nothing | Cell::Text(_) | Cell::Bytes(_) => None,
    }
}

fn text(cell: Cell<'_>) -> Option<String> {
    match cell {
        Cell::Text(text) => Some(text.into_owned()),
        Cell::Nothing | Cell::Number(_) | Cell::Bytes(_) => None,
    }
}

fn bytes(cell: Cell<'_>) -> Option<Vec<u8>> {
    match cell {
        Cell::Bytes(bytes) => Some(bytes.into_owned()),
        Cell::Nothing | Cell::Number(_) | Cell::Text(_) => None,
    }
}
