use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn label(text: &str) -> Label {
    Label::parse(text).unwrap()
}

#[test]
fn a_decision_sees_every_label_that_was_there_and_none_that_never_was() {
    // Added at 10; added at 10 and removed at 20; added, removed and added again.
    let once = vec![10];
    let removed = vec![10, 20];
    let again = vec![10, 20, 30];
    let rows: &[(&[u64], Option<u64>, bool, bool)] = &[
        // Labels were not in use.
        (&once, None, false, true),
        (&once, None, true, false),
        (&once, Some(9), false, true),
        // It may have been added between the two reads.
        (&once, Some(9), true, true),
        (&once, Some(10), true, true),
        (&once, Some(10), false, false),
        // It may have been removed between the two reads.
        (&removed, Some(15), false, true),
        (&removed, Some(15), true, true),
        (&removed, Some(20), false, true),
        (&again, Some(30), false, false),
        (&again, Some(30), true, true),
        (&[], Some(10), true, false),
        (&[], Some(10), false, true),
    ];
    for (positions, as_of, sees, expected) in rows {
        let labels = match positions {
            [] => BTreeMap::new(),
            positions => BTreeMap::from([(label("untrusted"), positions.to_vec())]),
        };
        let seen: BTreeSet<Label> = sees.then(|| label("untrusted")).into_iter().collect();
        let facts = Facts { as_of: *as_of, labels: seen, ..Facts::default() };
        assert_eq!(saw_its_labels(&facts, &labels), *expected, "{positions:?} {as_of:?} {sees}");
    }
}
