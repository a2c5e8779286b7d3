//! Pagination: limits the rows and the bytes of a page, so that many requests at once do not exhaust memory.
//!
//! A row can be megabytes long, so a page reads a few rows at a time and ends when it has enough bytes.

use stepgate_core::ports::StoreError;

use super::Problem;

/// Rows of a page by default, and at most.
const ROWS: usize = 50;
const ROWS_MAX: usize = 1000;
/// A page ends with the row that reaches this size.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows per read of the store.
const ROWS_AT_ONCE: usize = 8;

/// A page, and the cursor of the next one; none on the last page.
pub(super) struct Page<T, I> {
    pub(super) rows: Vec<T>,
    pub(super) next_before: Option<I>,
}

/// Reads a page. `read` returns up to the given number of rows before an id; `weight` is the size of a row in bytes.
pub(super) async fn read<T, I: Copy, F>(
    limit: Option<usize>,
    mut before: Option<I>,
    id: impl Fn(&T) -> I,
    weight: impl Fn(&T) -> usize,
    read: impl Fn(Option<I>, usize) -> F,
) -> Result<Page<T, I>, Problem>
where
    F: Future<Output = Result<Vec<T>, StoreError>>,
{
    let limit = match limit.unwrap_or(ROWS) {
        limit @ 1..=ROWS_MAX => limit,
        _ => return Err(Problem::malformed(format!("`limit` must be from 1 to {ROWS_MAX}"))),
    };
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    while rows.len() < limit {
        let asked = ROWS_AT_ONCE.min(limit - rows.len());
        let found = read(before, asked).await?;
        let is_last = found.len() < asked;
        for row in found {
            bytes = bytes.saturating_add(weight(&row));
            before = Some(id(&row));
            rows.push(row);
            if bytes >= BYTES_MAX {
                return Ok(Page { rows, next_before: before });
            }
        }
        if is_last {
            return Ok(Page { rows, next_before: None });
        }
    }
    Ok(Page { rows, next_before: before })
}
