use stepgate_core::digest::Digest;

use super::{OLD_CHECKPOINTS, OLD_JOURNAL, OLD_RECORDS, chunks_of};
use crate::pack::unpack;
use crate::tables::{Cell, Table};

/// A row whose texts are the names of its columns.
fn row(table: Table, trace: &str, number: i64, link: Option<i64>) -> Vec<Cell<'static>> {
    let cell = |column: &str| match column {
        "trace_id" | "tool_run_id" => Cell::text_of(trace),
        "sequence_number" | "checkpoint_sequence_number" => Cell::Number(number),
        "link_number" => link.map_or(Cell::Nothing, Cell::Number),
        "link_prev" | "link_digest" => link.map(|_| Cell::text_of(Digest::ZERO)).into(),
        other => Cell::text_of(other),
    };
    table.columns.split(", ").map(cell).collect()
}

fn entry(number: i64, link: Option<i64>) -> Vec<Cell<'static>> {
    row(OLD_JOURNAL, "trace", number, link)
}

/// The chunks of rows: the first number, the entries, checkpoints and records, and the link.
fn moved(
    journal: Vec<Vec<Cell<'static>>>,
    records: usize,
    checkpoints: usize,
) -> Vec<(Cell<'static>, [i64; 3], Option<i64>)> {
    let records = (0..records).map(|_| row(OLD_RECORDS, "trace", 0, Some(9))).collect();
    let checkpoints = (0..checkpoints).map(|_| row(OLD_CHECKPOINTS, "trace", 4, None)).collect();
    let number = |cell: &Cell<'_>| match cell {
        Cell::Number(number) => Some(*number),
        Cell::Nothing | Cell::Text(_) | Cell::Bytes(_) => None,
    };
    let shape = |row: &Vec<Cell<'static>>| {
        let counts = [2, 3, 4].map(|at| number(&row[at]).unwrap());
        (row[1].clone(), counts, number(&row[5]))
    };
    chunks_of([journal, records, checkpoints]).unwrap().iter().map(shape).collect()
}

#[test]
fn rows_make_as_few_chunks_as_their_links_allow() {
    let entries = |first: Option<i64>| vec![entry(1, first), entry(2, None), entry(3, None)];
    let (one, none) = (Cell::Number(1), Cell::Nothing);
    // A step with one commit, and one with two.
    assert_eq!(moved(entries(None), 1, 1), [(one.clone(), [3, 1, 1], Some(9))]);
    let both = [(one.clone(), [3, 0, 0], Some(7)), (none.clone(), [0, 1, 1], Some(9))];
    assert_eq!(moved(entries(Some(7)), 1, 1), both);
    // One that is not over, with a pause; one that has no journal.
    assert_eq!(moved(entries(Some(7)), 0, 1), [(one.clone(), [3, 1, 0], Some(7))]);
    assert_eq!(moved(Vec::new(), 1, 0), [(none.clone(), [0, 0, 1], Some(9))]);
    assert_eq!(moved(Vec::new(), 0, 2), [(none, [0, 2, 0], None)]);
}

/// What was not written by Stepgate is moved, too, and stays what it is.
#[test]
fn rows_that_contradict_each_other_are_moved_as_they_are() {
    let linked_again = vec![entry(1, Some(7)), entry(2, None), entry(3, Some(8))];
    let (one, three) = (Cell::Number(1), Cell::Number(3));
    let apart = [(one, [2, 0, 0], Some(7)), (three, [1, 0, 0], Some(8))];
    assert_eq!(moved(linked_again, 0, 0), apart);
    assert_eq!(moved(vec![entry(1, None)], 2, 0).len(), 2);
    let mut spoilt = entry(1, Some(7));
    spoilt[8] = Cell::text_of("not a digest");
    spoilt[14] = Cell::text_of("nor this");
    let [chunk] = &chunks_of([vec![spoilt], Vec::new(), Vec::new()]).unwrap()[..] else { panic!() };
    assert_eq!(chunk[6], Cell::Bytes(b"nor this".to_vec().into()));
    let Some(Cell::Bytes(packed)) = chunk.last() else { panic!() };
    assert_eq!(unpack(packed).unwrap()[8].as_deref(), Some("not a digest"));
}

#[test]
fn traces_stay_apart() {
    let rows = ["b", "a", "b"].into_iter().zip(1..);
    let rows = rows.map(|(trace, number)| row(OLD_JOURNAL, trace, number, None)).collect();
    let chunks = chunks_of([rows, Vec::new(), Vec::new()]).unwrap();
    let traces: Vec<_> = chunks.iter().map(|chunk| (chunk[0].clone(), chunk[2].clone())).collect();
    let expected = [("a", 1), ("b", 2)];
    assert_eq!(traces, expected.map(|(id, count)| (Cell::text_of(id), Cell::Number(count))));
}
