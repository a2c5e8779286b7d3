use stepgate_core::recover::Report;

use super::troubles;

#[test]
fn a_run_that_recovery_left_is_named_with_its_reason_and_the_way_out() {
    let run = "01890a5d-ac96-774b-bcce-b302099a8057";
    let report = Report {
        quarantined: vec![(run.parse().unwrap(), "digest\u{1b}[2J".into())],
        stuck: vec![(run.parse().unwrap(), "the executor stopped".into())],
        ..Report::default()
    };
    let lines: Vec<_> =
        troubles(&report).map(|line| anstream::adapter::strip_str(&line).to_string()).collect();
    assert_eq!(
        lines,
        [
            format!(
                "quarantined: {run}: digest<U+001B>[2J; `stepgate verify` names what does not hold"
            ),
            format!("stuck: {run}: the executor stopped; the next command tries again"),
        ]
    );
}
