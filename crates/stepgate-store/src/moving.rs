//! Moves the rows of older versions into chunks. Each engine reads the rows of some traces at a time, and writes
//! their chunks and deletes the rows in one transaction: what was interrupted goes on with the rows that are
//! left.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stepgate_core::digest::Digest;

use crate::chunk::texts_of;
use crate::pack::{pack, unpack};
use crate::tables::{Cell, Table};

/// Most traces whose rows are moved in one transaction.
pub(crate) const TRACES_MAX: usize = 256;

/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// The tables of older versions, each with the trace first. The rest is what is packed, and the link.
pub(crate) const OLD_JOURNAL: Table = Table {
    name: "old_journal",
    key: "trace_id",
    columns: "trace_id, sequence_number, from_state, to_state, artifact_type, tool_call_id, \
              idempotency_key, prev_entry_digest, entry_digest, ts, artifact_id, \
              artifact_digest, artifact, link_number, link_prev, link_digest",
};
pub(crate) const OLD_CHECKPOINTS: Table = Table {
    name: "old_checkpoints",
    key: "trace_id",
    columns: "trace_id, checkpoint_sequence_number, checkpoint_state, checkpoint_digest, ts",
};
pub(crate) const OLD_RECORDS: Table = Table {
    name: "old_records",
    key: "tool_run_id",
    columns: "tool_run_id, record, record_digest, link_number, link_prev, link_digest",
};
/// In the order in which their traces are looked for.
pub(crate) const OLD_TABLES: [Table; 3] = [OLD_JOURNAL, OLD_RECORDS, OLD_CHECKPOINTS];

type Row = Vec<Cell<'static>>;

/// The chunks of these rows, in the order of [`OLD_TABLES`] and of their sequence numbers; or which rows cannot be
/// moved.
pub(crate) fn chunks_of(tables: [Vec<Row>; 3]) -> Result<Vec<Row>, String> {
    let mut traces: BTreeMap<String, [Vec<Row>; 3]> = BTreeMap::new();
    for (table, rows) in tables.into_iter().enumerate() {
        for mut row in rows {
            let Cell::Text(trace_id) = row.remove(0) else {
                return Err("a row without the id of its trace".to_owned());
            };
            let of_trace = traces.entry(trace_id.into_owned()).or_default();
            if let Some(rows) = of_trace.get_mut(table) {
                rows.push(row);
            }
        }
    }
    let mut chunks = Vec::new();
    for (trace_id, rows) in traces {
        for chunk in chunks_of_trace(rows) {
            chunks.push(chunk.row(&trace_id)?);
        }
    }
    Ok(chunks)
}

/// A chunk that is put together.
#[derive(Default)]
struct Chunk {
    entries: Vec<Row>,
    checkpoints: Vec<Row>,
    records: Vec<Row>,
    /// The three columns of a link.
    link: Row,
}

/// The columns of a link, cut off the end of a row.
fn link_of(row: &mut Row) -> Row {
    row.split_off(row.len().saturating_sub(3))
}

fn is_link(link: &[Cell<'_>]) -> bool {
    link.iter().any(|cell| *cell != Cell::Nothing)
}

/// As few as the links allow: each chunk has one, which is that of its first entry or of its record.
fn chunks_of_trace([journal, records, mut checkpoints]: [Vec<Row>; 3]) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for mut row in journal {
        let link = link_of(&mut row);
        match chunks.last_mut() {
            Some(chunk) if !is_link(&link) => chunk.entries.push(row),
            Some(_) | None => {
                chunks.push(Chunk { entries: vec![row], link, ..Chunk::default() });
            }
        }
    }
    for mut row in records {
        let (link, checkpoints) = (link_of(&mut row), std::mem::take(&mut checkpoints));
        match chunks.last_mut() {
            Some(chunk) if !is_link(&chunk.link) && chunk.records.is_empty() => {
                chunk.link = link;
                chunk.checkpoints = checkpoints;
                chunk.records.push(row);
            }
            Some(_) | None => {
                let records = vec![row];
                chunks.push(Chunk { records, checkpoints, link, ..Chunk::default() });
            }
        }
    }
    match chunks.last_mut() {
        _ if checkpoints.is_empty() => {}
        Some(chunk) => chunk.checkpoints.extend(checkpoints),
        None => chunks.push(Chunk { checkpoints, ..Chunk::default() }),
    }
    chunks
}

impl Chunk {
    /// Its row in `chunks`, whose parts were unpacked once and compared.
    fn row(self, trace_id: &str) -> Result<Row, String> {
        let Self { entries, checkpoints, records, mut link } = self;
        let count = |rows: &[Row]| Cell::from(u64::try_from(rows.len()).unwrap_or(u64::MAX));
        let sequence_number = entries.first().and_then(|row| row.first()).cloned();
        let counts = [count(&entries), count(&checkpoints), count(&records)];
        let marked = |mark, rows: Vec<Row>| rows.into_iter().map(move |row| (mark, row));
        let parts: Vec<_> = marked("e", entries)
            .chain(marked("c", checkpoints))
            .chain(marked("r", records))
            .collect();
        let texts = texts_of(&parts);
        let packed = pack(texts.iter().map(Option::as_deref));
        if unpack(&packed).as_ref() != Ok(&texts) {
            return Err(format!("the rows of {trace_id} do not come back as they were"));
        }
        link.resize(3, Cell::Nothing);
        let mut row = vec![Cell::text_of(trace_id), sequence_number.unwrap_or(Cell::Nothing)];
        row.extend(counts);
        row.extend(link.into_iter().map(link_bytes));
        row.push(Cell::Bytes(packed.into()));
        Ok(row)
    }
}

/// A digest as its bytes. A text that is none stays as it is, and the row does not parse, as before.
fn link_bytes(cell: Cell<'static>) -> Cell<'static> {
    match cell {
        Cell::Text(text) => match text.parse::<Digest>() {
            Ok(digest) => Cell::Bytes(digest.as_bytes().to_vec().into()),
            Err(_) => Cell::Bytes(text.into_owned().into_bytes().into()),
        },
        other @ (Cell::Nothing | Cell::Number(_) | Cell::Bytes(_)) => other,
    }
}

/// Tells in the log how far the rows of an older version are moved.
pub(crate) struct Progress {
    rows: u64,
    moved: u64,
    told: Instant,
}

impl Progress {
    /// Of so many rows.
    pub(crate) fn of(rows: u64) -> Self {
        if rows > 0 {
            tracing::info!("the store gets a smaller layout, once: {rows} rows are moved");
        }
        Self { rows, moved: 0, told: Instant::now() }
    }

    pub(crate) fn add(&mut self, moved: usize) {
        self.moved += u64::try_from(moved).unwrap_or(0);
        if self.told.elapsed() >= TOLD_EVERY {
            self.told = Instant::now();
            tracing::info!("{} of {} rows are moved", self.moved, self.rows);
        }
    }
}

#[cfg(test)]
mod tests;
