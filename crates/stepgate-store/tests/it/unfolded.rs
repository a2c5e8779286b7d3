//! The tables `journal`, `records` and `checkpoints`, which older versions had, over the chunks of a SQLite store.
//! A test changes them by SQL, and what it has changed is packed again when the connection is dropped.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};
use stepgate_core::digest::Digest;
use stepgate_store::pack::{pack, unpack};

/// A part: its mark, its table, the column that names its trace, and the columns that are packed.
pub(crate) const PARTS: [(&str, &str, &str, &str); 3] = [
    (
        "e",
        "journal",
        "trace_id",
        "sequence_number, from_state, to_state, artifact_type, tool_call_id, idempotency_key, \
         prev_entry_digest, entry_digest, ts, artifact_id, artifact_digest, artifact",
    ),
    (
        "c",
        "checkpoints",
        "trace_id",
        "checkpoint_sequence_number, checkpoint_state, checkpoint_digest, ts",
    ),
    ("r", "records", "tool_run_id", "record, record_digest"),
];
const LINK: &str = "link_number, link_prev, link_digest";

/// A connection with temporary tables.
pub(crate) struct Unfolded {
    connection: Connection,
    /// The parts of each chunk, as they were.
    before: BTreeMap<i64, Chunk>,
    is_folded: bool,
}

/// The parts of a chunk: a table and its cells, with the trace first and the link last.
type Chunk = Vec<(&'static str, Vec<Value>)>;

impl Deref for Unfolded {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Unfolded {
    pub(crate) fn open(path: &Path) -> Self {
        Self::over(Connection::open(path).unwrap())
    }

    pub(crate) fn over(connection: Connection) -> Self {
        for (_, table, key, columns) in PARTS {
            let typed = |column: &str| match column {
                "sequence_number" | "checkpoint_sequence_number" | "link_number" => "INTEGER",
                _ => "TEXT",
            };
            let columns = format!("{columns}, {LINK}");
            let columns = columns.split(", ").map(|column| format!("{column} {}", typed(column)));
            let columns = columns.collect::<Vec<_>>().join(", ");
            connection
                .execute_batch(&format!(
                    "CREATE TEMP TABLE {table}
                     (position INTEGER PRIMARY KEY, chunk INTEGER, {key} TEXT, {columns})"
                ))
                .unwrap();
        }
        let mut unfolded = Self { connection, before: BTreeMap::new(), is_folded: false };
        unfolded.fill();
        unfolded.before = unfolded.chunks();
        unfolded
    }

    fn fill(&self) {
        let sql = format!(
            "SELECT position, trace_id, packed, records, {LINK} FROM chunks
                           ORDER BY position"
        );
        // A page may be spoilt: then there is nothing to unfold.
        let Ok(mut select) = self.connection.prepare(&sql) else { return };
        let mut rows = select.query([]).unwrap();
        while let Ok(Some(row)) = rows.next() {
            let cell = |at: usize| row.get::<_, Value>(at).unwrap();
            let (Ok(packed), Value::Text(trace_id)) = (row.get::<_, Vec<u8>>(2), cell(1)) else {
                continue;
            };
            let Ok(texts) = unpack(&packed) else { continue };
            let link: Vec<_> = [4, 5, 6].map(cell).into_iter().map(shown).collect();
            let mut link_of =
                Some(if cell(3) == Value::Integer(0) { "journal" } else { "records" });
            let mut texts = texts.into_iter();
            while let Some(mark) = texts.next() {
                let mark = mark.unwrap();
                let (_, table, key, columns) = PARTS.into_iter().find(|it| it.0 == mark).unwrap();
                let part = texts.by_ref().take(columns.split(", ").count());
                let part = part.map(|text| text.map_or(Value::Null, Value::Text));
                let link = match link_of == Some(table) {
                    true => link.clone(),
                    false => vec![Value::Null; 3],
                };
                link_of = link_of.filter(|of| *of != table);
                let cells = [cell(0), Value::Text(trace_id.clone())].into_iter();
                let cells: Vec<_> = cells.chain(part).chain(link).collect();
                let places = vec!["?"; cells.len()].join(", ");
                let sql = format!(
                    "INSERT INTO temp.{table} (chunk, {key}, {columns}, {LINK}) VALUES ({places})"
                );
                self.connection.execute(&sql, params_from_iter(cells)).unwrap();
            }
        }
    }

    /// The parts of each chunk, as the temporary tables have them.
    fn chunks(&self) -> BTreeMap<i64, Chunk> {
        let mut chunks: BTreeMap<i64, Chunk> = BTreeMap::new();
        for (_, table, key, columns) in PARTS {
            let sql = format!(
                "SELECT chunk, {key}, {columns}, {LINK} FROM temp.{table} ORDER BY position"
            );
            let mut select = self.connection.prepare(&sql).unwrap();
            let width = select.column_count();
            let mut rows = select.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let cells = (1..width).map(|at| row.get(at).unwrap()).collect();
                chunks.entry(row.get(0).unwrap()).or_default().push((table, cells));
            }
        }
        chunks
    }

    /// Packs what has changed, or nothing where the file refuses it.
    pub(crate) fn fold(mut self) -> rusqlite::Result<()> {
        self.is_folded = true;
        self.connection.execute_batch("BEGIN")?;
        match self.pack_changes() {
            Ok(()) => self.connection.execute_batch("COMMIT"),
            Err(error) => {
                self.connection.execute_batch("ROLLBACK")?;
                Err(error)
            }
        }
    }

    fn pack_changes(&self) -> rusqlite::Result<()> {
        let after = self.chunks();
        for position in self.before.keys() {
            let parts = after.get(position).cloned().unwrap_or_default();
            if self.before.get(position) == Some(&parts) {
                continue;
            }
            let mut by_trace: Vec<(Value, Chunk)> = Vec::new();
            for (table, cells) in parts {
                match by_trace.iter_mut().find(|(trace, _)| *trace == cells[0]) {
                    Some((_, chunk)) => chunk.push((table, cells)),
                    None => by_trace.push((cells[0].clone(), vec![(table, cells)])),
                }
            }
            self.connection.execute("DELETE FROM chunks WHERE position = ?1", [position])?;
            for (at, (trace, chunk)) in by_trace.into_iter().enumerate() {
                // Parts of another trace than the first get a row of their own, after the last.
                self.insert((at == 0).then_some(*position), trace, &chunk)?;
            }
        }
        Ok(())
    }

    fn insert(
        &self,
        position: Option<i64>,
        trace: Value,
        chunk: &[(&str, Vec<Value>)],
    ) -> rusqlite::Result<()> {
        let count = |of: &str| chunk.iter().filter(|(table, _)| *table == of).count() as i64;
        let of = if count("records") > 0 { "records" } else { "journal" };
        let linked = chunk.iter().find(|(table, _)| *table == of).map(|(_, cells)| cells);
        let link: Vec<Value> = match linked {
            Some(cells) => cells[cells.len() - 3..].to_vec(),
            None => vec![Value::Null; 3],
        };
        let first = chunk.iter().find(|(table, _)| *table == "journal");
        let first = first.map_or(Value::Null, |(_, cells)| cells[1].clone());
        let mut texts = Vec::new();
        for (table, cells) in chunk {
            let (mark, ..) = PARTS.into_iter().find(|it| it.1 == *table).unwrap();
            texts.push(Some(mark.to_owned()));
            texts.extend(cells[1..cells.len() - 3].iter().map(|cell| match cell {
                Value::Null => None,
                Value::Integer(number) => Some(number.to_string()),
                Value::Text(text) => Some(text.clone()),
                Value::Real(_) | Value::Blob(_) => panic!("not a part: {cell:?}"),
            }));
        }
        let insert =
            "INSERT INTO chunks (position, trace_id, sequence_number, entries, checkpoints,
                          records, link_number, link_prev, link_digest, packed)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let row = params![
            position,
            trace,
            first,
            count("journal"),
            count("checkpoints"),
            count("records"),
            link[0],
            stored(&link[1]),
            stored(&link[2]),
            pack(texts.iter().map(Option::as_deref)),
        ];
        self.connection.execute(insert, row).map(drop)
    }
}

impl Drop for Unfolded {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.is_folded {
            self.pack_changes().unwrap();
        }
    }
}

/// Bytes of a digest as text.
fn shown(cell: Value) -> Value {
    match cell {
        Value::Blob(bytes) => match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(digest) => Value::Text(Digest::from_stored(digest).to_string()),
            Err(_) => Value::Text(String::from_utf8_lossy(&bytes).into_owned()),
        },
        other @ (Value::Null | Value::Integer(_) | Value::Real(_) | Value::Text(_)) => other,
    }
}

/// The text of a digest as bytes.
fn stored(cell: &Value) -> Value {
    match cell {
        Value::Text(text) => match text.parse::<Digest>() {
            Ok(digest) => Value::Blob(digest.as_bytes().to_vec()),
            Err(_) => Value::Blob(text.clone().into_bytes()),
        },
        other @ (Value::Null | Value::Integer(_) | Value::Real(_) | Value::Blob(_)) => {
            other.clone()
        }
    }
}
