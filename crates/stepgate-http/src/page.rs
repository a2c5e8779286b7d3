//! Pagination: limits the rows and the bytes of a page, so that many requests at once do not exhaust memory.
//!
//! A row can be megabytes long, so a page reads a few rows at a time and ends when it has enough bytes.

use std::future::Future;

use super::Problem;

/// Rows of a page by default, and at most.
const ROWS: usize = 50;
const ROWS_MAX: usize = 1000;
/// A page ends with the row that reaches this size.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows per read of the store.
const ROWS_AT_ONCE: usize = 8;

/// A page, and whether more may follow it.
pub(super) struct Page<T> {
    pub(super) rows: Vec<T>,
    pub(super) is_full: bool,
}

/// Reads a page. `read` returns up to the given number of rows after a row; `weight` is the size of a row in bytes.
pub(super) async fn read<T: Clone, F>(
    limit: Option<usize>,
    weight: impl Fn(&T) -> usize,
    mut read: impl FnMut(Option<T>, usize) -> F,
) -> Result<Page<T>, Problem>
where
    F: Future<Output = Result<Vec<T>, Problem>>,
{
    let limit = match limit.unwrap_or(ROWS) {
        limit @ 1..=ROWS_MAX => limit,
        _ => return Err(Problem::malformed(format!("`limit` must be from 1 to {ROWS_MAX}"))),
    };
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    while rows.len() < limit {
        let asked = ROWS_AT_ONCE.min(limit - rows.len());
        let found = read(rows.last().cloned(), asked).await?;
        let is_last = found.len() < asked;
        for row in found {
            bytes = bytes.saturating_add(weight(&row));
            rows.push(row);
            if bytes >= BYTES_MAX {
                return Ok(Page { rows, is_full: true });
            }
        }
        if is_last {
            return Ok(Page { rows, is_full: false });
        }
    }
    Ok(Page { rows, is_full: true })
}
