//! The same proposals on the same sandbox give the same bytes.

use crate::binary::Place;

const PROPOSALS: &str = include_str!("determinism.jsonl");

#[test]
fn two_fresh_data_directories_answer_byte_for_byte_alike() {
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let place = Place::new();
            let output = place.stepgate(["step", "--lines"], PROPOSALS);
            assert_eq!(output.code, 0, "{}", output.stderr);
            output.stdout
        })
        .collect();
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0].lines().count(), PROPOSALS.lines().count());
    for outcome in ["SUCCESS", "VALIDATION_ERROR", "DENIED", "EXECUTION_ERROR"] {
        assert!(runs[0].contains(outcome), "no {outcome} among the responses");
    }
}
