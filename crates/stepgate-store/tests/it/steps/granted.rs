//! Calls under a grant: never another call, and never once too often.

use std::collections::BTreeMap;

use stepgate_core::consent::{self, GrantRefused, GrantStanding, GrantStatus, NewGrant};
use stepgate_core::grant::Condition;
use stepgate_core::ids::PrincipalId;

use super::*;

const HOUR_MS: u64 = 60 * 60 * 1000;

impl Stage {
    /// A grant for so many calls like an approved deletion of `/sandbox/a.txt`.
    async fn granted(&self, uses_max: u64) -> GrantStanding {
        let asked = self.delete(0).await.unwrap();
        self.grant(&asked).await.unwrap();
        let approval_id = asked.approval_id().unwrap();
        let new = NewGrant { approval_id, uses_max, ..exact(&asked) };
        consent::create_grant(&self.gate, &operator(), new).await.unwrap()
    }

    async fn is_asked(&self, id: u8) -> bool {
        self.delete(id).await.unwrap().approval_id().is_some()
    }

    async fn used(&self) -> u64 {
        consent::grants(&self.gate).await.unwrap().iter().map(|grant| grant.used).sum()
    }
}

fn exact(asked: &Answer) -> NewGrant {
    NewGrant {
        approval_id: asked.approval_id().unwrap(),
        args: BTreeMap::new(),
        uses_max: 1,
        life_ms: HOUR_MS,
        note: None,
    }
}

fn stage() -> Stage {
    let mut stage = Stage::new(StopAt::Never).asks();
    stage.gate.limits.approvals_open_max = 1000;
    stage
}

#[tokio::test]
async fn a_grant_permits_as_many_calls_as_it_says_and_each_names_it() {
    let stage = stage();
    let standing = stage.granted(2).await;
    for (id, number) in [(1, 1), (2, 2)] {
        let answer = stage.delete(id).await.unwrap();
        let dossier = stage.gate.store.dossier(answer.run_id).await.unwrap().unwrap();
        assert!(is_success(Ok(answer)));
        let meta = replay(&dossier.entries).unwrap().decision.unwrap().meta;
        assert_eq!((meta.grant_id, meta.grant_use), (Some(standing.grant_id), Some(number)));
        assert_eq!(meta.policies, ["rule"]);
    }
    assert!(stage.is_asked(3).await);
    assert_eq!((stage.files.sent().len(), stage.used().await), (3, 2));
    let standing = consent::grants(&stage.gate).await.unwrap().remove(0);
    assert_eq!(standing.status(at(0)), GrantStatus::UsedUp);
    stage.verifies().await;
}

#[tokio::test]
async fn a_grant_covers_no_other_argument_and_no_other_action() {
    let stage = stage();
    stage.granted(5).await;
    let others = [
        ("DELETE_FILE", json!({ "path": "/sandbox/b.txt" })),
        ("DELETE_FILE", json!({ "path": "/sandbox/A.txt" })),
        ("READ_FILE", json!({ "path": "/sandbox/a.txt" })),
        (COOK, json!({ "path": "/sandbox/a.txt" })),
    ];
    for (id, (action, args)) in (1..).zip(others) {
        let asked = stage.propose(id, action, args).await.unwrap();
        assert!(asked.approval_id().is_some(), "{action}");
    }
    assert_eq!(stage.used().await, 0);
    stage.verifies().await;
}

#[tokio::test]
async fn a_grant_of_a_tool_ends_with_the_definition_of_the_tool() {
    let stage = stage();
    // The kitchen's first call would end in doubt.
    stage.kitchen.sent.store(1, Ordering::SeqCst);
    let args = json!({ "dish": "soup", "people": 4 });
    let asked = stage.propose(1, COOK, args.clone()).await.unwrap();
    stage.grant(&asked).await.unwrap();
    let people = BTreeMap::from([("people".to_owned(), Condition::Between(1, 6))]);
    let new = NewGrant { args: people, uses_max: 10, ..exact(&asked) };
    consent::create_grant(&stage.gate, &operator(), new).await.unwrap();
    assert!(is_success(stage.propose(2, COOK, json!({ "dish": "soup", "people": 6 })).await));
    for (id, args) in [
        (3, json!({ "dish": "soup", "people": 7 })),
        (4, json!({ "dish": "soup" })),
        (5, json!({ "dish": "soup", "people": 6, "wine": true })),
    ] {
        assert!(
            stage.propose(id, COOK, args.clone()).await.unwrap().approval_id().is_some(),
            "{args}"
        );
    }
    *stage.kitchen.definition.lock().unwrap() = Digest::of("another kitchen");
    assert!(stage.propose(6, COOK, args).await.unwrap().approval_id().is_some());
    assert_eq!(stage.used().await, 1);
    stage.verifies().await;
}

#[tokio::test]
async fn a_grant_ends_with_its_time_and_when_it_is_revoked() {
    let stage = stage();
    let standing = stage.granted(5).await;
    let end = i64::try_from(HOUR_MS).unwrap();
    stage.clock.now_ms.store(end - 1, Ordering::SeqCst);
    assert!(!stage.is_asked(1).await);
    stage.clock.now_ms.store(end, Ordering::SeqCst);
    assert!(stage.is_asked(2).await);
    assert_eq!(standing.status(at(end)), GrantStatus::Expired);

    stage.clock.now_ms.store(0, Ordering::SeqCst);
    let elsewhere = stage.other_node();
    assert!(!elsewhere.is_asked(3).await);
    let revoke = |stage: &Stage| {
        let gate = stage.gate.clone();
        async move { consent::revoke_grant(&gate, standing.grant_id, operator()).await.unwrap() }
    };
    assert!(revoke(&stage).await);
    assert!(!revoke(&elsewhere).await, "it was revoked before");
    assert!(stage.is_asked(4).await);
    assert!(elsewhere.is_asked(5).await);
    assert_eq!(stage.used().await, 2);
    stage.verifies().await;
}

#[tokio::test]
async fn what_policy_forbids_now_no_grant_permits() {
    let stage = stage();
    stage.granted(5).await;
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::Deny;
    let answer = stage.delete(1).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Denied));
    assert_eq!((stage.files.sent().len(), stage.used().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_and_many_callers_use_a_grant_as_often_as_it_says() {
    let stage = stage();
    stage.granted(7).await;
    let nodes = [Arc::new(stage.other_node()), Arc::new(stage.other_node())];
    let calls = (1..=40_u8).map(|id| {
        let node = Arc::clone(&nodes[usize::from(id) % 2]);
        tokio::spawn(async move { node.is_asked(id).await })
    });
    let mut asked = 0;
    for call in calls.collect::<Vec<_>>() {
        asked += usize::from(call.await.unwrap());
    }
    assert_eq!((asked, stage.used().await), (33, 7));
    assert_eq!(stage.files.sent().len(), 1 + 7);
    stage.verifies().await;
}

#[tokio::test]
async fn whether_a_grant_is_free_is_asked_after_the_wait_for_the_path() {
    let stage = stage();
    stage.granted(1).await;
    let (slow, fast) = (stage.other_node(), stage.other_node());
    // Both have read that the grant is free when the first of them waits for the path.
    let busy = Arc::new(Notify::new());
    let waiting = tokio::spawn(async move {
        // The question itself looks at the path first.
        let answer = slow.delete(1).await.unwrap();
        answer.approval_id().is_some()
    });
    *stage.files.busy.lock().unwrap() = Some(Arc::clone(&busy));
    tokio::task::yield_now().await;
    assert!(!fast.is_asked(2).await);
    busy.notify_one();
    assert!(waiting.await.unwrap(), "a person is asked instead");
    assert_eq!((stage.files.sent().len(), stage.used().await), (2, 1));
    stage.verifies().await;
}

#[tokio::test]
async fn a_grant_is_made_only_from_a_call_that_was_approved_and_within_its_limits() {
    let stage = stage();
    let asked = stage.delete(1).await.unwrap();
    let make = |by: PrincipalId, new: NewGrant| {
        let gate = stage.gate.clone();
        async move { consent::create_grant(&gate, &by, new).await.unwrap_err() }
    };
    assert_eq!(make(operator(), exact(&asked)).await, GrantRefused::NotApproved);
    stage.grant(&asked).await.unwrap();
    assert_eq!(make(agent(), exact(&asked)).await, GrantRefused::OwnRequest);
    let too_long = NewGrant { life_ms: 8 * 24 * HOUR_MS, ..exact(&asked) };
    for (new, why) in [
        (NewGrant { uses_max: 0, ..exact(&asked) }, "1 to 100 calls"),
        (NewGrant { uses_max: 101, ..exact(&asked) }, "1 to 100 calls"),
        (NewGrant { life_ms: 0, ..exact(&asked) }, "longer than nothing"),
        (too_long, "limits.grant_life_max_ms"),
    ] {
        let GrantRefused::Invalid(said) = make(operator(), new).await else { panic!("{why}") };
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(consent::grants(&stage.gate).await.unwrap(), []);
}

#[tokio::test]
async fn an_action_that_touches_nothing_is_granted_too_and_verifies() {
    let stage = stage();
    let finish = || stage.propose(1, "FINISH", json!({ "response": "done" }));
    let asked = finish().await.unwrap();
    stage.grant(&asked).await.unwrap();
    consent::create_grant(&stage.gate, &operator(), exact(&asked)).await.unwrap();
    assert!(is_success(stage.propose(2, "FINISH", json!({ "response": "done" })).await));
    assert_eq!(stage.used().await, 1);
    stage.verifies().await;
}

#[tokio::test]
async fn a_grant_that_was_revoked_between_its_use_and_the_call_sends_nothing() {
    for is_revoked in [false, true] {
        // The sessions, the question and its answer with two commits, the grant, and the use come first.
        let mut stage = Stage::new(StopAt::Refuse { first: FIRST + 5, count: 1 }).asks();
        stage.gate.limits.approvals_open_max = 1000;
        let standing = stage.granted(5).await;
        assert!(is_unavailable(&stage.delete(1).await), "{is_revoked}");
        assert_eq!((stage.files.sent().len(), stage.used().await), (1, 1));
        if is_revoked {
            assert!(
                consent::revoke_grant(&stage.gate, standing.grant_id, operator()).await.unwrap()
            );
        }
        let report = stage.recover().await.unwrap();
        assert_eq!((report.finished.len(), report.stuck), (1, vec![]));
        assert_eq!(stage.files.sent().len(), if is_revoked { 1 } else { 2 });
        stage.verifies().await;
    }
}
