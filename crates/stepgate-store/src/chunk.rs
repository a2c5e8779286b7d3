//! A chunk: everything that one commit adds to a trace, in one row of the table `chunks`. It has the entries of
//! the journal, a checkpoint and the record, each with the texts of its columns, packed together.

use stepgate_core::journal::{Appended, Checkpoint, Tail};
use stepgate_core::ports::StepCommit;
use stepgate_core::session::Link;

use crate::Result;
use crate::new_rows::{checkpoint_row, entry_row, record_row};
use crate::pack::{pack, unpack};
use crate::rows::{
    Cells, Row, SealedRecord, appended_from, checkpoint_from, sealed_record_from, tail_of,
};
use crate::tables::{CHECKPOINTS, Cell, JOURNAL, RECORDS, Table};

/// What a part of a chunk is; the mark stands before its texts.
const KINDS: [(&str, Table); 3] = [("e", JOURNAL), ("c", CHECKPOINTS), ("r", RECORDS)];

/// The parts of a commit, packed; none where it adds nothing to its trace.
pub(crate) fn packed(commit: &StepCommit) -> Option<Vec<u8>> {
    let entries = commit.entries.iter().map(|appended| ("e", entry_row(appended)));
    let checkpoint = commit.checkpoint.iter().map(|checkpoint| ("c", checkpoint_row(checkpoint)));
    let record = commit.record.iter().map(|record| ("r", record_row(record)));
    let parts: Vec<_> = entries.chain(checkpoint).chain(record).collect();
    (!parts.is_empty()).then(|| pack(texts_of(&parts).iter().map(Option::as_deref)))
}

/// The texts of parts, each part after its mark.
pub(crate) fn texts_of(parts: &[(&str, Vec<Cell<'_>>)]) -> Vec<Option<String>> {
    let mut texts = Vec::new();
    for (mark, cells) in parts {
        texts.push(Some((*mark).to_owned()));
        texts.extend(cells.iter().map(text_of));
    }
    texts
}

fn text_of(cell: &Cell<'_>) -> Option<String> {
    match cell {
        Cell::Nothing | Cell::Bytes(_) => None,
        Cell::Number(number) => Some(number.to_string()),
        Cell::Text(text) => Some(text.to_string()),
    }
}

/// A row of `chunks`, parsed, or several of one trace.
#[derive(Default)]
pub(crate) struct Chunk {
    /// The entries, with the OPEN link of a genesis.
    pub(crate) entries: Vec<(Appended, Option<Link>)>,
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) record: Option<SealedRecord>,
}

pub(crate) fn chunk_from(cells: &Cells<'_>) -> Result<Chunk> {
    let link = cells.maybe_link()?;
    let parts = Parts::of(cells)?;
    let records: Vec<_> = parts.read(RECORDS, |cells| sealed_record_from(cells, link))?;
    let open = link.filter(|_| records.is_empty());
    let mut entries: Vec<_> = parts.read(JOURNAL, |cells| Ok((appended_from(cells)?, None)))?;
    match entries.first_mut() {
        Some((appended, link)) if appended.entry.sequence_number == 1 => *link = open,
        Some(_) | None if open.is_some() => {
            return Err(cells.mismatch("link_number", "only a genesis opens a trace"));
        }
        Some(_) | None => {}
    }
    Ok(Chunk {
        entries,
        checkpoints: parts.read(CHECKPOINTS, checkpoint_from)?,
        record: records.into_iter().next(),
    })
}

/// The end of a journal, from the last chunk that has entries.
pub(crate) fn tail_from(cells: &Cells<'_>) -> Result<Tail> {
    Ok(last_entry(cells, tail_of)?.unwrap_or(Tail::EMPTY))
}

/// The last entry of a chunk, read by a function of the caller.
pub(crate) fn last_entry<T>(
    cells: &Cells<'_>,
    read: impl Fn(&Cells<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let parts = Parts::of(cells)?;
    parts.rows(JOURNAL).last().map(|row| read(&Cells::of(&row, JOURNAL))).transpose()
}

/// The sequence numbers of a chunk's checkpoints.
pub(crate) fn checkpoint_numbers_from(cells: &Cells<'_>) -> Result<Vec<u64>> {
    Parts::of(cells)?.read(CHECKPOINTS, |cells| cells.number("checkpoint_sequence_number"))
}

impl Chunk {
    /// The chunks of one trace, put together.
    pub(crate) fn joined(chunks: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = Self::default();
        for Self { entries, checkpoints, record } in chunks {
            joined.entries.extend(entries);
            joined.checkpoints.extend(checkpoints);
            joined.record = joined.record.or(record);
        }
        joined.checkpoints.sort_by_key(|checkpoint| checkpoint.checkpoint_sequence_number);
        joined
    }

    /// The OPEN link.
    pub(crate) fn open_link(&self) -> Option<Link> {
        self.entries.first().and_then(|(_, link)| *link)
    }
}

/// The parts of a chunk, unpacked and not yet parsed.
struct Parts {
    trace_id: String,
    parts: Vec<(Table, Vec<Option<String>>)>,
}

impl Parts {
    fn of(cells: &Cells<'_>) -> Result<Self> {
        let trace_id = cells.text("trace_id")?.to_owned();
        let texts = unpack(cells.bytes("packed")?).map_err(|why| cells.mismatch("packed", why))?;
        let parts = split(texts).filter(|parts| !parts.is_empty());
        let parts = parts.ok_or_else(|| cells.mismatch("packed", "not parts of a trace"))?;
        let parts = Self { trace_id, parts };
        parts.fits(cells)?;
        Ok(parts)
    }

    /// The other columns of the row say how many parts there are, and where they begin.
    fn fits(&self, cells: &Cells<'_>) -> Result<()> {
        for (_, table) in KINDS {
            let column = if table.name == JOURNAL.name { "entries" } else { table.name };
            let packed = self.parts.iter().filter(|(kind, _)| kind.name == table.name).count();
            let packed = u64::try_from(packed).unwrap_or(u64::MAX);
            if cells.number(column)? != packed {
                return Err(cells.mismatch(column, format!("there are {packed}")));
            }
        }
        let first = self.rows(JOURNAL).next();
        let first = first.map(|row| Cells::of(&row, JOURNAL).number("sequence_number"));
        if cells.maybe_number("sequence_number")? != first.transpose()? {
            return Err(cells.mismatch("sequence_number", "not that of the first entry"));
        }
        Ok(())
    }

    /// The parts of one kind.
    fn read<T>(&self, table: Table, read: impl Fn(&Cells<'_>) -> Result<T>) -> Result<Vec<T>> {
        self.rows(table).map(|row| read(&Cells::of(&row, table))).collect()
    }

    fn rows(&self, table: Table) -> impl Iterator<Item = PartRow<'_>> {
        let of_kind = self.parts.iter().filter(move |(kind, _)| kind.name == table.name);
        of_kind.map(|(table, texts)| PartRow { table: *table, trace_id: &self.trace_id, texts })
    }
}

/// The parts by their marks; none where the texts are no parts.
fn split(texts: Vec<Option<String>>) -> Option<Vec<(Table, Vec<Option<String>>)>> {
    let mut parts = Vec::new();
    let mut texts = texts.into_iter();
    while let Some(mark) = texts.next() {
        let mark = mark?;
        let (_, table) = KINDS.iter().find(|(kind, _)| *kind == mark)?;
        let columns = table.columns.split(", ").count();
        let part: Vec<_> = texts.by_ref().take(columns).collect();
        if part.len() != columns {
            return None;
        }
        parts.push((*table, part));
    }
    Some(parts)
}

/// A part, read like a row of a table.
struct PartRow<'a> {
    table: Table,
    trace_id: &'a str,
    texts: &'a [Option<String>],
}

impl Row for PartRow<'_> {
    fn text(&self, column: &str) -> Result<Option<&str>, String> {
        if column == self.table.key {
            return Ok(Some(self.trace_id));
        }
        let at = self.table.columns.split(", ").position(|name| name == column);
        let text = at.and_then(|at| self.texts.get(at)).ok_or("there is no such column")?;
        Ok(text.as_deref())
    }

    fn number(&self, column: &str) -> Result<Option<i64>, String> {
        let number = self.text(column)?.map(str::parse).transpose();
        number.map_err(|_| "not a number".to_owned())
    }

    fn bytes(&self, _: &str) -> Result<Option<&[u8]>, String> {
        Err("not bytes".into())
    }
}
