use super::{SqliteOptions, connect_to_read, reader, uri_path, writer};
use std::path::PathBuf;

#[test]
fn a_path_with_signs_of_a_uri_opens_as_immutable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a?b#c%20 ü.db");
    let options = SqliteOptions::default();
    drop(writer(&path, &options).unwrap());
    drop(reader(&path, &options).unwrap());
    let uri = PathBuf::from(format!("file:{}?immutable=1", uri_path(&path)));
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let connection = connect_to_read(uri, flags, &options).unwrap();
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM tool_runs", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 0);
}

#[test]
fn the_writer_is_durable_and_distrusts_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = writer(&path, &SqliteOptions::default()).unwrap();
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    assert_eq!(number("synchronous"), Ok(2));
    assert_eq!(number("trusted_schema"), Ok(0));
    assert_eq!(number("secure_delete"), Ok(1));
    assert_eq!(number("wal_autocheckpoint"), Ok(4_000));
    // After a long read the log is truncated to twice as many bytes as those pages have.
    assert_eq!(number("journal_size_limit"), Ok(2 * 4_000 * 4096));
    let mode: String =
        connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}
