//! Budgets over whole steps: charged once in the commit of the call, whatever way it came; given back where the call
//! certainly did not happen, and kept in every other case.

use stepgate_core::approval::ApprovalStatus;
use stepgate_core::budget::{
    Account, Balance, BudgetName, Charge, Per, Terms, Window, WindowLength,
};
use stepgate_core::consent::{self, NewGrant};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::{EventType, payload};
use stepgate_core::failure::{ExecutionFailure, Phase};
use stepgate_core::stop::{StopOrder, StopTarget};
use stepgate_core::stops;
use stepgate_core::words;

use super::*;

const AMOUNT: &str = "40";

fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

fn charge() -> Charge {
    Charge {
        amount: decimal(AMOUNT),
        argument: Some("amount".into()),
        budget: BudgetName::parse("payments").unwrap(),
        key: AccountKey::all(),
        limit: decimal("100"),
        window: Window::Ever,
    }
}

impl Stage {
    /// Every call of the kitchen takes 40 of 100. This policy does not look at what is used: only the commit does.
    pub(super) fn with_a_budget(self) -> Self {
        let Charge { amount, argument, budget, limit, .. } = charge();
        let terms = Terms {
            name: budget,
            argument,
            limit,
            per: Per::All,
            window: WindowLength::Ever,
            zone: Terms::UTC,
        };
        self.rule.0.lock().unwrap().due = vec![Due { terms: Arc::new(terms), amount }];
        // The kitchen's first call would end in doubt.
        self.kitchen.sent.store(1, Ordering::SeqCst);
        self
    }

    async fn pay(&self, id: u8) -> Result<Answer, Fault> {
        self.propose(id, COOK, json!({ "amount": 40 })).await
    }

    async fn paid(&self) -> String {
        self.gate.store.used(&[charge().account()]).await.unwrap()[0].to_string()
    }

    fn ends(&self, effect: Effect) {
        *self.kitchen.next.lock().unwrap() = Some(effect);
    }

    fn calls(&self) -> usize {
        self.kitchen.sent.load(Ordering::SeqCst) - 1
    }

    async fn types(&self, run_id: RunId) -> Vec<EventType> {
        let dossier = self.gate.store.dossier(run_id).await.unwrap().unwrap();
        dossier.events.iter().map(|linked| linked.event.event_type).collect()
    }

    /// Asserts that the call was denied when it was to be sent, with nothing sent.
    async fn refused(&self, answer: &Answer, calls: usize) {
        assert_eq!(answer.word(), Word::Outcome(Outcome::Denied), "{answer:?}");
        let known = self.gate.store.recall(answer.run_id).await.unwrap().unwrap();
        let body = known.record.unwrap().body().unwrap();
        assert_eq!(body.phase_failed_at, Some(Phase::Execute));
        assert_eq!(body.error_code.as_deref(), Some("POLICY_VIOLATION"));
        let used = 40 * calls;
        let detail =
            format!("BUDGET: `payments`: {used}.0 of 100.0 is used, and the call needs 40.0");
        assert_eq!(body.detail, Some(detail));
        let types = self.types(answer.run_id).await;
        assert!(!types.contains(&EventType::ToolCalled), "{types:?}");
        assert!(!types.contains(&EventType::BudgetReserved), "{types:?}");
        assert_eq!(self.calls(), calls);
    }
}

#[tokio::test]
async fn a_call_is_charged_in_the_commit_that_makes_it_durable() {
    let stage = Stage::new(StopAt::Never).with_a_budget();
    let answer = stage.pay(1).await.unwrap();
    let dossier = stage.gate.store.dossier(answer.run_id).await.unwrap().unwrap();
    assert!(is_success(Ok(answer)));
    let types: Vec<_> = dossier.events.iter().map(|linked| linked.event.event_type).collect();
    let [called, reserved, done] =
        [EventType::ToolCalled, EventType::BudgetReserved, EventType::ToolSucceeded];
    assert_eq!(types, [called, reserved, done]);
    assert_eq!(dossier.events[1].event.payload, payload::value(charge()));
    assert_eq!(dossier.events[1].link, None, "the opening covers it");
    let facts = replay(&dossier.entries).unwrap().decision.unwrap().meta.facts.unwrap();
    assert_eq!(facts.used, [("payments".to_owned(), Decimal::ZERO)].into());
    // The same proposal again takes nothing.
    assert!(stage.pay(1).await.unwrap().replayed);
    assert_eq!(stage.paid().await, "40.0");
    stage.verifies().await;
}

#[tokio::test]
async fn a_call_over_the_budget_is_denied_and_nothing_is_sent() {
    let stage = Stage::new(StopAt::Never).with_a_budget();
    assert!(is_success(stage.pay(1).await));
    assert!(is_success(stage.pay(2).await));
    let answer = stage.pay(3).await.unwrap();
    stage.refused(&answer, 2).await;
    let step::Reply::Recorded(recorded) = &answer.reply else { panic!("{answer:?}") };
    let told = words::of_run(&stage.gate, answer.run_id, recorded).await.unwrap();
    assert!(told.contains("more than may be used at present"), "{told}");
    assert!(!told.contains("payments"), "{told}");
    assert_eq!(stage.paid().await, "80.0");
    stage.verifies().await;
}

#[tokio::test]
async fn a_call_that_waited_for_a_place_is_charged_when_it_has_one() {
    let stage = Stage::new(StopAt::Never).with_a_budget();
    let place = Arc::new(Notify::new());
    *stage.kitchen.busy.lock().unwrap() = Some(Arc::clone(&place));
    let meanwhile = async {
        tokio::task::yield_now().await;
        assert_eq!(stage.paid().await, "0.0");
        // Others take what it would have taken.
        assert!(is_success(stage.pay(2).await));
        assert!(is_success(stage.pay(3).await));
        place.notify_one();
    };
    let (answer, ()) = tokio::join!(stage.pay(1), meanwhile);
    stage.refused(&answer.unwrap(), 2).await;
    stage.verifies().await;
}

#[tokio::test]
async fn a_call_that_a_person_approves_is_charged_then_and_denied_where_that_is_too_late() {
    let stage = Stage::new(StopAt::Never).with_a_budget().asks();
    let (first, second) = (stage.pay(1).await.unwrap(), stage.pay(2).await.unwrap());
    assert_eq!(stage.paid().await, "0.0", "a question takes nothing");
    assert!(is_success(stage.grant(&first).await.map_err(|_| unreachable!())));
    assert_eq!(stage.paid().await, "40.0");
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::Permit;
    assert!(is_success(stage.pay(3).await));
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::RequireApproval("ask".into());
    let answer = stage.grant(&second).await.unwrap();
    stage.refused(&answer, 2).await;
    let approval = stage.gate.store.approval(second.approval_id().unwrap()).await;
    assert_eq!(approval.unwrap().unwrap().status, ApprovalStatus::Approved);
    stage.verifies().await;
}

/// Makes a grant for calls like this one.
async fn granting(stage: &Stage) {
    let asked = stage.pay(100).await.unwrap();
    stage.grant(&asked).await.unwrap();
    let approval_id = asked.approval_id().unwrap();
    let new = NewGrant {
        approval_id,
        args: Default::default(),
        uses_max: 10,
        life_ms: 60_000,
        note: None,
    };
    consent::create_grant(&stage.gate, &operator(), new).await.unwrap();
}

#[tokio::test]
async fn a_call_under_a_grant_is_charged_and_denied_like_any_other() {
    let stage = Stage::new(StopAt::Never).with_a_budget().asks();
    granting(&stage).await;
    assert!(is_success(stage.pay(1).await));
    assert_eq!(stage.paid().await, "80.0");
    stage.refused(&stage.pay(2).await.unwrap(), 2).await;
    stage.verifies().await;
}

#[tokio::test]
async fn a_run_that_stopped_between_its_grant_and_its_call_is_charged_by_recovery_once() {
    for is_full in [false, true] {
        // The question, its answer with two commits, the grant, and its use come first.
        let stage =
            Stage::new(StopAt::Refuse { first: FIRST + 5, count: 1 }).with_a_budget().asks();
        granting(&stage).await;
        assert!(is_unavailable(&stage.pay(1).await), "{is_full}");
        assert_eq!((stage.calls(), stage.paid().await), (1, "40.0".to_owned()));
        if is_full {
            stage.rule.0.lock().unwrap().verdict = PolicyVerdict::Permit;
            assert!(is_success(stage.pay(2).await));
            stage.rule.0.lock().unwrap().verdict = PolicyVerdict::RequireApproval("ask".into());
        }
        let unfinished = stage.gate.store.unfinished().await.unwrap()[0].run_id;
        let report = recover(&stage.gate, Scope::Servers).await.unwrap();
        assert_eq!(report.finished, [unfinished]);
        assert_eq!((stage.calls(), stage.paid().await), (2, "80.0".to_owned()), "{is_full}");
        if is_full {
            let answer = step::answer_of(&stage.gate, unfinished).await.unwrap();
            stage.refused(&answer, 2).await;
        }
        stage.verifies().await;
    }
}

#[tokio::test]
async fn what_a_call_took_is_given_back_where_it_certainly_did_not_happen() {
    // The server could not be reached.
    let stage = Stage::new(StopAt::Never).with_a_budget();
    stage.ends(Effect::Failed(ExecutionFailure::Unavailable.into()));
    let answer = stage.pay(1).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::ExecutionError));
    let types = stage.types(answer.run_id).await;
    assert_eq!(types[1..3], [EventType::BudgetReserved, EventType::BudgetReleased]);
    assert_eq!(stage.paid().await, "0.0");
    // An operator says that it was not done.
    stage.ends(Effect::Unknown("the connection was lost".into()));
    assert!(matches!(stage.pay(2).await, Err(Fault::Executor(_))));
    assert_eq!(stage.paid().await, "40.0", "it is kept while it is in doubt");
    let run_id = stage.gate.store.unfinished().await.unwrap()[0].run_id;
    step::resolve(&stage.gate, run_id, Settlement::Failed, operator(), None).await.unwrap();
    assert_eq!(stage.paid().await, "0.0");
    stage.verifies().await;
    // All of it can be taken again.
    assert!(is_success(stage.pay(3).await));
    assert!(is_success(stage.pay(4).await));
    stage.verifies().await;
}

/// The stop comes from another node while the call waits for its place: it is found after the commit.
#[tokio::test]
async fn what_a_call_took_is_given_back_where_a_stop_came_before_it_was_sent() {
    let stage = Stage::new(StopAt::Never).with_a_budget();
    let place = Arc::new(Notify::new());
    *stage.kitchen.busy.lock().unwrap() = Some(Arc::clone(&place));
    let meanwhile = async {
        tokio::task::yield_now().await;
        let order = StopOrder { note: None, stopped_by: operator(), target: StopTarget::All };
        stops::make(&stage.other_node().gate, order).await.unwrap();
        place.notify_one();
    };
    let (answer, ()) = tokio::join!(stage.pay(1), meanwhile);
    let answer = answer.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Denied));
    let types = stage.types(answer.run_id).await;
    assert!(types.contains(&EventType::BudgetReleased), "{types:?}");
    assert_eq!((stage.calls(), stage.paid().await), (0, "0.0".to_owned()));
    stage.verifies().await;
}

#[tokio::test]
async fn what_a_call_took_is_kept_where_it_may_have_happened() {
    let kept = [
        Failed::from(ExecutionFailure::ToolFailed),
        Failed { in_doubt: true, ..ExecutionFailure::ToolFailed.into() },
        Failed { in_doubt: true, ..ExecutionFailure::Timeout.into() },
        Failed { in_doubt: true, ..ExecutionFailure::OutputInvalid.into() },
    ];
    for failed in kept {
        let stage = Stage::new(StopAt::Never).with_a_budget();
        let shown = format!("{failed:?}");
        stage.ends(Effect::Failed(failed));
        let answer = stage.pay(1).await.unwrap();
        assert_eq!(answer.word(), Word::Outcome(Outcome::ExecutionError), "{shown}");
        assert_eq!(stage.paid().await, "40.0", "{shown}");
        stage.verifies().await;
    }
    for settlement in [Settlement::Succeeded(None), Settlement::Redispatch] {
        let stage = Stage::new(StopAt::Never).with_a_budget();
        stage.ends(Effect::Unknown("the connection was lost".into()));
        assert!(matches!(stage.pay(1).await, Err(Fault::Executor(_))));
        let run_id = stage.gate.store.unfinished().await.unwrap()[0].run_id;
        let settled = step::resolve(&stage.gate, run_id, settlement, operator(), None).await;
        assert_eq!(settled.unwrap().word(), Word::Outcome(Outcome::Success));
        assert_eq!(stage.paid().await, "40.0", "sent twice, and charged once");
        stage.verifies().await;
    }
}

#[tokio::test]
async fn a_call_that_its_server_does_not_take_is_not_charged() {
    let stage = Stage::new(StopAt::Never).with_a_budget();
    let gate = Gate { tools: Arc::new(Closed(Arc::clone(&stage.kitchen))), ..stage.gate.clone() };
    let stage = Stage { gate, ..stage };
    let answer = stage.pay(1).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::ExecutionError));
    assert_eq!(stage.types(answer.run_id).await, [EventType::ToolFailed]);
    assert_eq!(stage.gate.store.balances().await, Ok(vec![]));
    stage.verifies().await;
}

/// The same kitchen, with its breaker open.
struct Closed(Arc<Kitchen>);

#[async_trait]
impl ToolServers for Closed {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        self.0.tool(name)
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.0.tools()
    }

    async fn prepare(&self, _: &ServerCall) -> Result<Hold, Failed> {
        Err(ExecutionFailure::Unavailable.into())
    }

    async fn dispatch(&self, _: &ServerCall, _: &Sending) -> Effect {
        panic!("nothing is sent")
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_charges_once_or_not_at_all() {
    for is_applied in [false, true] {
        // The call, then the record.
        for number in [FIRST, FIRST + 1] {
            let stage = Stage::new(StopAt::LoseAnswer { number, is_applied }).with_a_budget();
            let answer = stage.pay(1).await;
            let expected = match (number, is_applied) {
                (FIRST, false) => {
                    assert!(is_unavailable(&answer));
                    "0.0"
                }
                (_, _) => {
                    assert!(is_success(answer));
                    "40.0"
                }
            };
            assert_eq!(stage.paid().await, expected, "{number} {is_applied}");
            stage.verifies().await;
        }
    }
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_is_made_once() {
    for is_applied in [false, true] {
        let stop = StopAt::LoseAnswer { number: FIRST + 3, is_applied };
        let stage = Stage::new(stop).with_a_budget();
        assert!(is_success(stage.pay(1).await));
        stage.ends(Effect::Failed(ExecutionFailure::Unavailable.into()));
        let answer = stage.pay(2).await.unwrap();
        assert_eq!(answer.word(), Word::Outcome(Outcome::ExecutionError));
        assert_eq!(stage.paid().await, "40.0", "{is_applied}");
        stage.verifies().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_on_two_nodes_take_no_more_than_there_is() {
    let stage = Stage::new(StopAt::Never).with_a_budget();
    let nodes = [Arc::new(stage.other_node()), Arc::new(stage.other_node())];
    let calls = (1..=40_u8).map(|id| {
        let node = Arc::clone(&nodes[usize::from(id) % 2]);
        tokio::spawn(async move { is_success(node.pay(id).await) })
    });
    let mut done = 0;
    for call in calls.collect::<Vec<_>>() {
        done += usize::from(call.await.unwrap());
    }
    assert_eq!((done, stage.calls(), stage.paid().await), (2, 2, "80.0".to_owned()));
    let balance = Balance {
        account: Account { budget: charge().budget, window: Window::Ever, key: AccountKey::all() },
        used: decimal("80"),
    };
    assert_eq!(stage.gate.store.balances().await, Ok(vec![balance]));
    stage.verifies().await;
}

/// The policies are replaced after the accounts were read: the call is decided on again, by one set.
#[tokio::test]
async fn a_decision_on_other_budgets_than_were_read_is_taken_again() {
    struct Replaced(Arc<Rule>, AtomicUsize);
    impl Policy for Replaced {
        fn budgets(&self, payer: Payer<'_>, call: &Call) -> Vec<Covering> {
            match self.1.fetch_add(1, Ordering::SeqCst) {
                0 => Vec::new(),
                _ => self.0.budgets(payer, call),
            }
        }

        fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
            self.0.decide(request)
        }
    }
    let stage = Stage::new(StopAt::Never).with_a_budget();
    let policy = Arc::new(Replaced(Arc::clone(&stage.rule), AtomicUsize::default()));
    let gate = Gate { policy: policy.clone(), ..stage.gate.clone() };
    let stage = Stage { gate, ..stage };
    assert!(is_success(stage.pay(1).await));
    assert_eq!((policy.1.load(Ordering::SeqCst), stage.paid().await), (2, "40.0".to_owned()));
    stage.verifies().await;
}
