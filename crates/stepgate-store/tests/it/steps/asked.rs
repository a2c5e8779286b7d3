//! How many questions may be open at one time.

use stepgate_core::ids::PrincipalId;
use stepgate_core::ports::ApprovalQuery;

use super::*;

/// The limit that refused the step, if it was refused; else a person is asked.
async fn refused(stage: &Stage, principal: &str, id: u8) -> Option<String> {
    let principal_id = PrincipalId::parse(principal).unwrap();
    let proposal = json!({
        "schema_version": "1.0.0",
        "id": format!("550e8400-e29b-41d4-a716-4466554400{id:02x}"),
        "reasoning": "because",
        "action": "DELETE_FILE",
        "args": { "path": "/sandbox/a.txt" },
    });
    let session_id = stage.gate.default_session(&principal_id).await.unwrap().session_id;
    let payload = Payload::whole(proposal.to_string().into_bytes());
    let submission = Submission { session_id, principal_id, payload };
    let answer = step::run(&stage.gate, submission).await.unwrap();
    if answer.approval_id().is_some() {
        return None;
    }
    assert_eq!(answer.word(), Word::Outcome(Outcome::Denied), "{answer:?}");
    let known = stage.gate.store.recall(answer.run_id).await.unwrap().unwrap();
    known.record.unwrap().body().unwrap().detail
}

#[tokio::test]
async fn a_principal_has_as_many_open_questions_as_are_still_free_and_the_next_one_finds_something()
{
    let mut stage = Stage::new(StopAt::Never).asks();
    stage.gate.limits.approvals_open_max = 100;
    stage.gate.limits.approvals_open_total_max = 8;
    let limit = "TOO_MANY_OPEN: limits.approvals_open_total_max is 8".to_owned();
    for (principal, share) in [("a", 4), ("b", 2), ("c", 1), ("d", 1), ("e", 0)] {
        for id in 0..share {
            assert_eq!(refused(&stage, principal, id).await, None, "{principal} {id}");
        }
        assert_eq!(refused(&stage, principal, share).await, Some(limit.clone()), "{principal}");
    }
    assert_eq!(stage.gate.store.open_approvals(None).await, Ok(8));
    // A person decides at the limit too, and that makes room.
    let open =
        stage.gate.store.approvals(ApprovalQuery { limit: 1, ..Default::default() }).await.unwrap();
    let person = Person::Denies { approver_id: operator(), note: None };
    step::resume(&stage.gate, open[0].approval_id, person).await.unwrap();
    assert_eq!(refused(&stage, "e", 1).await, None);
    assert_eq!(refused(&stage, "f", 1).await, Some(limit));
    stage.verifies().await;
}
