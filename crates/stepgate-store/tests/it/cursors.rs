//! Cursors: how far readers of the events have come.

use std::sync::Arc;

use stepgate_core::ports::{Cursor, Cursors};
use stepgate_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};

use crate::conformance::over_every_engine;
use crate::desk::Desk;
use crate::server;

over_every_engine! {
    a_cursor_begins_once_and_only_moves_forward,
    a_cursor_that_was_never_taken_does_not_move,
}

fn cursor(name: &str, reached: u64, error: Option<&str>) -> Cursor {
    Cursor { name: name.into(), reached, error: error.map(str::to_owned) }
}

async fn a_cursor_begins_once_and_only_moves_forward(desk: Desk) {
    let store = &desk.store;
    assert_eq!(store.take_cursor("b", 7).await, Ok(Some(7)));
    assert_eq!(store.take_cursor("a", 1).await, Ok(Some(1)));
    // Where it begins counts for a new name alone.
    assert_eq!(store.take_cursor("b", 99).await, Ok(Some(7)));
    assert_eq!(store.move_cursor(&cursor("b", 9, Some("down \\ \0"))).await, Ok(true));
    assert_eq!(store.move_cursor(&cursor("a", 0, None)).await, Ok(true));
    let expected = vec![cursor("a", 1, None), cursor("b", 9, Some("down \\ \0"))];
    assert_eq!(store.cursors().await, Ok(expected));
    assert_eq!(store.move_cursor(&cursor("b", 10, None)).await, Ok(true));
    assert_eq!(store.take_cursor("b", 0).await, Ok(Some(10)));
    assert_eq!(store.cursors().await.unwrap()[1], cursor("b", 10, None));
    // It is no part of what is verified.
    assert_eq!(store.damage().await, Ok(Vec::new()));
}

async fn a_cursor_that_was_never_taken_does_not_move(desk: Desk) {
    assert_eq!(desk.store.move_cursor(&cursor("stranger", 3, None)).await, Ok(false));
    assert_eq!(desk.store.cursors().await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_cursor_outlives_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    store.take_cursor("a", 1).await.unwrap();
    store.move_cursor(&cursor("a", 5, None)).await.unwrap();
    drop(store);
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    assert_eq!(store.take_cursor("a", 1).await, Ok(Some(5)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_has_a_cursor_until_its_lease_is_over() {
    let schema = server::fresh_schema();
    let url = server::url_of(&schema);
    let node = async |name: &str| {
        let options = PostgresOptions { node_id: name.into(), ..PostgresOptions::default() };
        Arc::new(PostgresStore::open(&url, options).await.unwrap())
    };
    let (first, second) = (node("first").await, node("second").await);
    assert_eq!(first.take_cursor("a", 1).await, Ok(Some(1)));
    assert_eq!(second.take_cursor("a", 1).await, Ok(None));
    assert_eq!(second.move_cursor(&cursor("a", 8, None)).await, Ok(false));
    assert_eq!(first.move_cursor(&cursor("a", 4, None)).await, Ok(true));
    assert_eq!(first.take_cursor("a", 1).await, Ok(Some(4)));
    let expire = "UPDATE nodes SET expires_at = clock_timestamp() WHERE node_id = 'first'";
    let expire = format!("SET search_path = {schema}; {expire}");
    server::shared().sql("postgres", &expire).unwrap();
    assert_eq!(second.take_cursor("a", 1).await, Ok(Some(4)));
    // The one that was too slow learns that it has lost it.
    assert_eq!(first.move_cursor(&cursor("a", 5, None)).await, Ok(false));
    assert_eq!(first.take_cursor("a", 1).await, Ok(None));
    assert_eq!(second.cursors().await, Ok(vec![cursor("a", 4, None)]));
}
