//! The report on faults against the faults that there are.

use super::{read, rows};
use crate::faults::{Fault, PAGE};

#[test]
fn the_report_has_a_row_for_every_fault_in_which_nothing_is_lost_or_repeated() {
    let page = read("docs/faults.md");
    let rows = rows(&page, 7);
    let reported: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(reported, Fault::ALL.map(Fault::name));
    for row in &rows {
        let number = |column: usize| row[column].parse::<usize>().unwrap();
        assert!(number(1) > 0 && number(2) > 0, "{row:?}");
        assert_eq!((number(3), number(4)), (0, 0), "{row:?}");
    }
}

#[test]
fn the_report_says_how_every_fault_is_made_and_is_the_page_of_the_tests() {
    let made: Vec<_> = rows(PAGE, 2).into_iter().map(|row| row[0].clone()).collect();
    assert!(made.starts_with(&Fault::ALL.map(|fault| fault.name().to_owned())), "{made:?}");
    let page = read("docs/faults.md");
    let (head, tail) = PAGE.split_once("{table}").unwrap();
    assert!(
        page.starts_with(head) && page.ends_with(tail),
        "write docs/faults.md again: see there"
    );
}
