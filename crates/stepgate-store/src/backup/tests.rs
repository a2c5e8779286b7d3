use rusqlite::Connection;

use super::TABLES;
use crate::sqlite::SqliteStore;

#[test]
fn every_table_and_column_of_a_store_is_carried() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    drop(SqliteStore::open(&path, Default::default()).unwrap());
    let connection = Connection::open(&path).unwrap();
    let sql =
        "SELECT t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
               WHERE t.type = 'table' ORDER BY 1";
    let mut columns = connection.prepare(sql).unwrap();
    let there: Vec<String> =
        columns.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut carried: Vec<String> = TABLES
        .iter()
        .flat_map(|table| table.columns.iter().map(|(name, _)| format!("{}.{name}", table.name)))
        .collect();
    carried.sort();
    assert_eq!(carried, there);
    assert!(TABLES.iter().all(|table| table.columns[0].0 == "position"));
}
