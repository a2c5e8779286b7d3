use rusqlite::Connection;

use super::{Kind, TABLES};
use crate::sqlite::SqliteStore;

#[test]
fn every_table_and_column_of_a_store_is_known_with_its_type() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    drop(SqliteStore::open(&path, Default::default()).unwrap());
    let connection = Connection::open(&path).unwrap();
    let sql = "SELECT t.name || '.' || c.name || ' ' || c.type
               FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
               WHERE t.type = 'table' ORDER BY 1";
    let mut columns = connection.prepare(sql).unwrap();
    let there: Vec<String> =
        columns.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let kind = |kind: Kind| match kind {
        Kind::Number => "INTEGER",
        Kind::Text | Kind::FreeText => "TEXT",
        Kind::Bytes => "BLOB",
    };
    let known = TABLES.iter().flat_map(|table| {
        let columns = table.typed(table.columns).into_iter();
        columns.map(|(name, of)| format!("{}.{name} {}", table.name, kind(of)))
    });
    let mut known: Vec<String> = known.collect();
    known.sort();
    assert_eq!(known, there);
    assert!(TABLES.iter().all(|table| table.columns.starts_with("position, ")));
}
