//! Accounts of budgets: what every engine charges, refuses and gives back; and several nodes on one database.

use std::sync::Arc;

use stepgate_core::budget::{
    Account, AccountKey, Balance, BudgetChange, BudgetName, Charge, OverBudget, Window,
};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::{EventType, payload};
use stepgate_core::journal::StateCode;
use stepgate_core::ports::{StepCommit, StoreError};
use stepgate_store::{PostgresOptions, PostgresStore};

use crate::conformance::over_every_engine;
use crate::desk::{Desk, Step, at};
use crate::server;

over_every_engine! {
    a_charge_is_added_up_and_given_back,
    a_charge_over_the_limit_is_refused_and_nothing_is_written,
    accounts_of_other_keys_and_windows_are_apart,
    a_crowd_takes_the_limit_and_not_more,
    a_charge_comes_with_its_call_and_its_event_alone,
    what_is_given_back_was_taken,
    accounts_are_listed_the_fullest_first,
}

fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

pub(crate) fn charge(amount: &str) -> Charge {
    Charge {
        amount: decimal(amount),
        argument: Some("amount".into()),
        budget: BudgetName::parse("payments").unwrap(),
        key: AccountKey::all(),
        limit: decimal("100"),
        window: Window::Ever,
    }
}

/// The commit, with these charges and their events.
pub(crate) fn taking(step: &mut Step, mut commit: StepCommit, charges: &[Charge]) -> StepCommit {
    for charge in charges {
        let mut event = step.event(EventType::BudgetReserved);
        event.payload = payload::value(charge);
        step.events.last_mut().unwrap().payload = event.payload.clone();
        commit.events.push(event);
        commit.budgets.push(BudgetChange::Reserve(charge.clone()));
    }
    commit
}

/// The last commit of a step, which gives this back.
fn giving_back(step: &mut Step, charge: &Charge) -> StepCommit {
    let mut event = step.event(EventType::BudgetReleased);
    event.payload = payload::value(charge);
    step.events.last_mut().unwrap().payload = event.payload.clone();
    let mut commit = step.closing();
    commit.events.insert(0, event);
    commit.budgets.push(BudgetChange::Release(charge.clone()));
    commit
}

pub(crate) async fn take(desk: &Desk, charges: &[Charge]) -> (Step, Result<(), StoreError>) {
    let mut step = desk.step();
    let commit = step.opening();
    let commit = taking(&mut step, commit, charges);
    let answer = desk.store.commit(commit).await;
    (step, answer)
}

async fn used(desk: &Desk, charge: &Charge) -> String {
    let used = desk.store.used(&[charge.account()]).await.unwrap();
    used[0].to_string()
}

fn refused(answer: Result<(), StoreError>) -> StateCode {
    match answer {
        Err(StoreError::State(error)) => error.code,
        other => panic!("{other:?}"),
    }
}

async fn a_charge_is_added_up_and_given_back(desk: Desk) {
    assert_eq!(used(&desk, &charge("1")).await, "0.0");
    let (_, first) = take(&desk, &[charge("60.5")]).await;
    let (mut step, second) = take(&desk, &[charge("39.5")]).await;
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(used(&desk, &charge("1")).await, "100.0");
    desk.store.commit(giving_back(&mut step, &charge("39.5"))).await.unwrap();
    assert_eq!(used(&desk, &charge("1")).await, "60.5");
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    let events: Vec<_> = dossier.events.iter().map(|it| it.event.clone()).collect();
    assert_eq!(events.len(), 4);
    assert_eq!(events[1].payload, payload::value(charge("39.5")));
}

async fn a_charge_over_the_limit_is_refused_and_nothing_is_written(desk: Desk) {
    take(&desk, &[charge("60")]).await.1.unwrap();
    let before = desk.store.counts().await.unwrap();
    let (step, answer) = take(&desk, &[charge("40.0001")]).await;
    let over = OverBudget {
        budget: BudgetName::parse("payments").unwrap(),
        used: decimal("60"),
        amount: decimal("40.0001"),
        limit: decimal("100"),
    };
    assert_eq!(answer, Err(StoreError::OverBudget(Box::new(over))));
    assert_eq!(desk.store.dossier(step.id()).await, Ok(None));
    assert_eq!(desk.store.counts().await.unwrap(), before);
    assert_eq!(used(&desk, &charge("1")).await, "60.0");
    // One of two accounts is full: the other one is not charged either.
    let mine = Charge { key: AccountKey::group("finance"), ..charge("41") };
    let (_, answer) = take(&desk, &[mine.clone(), charge("41")]).await;
    assert!(matches!(answer, Err(StoreError::OverBudget(_))));
    assert_eq!(used(&desk, &mine).await, "0.0");
    // An amount beyond what the limit leaves, and beyond every number.
    let huge = Charge { amount: Decimal::MAX, limit: Decimal::MAX, ..charge("1") };
    let (_, answer) = take(&desk, &[huge]).await;
    assert!(matches!(answer, Err(StoreError::OverBudget(_))));
    take(&desk, &[charge("40")]).await.1.unwrap();
}

async fn accounts_of_other_keys_and_windows_are_apart(desk: Desk) {
    let day = Window::Between { start: at(0), end: at(86_400_000) };
    let others = [
        charge("100"),
        Charge { key: AccountKey::group("finance"), ..charge("100") },
        Charge { window: day, ..charge("100") },
        Charge { budget: BudgetName::parse("other").unwrap(), ..charge("100") },
    ];
    take(&desk, &others).await.1.unwrap();
    let accounts = others.each_ref().map(Charge::account);
    assert_eq!(desk.store.used(&accounts).await.unwrap(), vec![decimal("100"); 4]);
    for other in others {
        let (_, answer) = take(&desk, &[Charge { amount: decimal("0.0001"), ..other }]).await;
        assert!(matches!(answer, Err(StoreError::OverBudget(_))));
    }
    assert_eq!(desk.store.balances().await.unwrap().len(), 4);
}

async fn a_crowd_takes_the_limit_and_not_more(desk: Desk) {
    let mut tasks = Vec::new();
    for number in 0..64_u32 {
        let desk = desk.clone();
        tasks.push(tokio::spawn(async move {
            match number % 4 {
                // Steps without a charge are not harmed by those that are refused beside them.
                0 => (false, take(&desk, &[]).await.1),
                _ => (true, take(&desk, &[charge("7")]).await.1),
            }
        }));
    }
    let (mut taken, mut others) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            (true, Ok(())) => taken += 1,
            (true, Err(StoreError::OverBudget(_))) => {}
            (false, Ok(())) => others += 1,
            (_, other) => panic!("{other:?}"),
        }
    }
    assert_eq!((taken, others), (14, 16));
    assert_eq!(used(&desk, &charge("1")).await, "98.0");
}

async fn a_charge_comes_with_its_call_and_its_event_alone(desk: Desk) {
    // Without its event.
    let mut step = desk.step();
    let mut commit = step.opening();
    commit.budgets.push(BudgetChange::Reserve(charge("1")));
    assert_eq!(refused(desk.store.commit(commit).await), StateCode::InvalidTransition);
    // An event without a charge, and one that says something else.
    for told in ["1", "2"] {
        let mut step = desk.step();
        let commit = step.opening();
        let mut commit = taking(&mut step, commit, &[charge("1")]);
        match told {
            "1" => commit.budgets.clear(),
            other => commit.budgets = vec![BudgetChange::Reserve(charge(other))],
        }
        assert_eq!(refused(desk.store.commit(commit).await), StateCode::InvalidTransition);
    }
    // Without a call.
    let mut step = desk.step();
    let (commit, _) = step.pausing();
    let commit = taking(&mut step, commit, &[charge("1")]);
    assert_eq!(refused(desk.store.commit(commit).await), StateCode::InvalidTransition);
    // The same account twice, and less than nothing.
    assert_eq!(
        refused(take(&desk, &[charge("1"), charge("1")]).await.1),
        StateCode::InvalidTransition
    );
    assert_eq!(refused(take(&desk, &[charge("-1")]).await.1), StateCode::InvalidTransition);
    assert_eq!(desk.store.balances().await, Ok(vec![]));
}

async fn what_is_given_back_was_taken(desk: Desk) {
    let (mut step, taken) = take(&desk, &[charge("1")]).await;
    taken.unwrap();
    let commit = giving_back(&mut step, &charge("2"));
    assert_eq!(refused(desk.store.commit(commit).await), StateCode::InvalidTransition);
    // Before the end of the run.
    let (mut step, taken) = take(&desk, &[charge("1")]).await;
    taken.unwrap();
    let mut commit = giving_back(&mut step, &charge("1"));
    commit = StepCommit {
        events: vec![commit.events[0].clone()],
        budgets: commit.budgets,
        ..StepCommit::at(commit.place)
    };
    assert_eq!(refused(desk.store.commit(commit).await), StateCode::InvalidTransition);
    assert_eq!(used(&desk, &charge("1")).await, "2.0");
}

async fn accounts_are_listed_the_fullest_first(desk: Desk) {
    let of = |name: &str, amount: &str| Charge { key: AccountKey::group(name), ..charge(amount) };
    take(&desk, &[of("a", "1"), of("b", "3"), of("c", "1"), of("d", "2")]).await.1.unwrap();
    let budget = BudgetName::parse("payments").unwrap();
    let listed = desk.store.accounts(&budget, Window::Ever, 3).await.unwrap();
    let balance = |name: &str, used: &str| Balance {
        account: Account {
            budget: budget.clone(),
            window: Window::Ever,
            key: AccountKey::group(name),
        },
        used: decimal(used),
    };
    assert_eq!(listed, [balance("b", "3"), balance("d", "2"), balance("a", "1")]);
    let day = Window::Between { start: at(0), end: at(1) };
    assert_eq!(desk.store.accounts(&budget, day, 3).await, Ok(vec![]));
}

/// Each node has a cache and a writer of its own; only the database knows what is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_take_the_limit_of_one_account_and_not_more() {
    let url = server::fresh_url();
    let mut desks = Vec::new();
    for number in 0..3 {
        let options =
            PostgresOptions { node_id: format!("node-{number}"), ..PostgresOptions::default() };
        let store = PostgresStore::open(&url, options).await.unwrap();
        desks.push(Desk::open(Arc::new(store)).await);
    }
    let mut tasks = Vec::new();
    for number in 0..150 {
        let desk = desks[number % 3].clone();
        tasks.push(tokio::spawn(async move {
            let (mut step, answer) = take(&desk, &[charge("3")]).await;
            match answer {
                // Every fifth that is taken is given back.
                Ok(()) if number % 5 == 0 => {
                    desk.store.commit(giving_back(&mut step, &charge("3"))).await.unwrap();
                    0
                }
                Ok(()) => 1,
                Err(StoreError::OverBudget(_)) => 0,
                Err(other) => panic!("{other:?}"),
            }
        }));
    }
    let mut taken = 0;
    for task in tasks {
        taken += task.await.unwrap();
    }
    let left = used(&desks[0], &charge("1")).await;
    assert_eq!(left, format!("{}.0", taken * 3));
    // What is given back later may have kept others away.
    assert!((1..=33).contains(&taken), "{taken}");
    // What was given back can be taken again, and then nothing.
    for _ in taken..33 {
        take(&desks[1], &[charge("3")]).await.1.unwrap();
    }
    for desk in &desks {
        let (_, answer) = take(desk, &[charge("1.0001")]).await;
        assert!(matches!(answer, Err(StoreError::OverBudget(_))));
    }
}
