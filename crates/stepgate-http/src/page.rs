//! Pages of a list: at most so many rows, and no more bytes than memory has room for when many ask.
//!
//! A row can be megabytes long, so a page reads a few at a time and ends where it is heavy enough.

use std::future::Future;

use super::Problem;

/// Rows in one answer, unless asked otherwise, and at most.
const ROWS: usize = 50;
const ROWS_MAX: usize = 1000;
/// A page ends with the row that brings it here.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 8;

/// A page, and whether more may follow it.
pub(super) struct Page<T> {
    pub(super) rows: Vec<T>,
    pub(super) is_full: bool,
}

/// Reads a page. `read` gives so many rows after the one it is told, and `weight` says how long one is.
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
