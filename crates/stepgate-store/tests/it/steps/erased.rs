//! What policies make erasable: known before anything is durable, and the same for a run from then on.

use std::collections::{BTreeSet, VecDeque};

use stepgate_core::event::EventType;
use stepgate_core::ports::{Dossier, OriginalPayload};

use super::*;

const RECIPE: &str = "the recipe of aunt Wilhelmina";

/// A rule that makes arguments erasable.
struct Erasing {
    rule: Arc<Rule>,
    /// What it says when it is asked, one after the other; the last goes on.
    says: Mutex<VecDeque<PolicyErasable>>,
    /// What its decisions say.
    decides: Mutex<PolicyErasable>,
    /// The arguments that it was asked about, in the form in which it saw them.
    saw: Mutex<Vec<Map<String, Value>>>,
}

impl Policy for Erasing {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        if let Call::Server(call) = request.call {
            self.saw.lock().unwrap().push(call.args.clone());
        }
        let erasable = self.decides.lock().unwrap().clone();
        PolicyDecision { erasable, ..self.rule.decide(request) }
    }

    fn erasable(&self, _: &Tool) -> PolicyErasable {
        let mut says = self.says.lock().unwrap();
        match says.len() {
            1 => says[0].clone(),
            _ => says.pop_front().unwrap(),
        }
    }

    fn has_erasable(&self) -> bool {
        true
    }
}

impl Erasing {
    /// Another set is in force.
    fn replace(&self, names: &[&str]) {
        *self.says.lock().unwrap() = [named(names)].into();
        *self.decides.lock().unwrap() = named(names);
    }
}

fn named(names: &[&str]) -> PolicyErasable {
    PolicyErasable::Named(names.iter().map(|name| (*name).to_owned()).collect())
}

fn stage(names: &[&str]) -> (Stage, Arc<Erasing>) {
    let stage = Stage::new(StopAt::Never);
    let policy = Arc::new(Erasing {
        rule: Arc::clone(&stage.rule),
        says: Mutex::new([named(names)].into()),
        decides: Mutex::new(named(names)),
        saw: Mutex::default(),
    });
    let gate = Gate { policy: policy.clone(), ..stage.gate.clone() };
    (Stage { gate, ..stage }, policy)
}

impl Stage {
    async fn cook_by(&self, id: u8, recipe: &str) -> Result<Answer, Fault> {
        *self.kitchen.next.lock().unwrap() = Some(Effect::Done(None));
        self.propose(id, COOK, json!({ "recipe": recipe, "plates": 2 })).await
    }

    async fn dossier(&self, answer: &Answer) -> Dossier {
        self.gate.store.dossier(answer.run_id).await.unwrap().unwrap()
    }

    /// The erasable arguments of a run, as the store keeps them apart.
    async fn erasable(&self, answer: &Answer) -> Option<Value> {
        let kept = self.gate.store.erasable(answer.run_id).await.unwrap()?;
        let Ok(OriginalPayload::Known(bytes)) = kept.args else { panic!("{kept:?}") };
        Some(serde_json::from_slice(&bytes).unwrap())
    }
}

/// Whether anything of a run has the recipe, beside what the store keeps apart.
fn shows(dossier: &Dossier) -> bool {
    let bare = Dossier { sealed: None, ..dossier.clone() };
    let payload = String::from_utf8_lossy(&dossier.run.arrival.payload.bytes).into_owned();
    format!("{bare:?} {payload}").contains("Wilhelmina")
}

#[tokio::test]
async fn what_policies_make_erasable_is_kept_apart_and_neither_seen_nor_recorded() {
    for names in [&["recipe"][..], &["recipe", "fork"]] {
        let (stage, policy) = stage(names);
        let answer = stage.cook_by(1, RECIPE).await.unwrap();
        assert!(is_success(Ok(answer.clone())), "{answer:?}");
        let seen = policy.saw.lock().unwrap().clone();
        assert_eq!(seen[0]["recipe"], json!({ "sha256": Digest::of(RECIPE) }));
        assert_eq!(stage.erasable(&answer).await, Some(json!({ "recipe": RECIPE })));
        assert!(!shows(&stage.dossier(&answer).await));
        stage.verifies().await;
    }
    let (stage, _) = stage(&[]);
    let answer = stage.cook_by(1, RECIPE).await.unwrap();
    assert!(shows(&stage.dossier(&answer).await), "the search finds what is there");
    assert_eq!(stage.erasable(&answer).await, None);
}

#[tokio::test]
async fn a_proposal_that_is_no_call_leaves_nothing_where_policies_make_something_erasable() {
    let (stage, _) = stage(&[]);
    let answer = stage.propose(1, "kitchen.cok", json!({ "recipe": RECIPE })).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Denied));
    assert!(!shows(&stage.dossier(&answer).await));
    stage.verifies().await;
}

/// A set that was loaded without the tool denies its calls, and nobody knows what it would have made erasable.
#[tokio::test]
async fn all_of_a_call_is_kept_apart_where_the_set_does_not_know_its_tool() {
    let (stage, policy) = stage(&[]);
    *policy.says.lock().unwrap() = [PolicyErasable::Every].into();
    *policy.decides.lock().unwrap() = PolicyErasable::Every;
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::Deny;
    let answer = stage.cook_by(1, RECIPE).await.unwrap();
    let all = json!({ "recipe": RECIPE, "plates": 2 });
    assert_eq!(stage.erasable(&answer).await, Some(all));
    assert!(!shows(&stage.dossier(&answer).await));
    stage.verifies().await;
}

/// What decides is what says which arguments are erasable.
#[tokio::test]
async fn a_proposal_is_read_again_where_its_policies_were_replaced_by_ones_that_hide_more() {
    let (stage, policy) = stage(&["recipe"]);
    policy.says.lock().unwrap().push_front(named(&[]));
    let answer = stage.cook_by(1, RECIPE).await.unwrap();
    assert!(is_success(Ok(answer.clone())), "{answer:?}");
    let seen = policy.saw.lock().unwrap().clone();
    let digest = json!({ "sha256": Digest::of(RECIPE) });
    assert_eq!((&seen[0]["recipe"], &seen[1]["recipe"]), (&json!(RECIPE), &digest));
    assert_eq!(stage.erasable(&answer).await, Some(json!({ "recipe": RECIPE })));
    let dossier = stage.dossier(&answer).await;
    assert!(!shows(&dossier));
    let events = dossier.events.iter().map(|linked| linked.event.event_type);
    let stored = events.filter(|kind| *kind == EventType::ErasableStored);
    assert_eq!(stored.count(), 1);
    stage.verifies().await;
}

#[tokio::test]
async fn policies_that_are_replaced_each_time_leave_nothing_and_the_caller_may_ask_again() {
    let (stage, policy) = stage(&["recipe"]);
    *policy.says.lock().unwrap() = [named(&[])].into();
    assert!(is_unavailable(&stage.cook_by(1, RECIPE).await));
    assert_eq!(stage.kitchen.sent.load(Ordering::SeqCst), 0);
    assert_eq!(stage.gate.store.counts().await.unwrap().runs, 0);
    policy.replace(&["recipe"]);
    assert!(is_success(stage.cook_by(1, RECIPE).await));
    stage.verifies().await;
}

/// The stored form differs, and the proposal is the same.
#[tokio::test]
async fn a_proposal_that_comes_again_under_other_policies_is_known_and_another_one_is_a_conflict() {
    let sets: [&[&str]; 3] = [&[], &["recipe"], &["recipe", "plates"]];
    for (first, then) in sets.iter().flat_map(|one| sets.iter().map(move |two| (one, two))) {
        let (stage, policy) = stage(first);
        let answer = stage.cook_by(1, RECIPE).await.unwrap();
        policy.replace(then);
        let again = stage.cook_by(1, RECIPE).await.unwrap();
        assert_eq!((again.run_id, again.replayed), (answer.run_id, true), "{first:?} {then:?}");
        assert_eq!(stage.kitchen.sent.load(Ordering::SeqCst), 1);
        let other = stage.cook_by(1, "another recipe").await.unwrap();
        assert_ne!(other.run_id, answer.run_id);
        assert_eq!(other.word(), Word::Outcome(Outcome::ValidationError), "{other:?}");
        assert_eq!(stage.erasable(&other).await.is_some(), !then.is_empty());
        stage.verifies().await;
    }
}

/// Another node, another set, and another one when the person decides.
#[tokio::test]
async fn what_was_erasable_when_a_waiting_call_came_stays_so() {
    let (stage, policy) = stage(&["recipe"]);
    let stage = stage.asks();
    let asked = stage.cook_by(1, RECIPE).await.unwrap();
    assert_eq!(stage.erasable(&asked).await, Some(json!({ "recipe": RECIPE })));
    policy.replace(&["plates"]);
    let node = stage.other_node();
    *node.kitchen.next.lock().unwrap() = Some(Effect::Done(None));
    assert!(is_success(Ok(node.grant(&asked).await.unwrap())));
    let seen = policy.saw.lock().unwrap().clone();
    let digest = json!({ "sha256": Digest::of(RECIPE) });
    assert!(seen.len() >= 2 && seen.iter().all(|args| args["recipe"] == digest), "{seen:?}");
    // What the new set makes erasable was in the journal before.
    assert_eq!(stage.erasable(&asked).await, Some(json!({ "recipe": RECIPE })));
    assert!(!shows(&stage.dossier(&asked).await));
    stage.verifies().await;
}

/// The configuration redacts it, and so it is not kept.
#[tokio::test]
async fn what_the_configuration_redacts_is_not_kept_although_a_policy_calls_it_erasable() {
    let name = ToolName::parse(COOK).unwrap();
    let tool = Tool { redacted: vec!["pin".into()], ..Tool::gone(name) };
    let names: BTreeSet<String> = ["pin", "recipe"].map(str::to_owned).into();
    let tool = tool.erasing(&names);
    let args = json!({ "pin": "1234", "recipe": RECIPE, "plates": 2 });
    let args = args.as_object().unwrap();
    let kept = tool.erasable_of(args).map(Value::Object);
    assert_eq!(kept, Some(json!({ "recipe": RECIPE })));
    let written = tool.redact(args);
    assert_eq!(written["pin"], json!({ "sha256": Digest::of("1234") }));
}
