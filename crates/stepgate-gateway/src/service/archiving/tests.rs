use stepgate_core::journal::StateError;

use super::*;

/// What may have been written is in the store or in the file, and never in neither.
#[test]
fn a_file_is_removed_only_where_nothing_was_written() {
    let kept = [
        StoreError::AnswerLost("the connection broke".into()),
        StoreError::Broken("the disk failed".into()),
        StoreError::State(StateError::checksum("damaged")),
    ];
    for error in kept {
        assert!(may_be_named(&Err(Fault::Store(error))));
    }
    assert!(!may_be_named(&Ok(Left::Stayed)));
    assert!(!may_be_named(&Err(Fault::Store(StoreError::Unavailable("disk full".into())))));
}
