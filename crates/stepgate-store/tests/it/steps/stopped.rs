//! Emergency stops: nothing that a stop covers is sent, whatever way a call comes.

use stepgate_core::assumed::Assumed;
use stepgate_core::event::EventType;
use stepgate_core::failure::Phase;
use stepgate_core::ids::PrincipalId;
use stepgate_core::stop::{StopOrder, StopTarget};
use stepgate_core::stops::{self, Covered, Made, StopStanding};
use stepgate_core::words;

use super::*;

impl Stage {
    async fn stop(&self, target: StopTarget) -> StopStanding {
        let note = Some("it runs wild".to_owned());
        let order = StopOrder { note, stopped_by: operator(), target };
        match stops::make(&self.gate, order).await.unwrap() {
            Made::Now(stop) | Made::Before(stop) => stop,
        }
    }

    async fn stop_all(&self) -> StopStanding {
        self.stop(StopTarget::All).await
    }

    async fn lift(&self, stop: &StopStanding) -> Option<StopStanding> {
        stops::lift(&self.gate, stop.stop_id, operator()).await.unwrap()
    }

    async fn cook(&self, id: u8) -> Result<Answer, Fault> {
        self.propose(id, COOK, json!({})).await
    }

    fn dishes(&self) -> usize {
        self.kitchen.sent.load(Ordering::SeqCst)
    }

    async fn session(&self) -> StopTarget {
        StopTarget::Session(self.gate.default_session(&agent()).await.unwrap().session_id)
    }
}

/// The phase that a stopped call was denied in.
async fn denied_in(stage: &Stage, answer: &Answer) -> Phase {
    assert_eq!(answer.word(), Word::Outcome(Outcome::Denied), "{answer:?}");
    let known = stage.gate.store.recall(answer.run_id).await.unwrap().unwrap();
    let body = known.record.unwrap().body().unwrap();
    let detail = format!("STOPPED: by {}, who noted: it runs wild", operator());
    assert_eq!(body.detail, Some(detail));
    body.phase_failed_at.unwrap()
}

#[tokio::test]
async fn a_stopped_call_is_denied_recorded_and_not_sent() {
    let stage = Stage::new(StopAt::Never);
    let targets = [
        StopTarget::All,
        StopTarget::Principal(agent()),
        stage.session().await,
        StopTarget::Server("core".to_owned()),
    ];
    for (id, target) in (1..).zip(targets) {
        let stop = stage.stop(target).await;
        let answer = stage.read(id).await.unwrap();
        assert_eq!(denied_in(&stage, &answer).await, Phase::Authorize);
        let dossier = stage.gate.store.dossier(answer.run_id).await.unwrap().unwrap();
        let decision = replay(&dossier.entries).unwrap().decision.unwrap();
        assert_eq!(decision.meta.policies, ["stop"]);
        let step::Reply::Recorded(recorded) = &answer.reply else { panic!("{answer:?}") };
        let told = words::of_run(&stage.gate, answer.run_id, recorded).await.unwrap();
        assert!(told.contains("an operator has stopped these calls"), "{told}");
        assert!(!told.contains("wild"), "the note is not for the agent: {told}");
        assert!(stage.lift(&stop).await.is_some());
    }
    assert_eq!(stage.files.prepared.load(Ordering::SeqCst), 0, "the sandbox is not asked");
    assert!(is_success(stage.read(9).await));
    stage.verifies().await;
}

#[tokio::test]
async fn a_stop_of_something_else_stops_nothing() {
    let stage = Stage::new(StopAt::Never);
    let other_session =
        StopTarget::Session("0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10".parse().unwrap());
    for target in [
        StopTarget::Principal(operator()),
        StopTarget::Principal(PrincipalId::parse("nobody-yet").unwrap()),
        StopTarget::Server("kitchen".to_owned()),
        other_session,
    ] {
        stage.stop(target).await;
    }
    assert!(is_success(stage.read(1).await));
    assert_eq!(denied_in(&stage, &stage.cook(2).await.unwrap()).await, Phase::Authorize);
}

#[tokio::test]
async fn a_stop_of_one_node_is_in_force_on_another_for_its_next_call() {
    let stage = Stage::new(StopAt::Never);
    let elsewhere = stage.other_node();
    assert!(is_success(elsewhere.read(1).await));
    let stop = stage.stop_all().await;
    assert_eq!(denied_in(&stage, &elsewhere.read(2).await.unwrap()).await, Phase::Authorize);
    assert!(elsewhere.lift(&stop).await.is_some());
    assert!(is_success(stage.read(3).await));
}

#[tokio::test]
async fn the_same_stop_is_made_once_and_lifted_once() {
    let stage = Stage::new(StopAt::Never);
    let stop = stage.stop_all().await;
    let again = StopOrder { note: None, stopped_by: agent(), target: StopTarget::All };
    let again = stops::make(&stage.gate, again).await.unwrap();
    assert_eq!(again, Made::Before(stop.clone()));
    let lifted = stage.lift(&stop).await.unwrap();
    assert_eq!(lifted.lift.as_ref().unwrap().lifted_by, operator());
    assert_eq!(stage.lift(&stop).await, None);
    let next = stage.stop_all().await;
    assert_ne!(next.stop_id, stop.stop_id);
    assert_eq!(stops::list(&stage.gate).await.unwrap(), [next.clone(), lifted]);
    assert_eq!(stops::in_force(&stage.gate).await.unwrap(), [next]);
    stage.verifies().await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_place_is_refused_when_the_stop_comes_meanwhile() {
    let stage = Stage::new(StopAt::Never);
    stage.kitchen.sent.store(1, Ordering::SeqCst);
    let place = Arc::new(Notify::new());
    *stage.kitchen.busy.lock().unwrap() = Some(Arc::clone(&place));
    let meanwhile = async {
        tokio::task::yield_now().await;
        // Of another node, so that nothing but the store tells of it.
        let stop = stage.other_node().stop(StopTarget::Server("kitchen".to_owned())).await;
        let covered = stops::covered(&stage.gate, &stop.order.target).await.unwrap();
        assert_eq!(covered, Covered::default(), "what waits for a place is not running");
        place.notify_one();
    };
    let (answer, ()) = tokio::join!(stage.cook(1), meanwhile);
    assert_eq!(denied_in(&stage, &answer.unwrap()).await, Phase::Execute);
    assert_eq!(stage.dishes(), 1, "nothing was sent");
    stage.verifies().await;
}

#[tokio::test]
async fn an_approval_of_a_stopped_call_is_refused_and_stays_open_until_the_stop_is_lifted() {
    let stage = Stage::new(StopAt::Never).asks();
    let (asked, other) = (stage.delete(1).await.unwrap(), stage.delete(2).await.unwrap());
    let stop = stage.other_node().stop(StopTarget::Principal(agent())).await;
    let covered = stops::covered(&stage.gate, &stop.order.target).await.unwrap();
    assert_eq!(covered, Covered { running: vec![], waiting: 2 });
    assert!(matches!(stage.grant(&asked).await, Err(Refused::Stopped(_))));
    // To say no is possible all the time.
    let denies = Person::Denies { approver_id: operator(), note: None };
    let denied = step::resume(&stage.gate, other.approval_id().unwrap(), denies).await.unwrap();
    assert_eq!(denied.word(), Word::Outcome(Outcome::Denied));
    assert_eq!(stage.files.sent(), []);
    // No question is asked about a call that is stopped.
    assert_eq!(denied_in(&stage, &stage.delete(3).await.unwrap()).await, Phase::Authorize);
    stage.lift(&stop).await.unwrap();
    let answer = stage.grant(&asked).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Success));
    assert_eq!(stage.files.sent().len(), 1);
    stage.verifies().await;
}

#[tokio::test]
async fn recovery_does_not_send_a_call_again_until_the_stop_is_lifted() {
    // The record of the step has three attempts.
    let stage = Stage::new(StopAt::Refuse { first: FIRST + 1, count: 3 });
    assert!(is_unavailable(&stage.read(1).await));
    let stop = stage.stop_all().await;
    let running = stops::covered(&stage.gate, &StopTarget::All).await.unwrap().running;
    for restarted in [stage.gate.clone(), stage.restarted(stage.files.clone())] {
        let report = recover(&restarted, Scope::Core).await.unwrap();
        let (run_id, why) = report.stuck.first().unwrap();
        assert_eq!(vec![*run_id], running);
        assert!(why.contains("not sent again while it is stopped (STOPPED: by"), "{why}");
        assert_eq!(stage.files.sent().len(), 1);
        let dossier = stage.gate.store.dossier(*run_id).await.unwrap().unwrap();
        assert_eq!(dossier.events.len(), 1, "an attempt leaves no event");
    }
    assert!(stage.files.holds() > 0, "its path is still held");
    stage.lift(&stop).await.unwrap();
    assert_eq!(stage.recover().await.unwrap().finished, running);
    assert_eq!(stage.files.sent().len(), 2);
    stage.verifies().await;
}

#[tokio::test]
async fn a_call_in_doubt_is_not_sent_again_by_a_person_while_it_is_stopped() {
    let stage = Stage::new(StopAt::Never);
    assert!(matches!(stage.cook(1).await, Err(Fault::Executor(_))));
    let stop = stage.stop(StopTarget::Server("kitchen".to_owned())).await;
    let run_id = stops::covered(&stage.gate, &stop.order.target).await.unwrap().running[0];
    let resolve = |settlement| step::resolve(&stage.gate, run_id, settlement, operator(), None);
    assert!(matches!(resolve(Settlement::Redispatch).await, Err(Refused::Stopped(_))));
    assert_eq!(stage.dishes(), 1);
    // What was done meanwhile can be said: nothing is sent.
    let answer = resolve(Settlement::Succeeded(None)).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Success));
    assert_eq!(stage.dishes(), 1);
    stage.verifies().await;
}

#[tokio::test]
async fn a_call_that_was_not_sent_before_a_crash_is_denied_by_recovery() {
    let stage = Stage::new(StopAt::Never);
    stage.kitchen.sent.store(1, Ordering::SeqCst);
    *stage.kitchen.busy.lock().unwrap() = Some(Arc::new(Notify::new()));
    tokio::select! {
        biased;
        answer = stage.cook(1) => panic!("{answer:?}"),
        () = tokio::task::yield_now() => {}
    }
    let run_id = stage.gate.store.unfinished().await.unwrap()[0].run_id;
    let memory = stage.memory.reopened();
    let restarted = Gate { store: Arc::new(memory), ..stage.other_node().gate };
    stage.stop_all().await;
    let report = recover(&restarted, Scope::Servers).await.unwrap();
    assert_eq!(report.finished, [run_id]);
    let answer = step::answer_of(&restarted, run_id).await.unwrap();
    assert_eq!(denied_in(&stage, &answer).await, Phase::Authorize);
    assert_eq!(stage.dishes(), 1);
    stage.verifies().await;
}

#[tokio::test]
async fn a_stop_in_a_form_that_is_not_known_stops_everything() {
    let stage = Stage::new(StopAt::Never);
    let newer = json!({ "stopped_by": "ada", "target": { "moon": "full" } });
    let event = stage.gate.note(EventType::StopMade, newer).await.unwrap();
    let answer = stage.read(1).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Denied));
    stops::lift(&stage.gate, event.event_id, operator()).await.unwrap().unwrap();
    assert!(is_success(stage.read(2).await));
}

#[tokio::test]
async fn what_would_be_decided_names_the_stop() {
    let stage = Stage::new(StopAt::Never);
    stage.stop_all().await;
    stage.read(1).await.unwrap();
    let proposal = json!({
        "schema_version": "1.0.0",
        "id": "550e8400-e29b-41d4-a716-446655440099",
        "reasoning": "because",
        "action": "THINK",
        "args": {},
    });
    let session_id = stage.gate.default_session(&agent()).await.unwrap().session_id;
    let payload = Payload::whole(proposal.to_string().into_bytes());
    let submission = Submission { session_id, principal_id: agent(), payload };
    let weighed = step::weigh(&stage.gate, &submission, &Assumed::default()).unwrap();
    assert!(weighed.rule.unwrap().starts_with("STOPPED: by"));
}
