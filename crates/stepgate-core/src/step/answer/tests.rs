use serde_json::{Value, json};

use super::{Answer, ErrorBody, Recorded, Reply};
use crate::failure::{Failure, Outcome};
use crate::need::Kind;

const RUN: &str = "018bcfe5-6800-7000-8000-000000000001";
const APPROVAL: &str = "018bcfe5-6800-7000-8000-000000000002";

fn answers() -> [Answer; 4] {
    let recorded = |outcome, error| Recorded {
        outcome,
        output_json: Some("{\"a\":1}".into()),
        error,
        detail: None,
        last_entry_digest: None,
    };
    let refused = Some(ErrorBody::of(&Failure::PolicyViolation("no".into())));
    let answer = |reply| Answer {
        proposal_id: None,
        action: Some("READ_FILE".into()),
        reply,
        run_id: RUN.parse().unwrap(),
        session_id: RUN.parse().unwrap(),
        step_index: 1,
        replayed: false,
    };
    [
        answer(Reply::Recorded(recorded(Outcome::Success, None))),
        answer(Reply::Recorded(recorded(Outcome::Denied, refused))),
        answer(Reply::ApprovalRequired(APPROVAL.parse().unwrap())),
        answer(Reply::InProgress(Some(Kind::Quarantined))),
    ]
}

#[test]
fn the_value_of_an_answer_is_its_body() {
    for answer in answers() {
        let body: Value = serde_json::from_str(&answer.body()).unwrap();
        assert_eq!(serde_json::to_value(answer.response()).unwrap(), body);
        assert_eq!(body["action"], json!("READ_FILE"));
    }
}

#[test]
fn a_step_that_is_not_over_answers_with_a_notice() {
    assert_eq!(answers().map(|answer| answer.is_notice()), [false, false, true, true]);
}

#[test]
fn only_the_notice_of_a_waiting_step_names_an_approval() {
    let approval = Some(APPROVAL.parse().unwrap());
    assert_eq!(answers().map(|answer| answer.approval_id()), [None, None, approval, None]);
}
