//! What every engine lists: runs of a principal, approvals, events.

use std::sync::Arc;

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::{ApprovalId, IdPrefix, PrincipalId, SessionId};
use stepgate_core::ports::{
    ApprovalQuery, EventQuery, PlacedEvent, RunQuery, RunText, SessionQuery, StoreError, TurnQuery,
};
use stepgate_core::run::Status;
use stepgate_core::session::SessionKind;
use stepgate_store::{Faults, FaultyStore, MemoryStore, StopAt};
use uuid::Uuid;

use crate::conformance::over_every_engine;
use crate::desk::{Desk, Step, agent, at, operator};

over_every_engine! {
    runs_of_a_principal_are_those_of_its_sessions,
    runs_are_found_by_time_and_by_text,
    sessions_are_listed_newest_first_and_filtered,
    turns_are_listed_newest_first_and_filtered,
    approvals_are_listed_in_either_order_and_filtered,
    events_are_listed_oldest_first_and_filtered,
    events_are_followed_page_by_page,
    an_event_is_found_by_its_id_and_no_second_one_takes_it,
}

/// The whole id, and a beginning that no id has.
fn prefixes(id: impl ToString) -> [Option<IdPrefix>; 2] {
    let prefix = |text: &str| Some(IdPrefix::parse(text).unwrap());
    [prefix(&id.to_string()), prefix("ffffffff")]
}

fn other() -> PrincipalId {
    PrincipalId::parse("agent-2").unwrap()
}

async fn session_of(desk: &Desk, principal_id: PrincipalId, kind: SessionKind) -> SessionId {
    let session_id = SessionId::new(Uuid::now_v7());
    desk.open_session(session_id, principal_id, kind).await.unwrap().session_id
}

fn step_in(session_id: SessionId, principal_id: &PrincipalId) -> Step {
    let mut step = Step::new(session_id, 1);
    step.run.arrival.principal_id = principal_id.clone();
    step
}

async fn runs_of_a_principal_are_those_of_its_sessions(desk: Desk) {
    let second = session_of(&desk, agent(), SessionKind::Named).await;
    let others = session_of(&desk, other(), SessionKind::Default).await;
    // In turn, so that neither session nor principal has its runs side by side.
    let mut ids = Vec::new();
    for number in 0..9_u32 {
        let (session_id, principal_id) = match number % 3 {
            0 => (desk.session, agent()),
            1 => (others, other()),
            _ => (second, agent()),
        };
        let mut step = step_in(session_id, &principal_id);
        ids.push(step.id());
        match number {
            0..6 => desk.store.commit(step.refused_at_once()).await.unwrap(),
            _ => desk.store.commit(step.opening()).await.unwrap(),
        }
    }
    let theirs = RunQuery { principal_id: Some(agent()), limit: 10, ..RunQuery::default() };
    let nobody = PrincipalId::parse("nobody").unwrap();
    let rows = [
        (theirs.clone(), vec![8, 6, 5, 3, 2, 0]),
        (RunQuery { limit: 3, ..theirs.clone() }, vec![8, 6, 5]),
        (RunQuery { limit: 0, ..theirs.clone() }, vec![]),
        (RunQuery { before: Some(ids[5]), ..theirs.clone() }, vec![3, 2, 0]),
        (RunQuery { before: Some(ids[4]), limit: 2, ..theirs.clone() }, vec![3, 2]),
        (RunQuery { session_id: Some(second), ..theirs.clone() }, vec![8, 5, 2]),
        (RunQuery { session_id: Some(others), ..theirs.clone() }, vec![]),
        (RunQuery { status: Some(Status::Error), ..theirs.clone() }, vec![5, 3, 2, 0]),
        (RunQuery { status: Some(Status::Started), ..theirs.clone() }, vec![8, 6]),
        (RunQuery { status: Some(Status::Started), limit: 1, ..theirs.clone() }, vec![8]),
        (RunQuery { tool_name: Some("READ_FILE".into()), ..theirs.clone() }, vec![]),
        (RunQuery { principal_id: Some(other()), ..theirs.clone() }, vec![7, 4, 1]),
        (RunQuery { principal_id: Some(operator()), ..theirs.clone() }, vec![]),
        (RunQuery { principal_id: Some(nobody), ..theirs }, vec![]),
    ];
    for (query, expected) in rows {
        let runs = desk.store.runs(query.clone()).await.unwrap();
        let listed: Vec<_> = runs.iter().map(|run| run.arrival.run_id).collect();
        let expected: Vec<_> = expected.into_iter().map(|number: usize| ids[number]).collect();
        assert_eq!(listed, expected, "{query:?}");
    }
}

/// A run of a principal that waits, and its question.
async fn runs_are_found_by_time_and_by_text(desk: Desk) {
    let others = session_of(&desk, other(), SessionKind::Default).await;
    let hour = 60 * 60 * 1000;
    // The fourth was written after the fifth, which came a moment later.
    let came = [0, hour, 2 * hour, 3 * hour + 5, 3 * hour + 3, 5 * hour];
    let tools =
        ["sonos.set_volume", "sonos.get_volume", "Notes.add", "notes.add", "x", "READ_FILE"];
    let mut ids = Vec::new();
    for (number, (ms, tool)) in came.into_iter().zip(tools).enumerate() {
        let (session_id, principal_id) = match number % 2 {
            0 => (desk.session, agent()),
            _ => (others, other()),
        };
        let mut step = Step::came(ms, session_id);
        step.run.arrival.principal_id = principal_id;
        step.run.tool_name = (tool != "x").then(|| tool.to_owned());
        ids.push(step.id());
        desk.store.commit(step.refused_at_once()).await.unwrap();
    }
    let all = RunQuery { limit: 10, ..RunQuery::default() };
    let time = |ms: u32| Some(at(i64::from(ms)));
    let text = |text: &str| Some(RunText::of(text));
    let third = ids[2].to_string();
    let rows = [
        (RunQuery { since: time(0), ..all.clone() }, vec![5, 4, 3, 2, 1, 0]),
        (RunQuery { since: time(1), ..all.clone() }, vec![5, 4, 3, 2, 1]),
        (RunQuery { until: time(hour), ..all.clone() }, vec![0]),
        (RunQuery { until: time(hour + 1), ..all.clone() }, vec![1, 0]),
        (RunQuery { since: time(hour), until: time(3 * hour + 4), ..all.clone() }, vec![4, 2, 1]),
        (RunQuery { since: time(3 * hour + 4), ..all.clone() }, vec![5, 3]),
        (RunQuery { since: time(6 * hour), ..all.clone() }, vec![]),
        (RunQuery { since: time(hour), limit: 2, ..all.clone() }, vec![5, 4]),
        (RunQuery { since: time(hour), before: Some(ids[4]), ..all.clone() }, vec![3, 2, 1]),
        (RunQuery { since: time(1), principal_id: Some(agent()), ..all.clone() }, vec![4, 2]),
        (RunQuery { until: time(hour), session_id: Some(others), ..all.clone() }, vec![]),
        (RunQuery { text: text("volume"), ..all.clone() }, vec![1, 0]),
        (RunQuery { text: text("NOTES"), ..all.clone() }, vec![3, 2]),
        (RunQuery { text: text("notes"), limit: 1, ..all.clone() }, vec![3]),
        (RunQuery { text: text("notes"), before: Some(ids[3]), ..all.clone() }, vec![2]),
        (RunQuery { text: text("notes"), principal_id: Some(agent()), ..all.clone() }, vec![2]),
        (RunQuery { text: text("notes"), session_id: Some(others), ..all.clone() }, vec![3]),
        (RunQuery { text: text("notes"), since: time(2 * hour + 1), ..all.clone() }, vec![3]),
        (
            RunQuery { text: text("o"), status: Some(Status::Error), ..all.clone() },
            vec![3, 2, 1, 0],
        ),
        (RunQuery { text: text("o"), status: Some(Status::Ok), ..all.clone() }, vec![]),
        (RunQuery { text: text("%"), ..all.clone() }, vec![]),
        (RunQuery { text: text("no such"), ..all.clone() }, vec![]),
        (RunQuery { text: text(&third), ..all.clone() }, vec![2]),
        (RunQuery { text: text(&third.to_uppercase()), ..all.clone() }, vec![2]),
        (RunQuery { text: text(&third), principal_id: Some(other()), ..all.clone() }, vec![]),
        (RunQuery { text: text(&third), before: Some(ids[2]), ..all.clone() }, vec![]),
        (RunQuery { tool_name: Some("notes.add".into()), ..all.clone() }, vec![3]),
        (RunQuery { tool_name: Some("n".repeat(500)), ..all.clone() }, vec![]),
        (RunQuery { status: Some(Status::Error), ..all }, vec![5, 4, 3, 2, 1, 0]),
    ];
    for (query, expected) in rows {
        let runs = desk.store.runs(query.clone()).await.unwrap();
        let listed: Vec<_> = runs.iter().map(|run| run.arrival.run_id).collect();
        let expected: Vec<_> = expected.into_iter().map(|number: usize| ids[number]).collect();
        assert_eq!(listed, expected, "{query:?}");
    }
    // A name that no index takes is kept, and found by its whole length.
    let mut long = desk.step();
    long.run.tool_name = Some("long".repeat(2_000));
    desk.store.commit(long.refused_at_once()).await.unwrap();
    let query = RunQuery { tool_name: long.run.tool_name.clone(), limit: 9, ..RunQuery::default() };
    let found = desk.store.runs(query).await.unwrap();
    assert_eq!(found.first().map(|run| run.arrival.run_id), Some(long.id()));
}

async fn sessions_are_listed_newest_first_and_filtered(desk: Desk) {
    let second = session_of(&desk, agent(), SessionKind::Named).await;
    let others = session_of(&desk, other(), SessionKind::Default).await;
    let (first, system) = (desk.session, desk.system);
    let all = SessionQuery { limit: 10, ..SessionQuery::default() };
    let theirs = SessionQuery { principal_id: Some(agent()), ..all.clone() };
    let nobody = Some(SessionId::new(Uuid::nil()));
    let [id_prefix, none] = prefixes(second);
    let found = SessionQuery { id_prefix, ..all.clone() };
    let rows = [
        (found.clone(), vec![second]),
        (SessionQuery { principal_id: Some(agent()), ..found.clone() }, vec![second]),
        (SessionQuery { principal_id: Some(other()), ..found.clone() }, vec![]),
        (SessionQuery { before: Some(second), ..found }, vec![]),
        (SessionQuery { id_prefix: none, ..all.clone() }, vec![]),
        (all.clone(), vec![others, second, first, system]),
        (SessionQuery { limit: 2, ..all.clone() }, vec![others, second]),
        (SessionQuery { limit: 0, ..all.clone() }, vec![]),
        (SessionQuery { before: Some(second), ..all.clone() }, vec![first, system]),
        (SessionQuery { before: nobody, ..all.clone() }, vec![]),
        (theirs.clone(), vec![second, first]),
        (SessionQuery { before: Some(others), limit: 1, ..theirs.clone() }, vec![second]),
        (SessionQuery { before: Some(second), ..theirs }, vec![first]),
        (SessionQuery { principal_id: Some(other()), ..all.clone() }, vec![others]),
        (SessionQuery { principal_id: Some(operator()), ..all }, vec![system]),
    ];
    for (query, expected) in rows {
        let listed = desk.store.session_page(query.clone()).await.unwrap();
        let ids: Vec<_> = listed.iter().map(|session| session.session_id).collect();
        assert_eq!(ids, expected, "{query:?}");
    }
}

async fn turns_are_listed_newest_first_and_filtered(desk: Desk) {
    let others = session_of(&desk, other(), SessionKind::Default).await;
    let mut opened = Vec::new();
    for number in 0..4 {
        let session_id = if number == 1 { others } else { desk.session };
        for event_type in [EventType::TurnOpened, EventType::TurnAnswered] {
            let event = Event { event_type, session_id, ..desk.loose_event() };
            desk.store.append_event(event.clone()).await.unwrap();
            if event_type == EventType::TurnOpened {
                opened.push(event);
            }
        }
    }
    let id = |number: usize| Some(opened[number].event_id);
    let all = TurnQuery { limit: 10, ..TurnQuery::default() };
    let theirs = TurnQuery { principal_id: Some(agent()), ..all.clone() };
    let here = TurnQuery { session_id: Some(desk.session), ..all.clone() };
    let [id_prefix, none] = prefixes(opened[2].event_id);
    let found = TurnQuery { id_prefix, ..all.clone() };
    let rows = [
        (found.clone(), vec![2]),
        (TurnQuery { session_id: Some(desk.session), ..found.clone() }, vec![2]),
        (TurnQuery { session_id: Some(others), ..found.clone() }, vec![]),
        (TurnQuery { principal_id: Some(agent()), ..found.clone() }, vec![2]),
        (TurnQuery { principal_id: Some(other()), ..found.clone() }, vec![]),
        (TurnQuery { before: id(2), ..found }, vec![]),
        (TurnQuery { id_prefix: none, ..all.clone() }, vec![]),
        (all.clone(), vec![3, 2, 1, 0]),
        (TurnQuery { limit: 3, ..all.clone() }, vec![3, 2, 1]),
        (TurnQuery { before: id(2), ..all.clone() }, vec![1, 0]),
        (theirs.clone(), vec![3, 2, 0]),
        (TurnQuery { before: id(3), limit: 1, ..theirs.clone() }, vec![2]),
        (here.clone(), vec![3, 2, 0]),
        (TurnQuery { before: id(2), ..here.clone() }, vec![0]),
        (TurnQuery { principal_id: Some(other()), ..here }, vec![]),
        (TurnQuery { session_id: Some(others), ..all.clone() }, vec![1]),
        (TurnQuery { principal_id: Some(operator()), ..all }, vec![]),
    ];
    for (query, expected) in rows {
        let listed = desk.store.opened_turns(query.clone()).await.unwrap();
        let expected: Vec<&Event> = expected.into_iter().map(|at: usize| &opened[at]).collect();
        assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "{query:?}");
    }
}

async fn asked(desk: &Desk, session_id: SessionId, principal_id: &PrincipalId) -> (Step, Approval) {
    let mut step = step_in(session_id, principal_id);
    let (pausing, asked) = step.pausing();
    desk.store.commit(pausing).await.unwrap();
    (step, asked)
}

async fn approvals_are_listed_in_either_order_and_filtered(desk: Desk) {
    let others = session_of(&desk, other(), SessionKind::Default).await;
    let (mut granted, question) = asked(&desk, desk.session, &agent()).await;
    let (_, theirs) = asked(&desk, others, &other()).await;
    let (_, ours) = asked(&desk, desk.session, &agent()).await;
    desk.finished().await;
    let (granting, decided) = granted.granting(&question);
    desk.store.commit(granting).await.unwrap();

    let all = ApprovalQuery { limit: 10, ..ApprovalQuery::default() };
    let of_agent = ApprovalQuery { principal_id: Some(agent()), ..all.clone() };
    let of_other = ApprovalQuery { principal_id: Some(other()), ..all.clone() };
    let pending = Some(ApprovalStatus::Pending);
    let approved = Some(ApprovalStatus::Approved);
    let (ours, theirs) = (&ours, &theirs);
    let nobody = ApprovalId::new(Uuid::now_v7());
    assert_eq!(desk.store.open_approvals(None).await, Ok(2));
    assert_eq!(desk.store.open_approvals(Some(&agent())).await, Ok(1));
    assert_eq!(desk.store.open_approvals(Some(&other())).await, Ok(1));
    let [id_prefix, none] = prefixes(theirs.approval_id);
    let found = ApprovalQuery { id_prefix, ..all.clone() };
    let rows = [
        (found.clone(), vec![theirs]),
        (ApprovalQuery { principal_id: Some(other()), ..found.clone() }, vec![theirs]),
        (ApprovalQuery { principal_id: Some(agent()), ..found.clone() }, vec![]),
        (ApprovalQuery { status: approved, ..found.clone() }, vec![]),
        (ApprovalQuery { before: Some(theirs.approval_id), ..found.clone() }, vec![]),
        (ApprovalQuery { after: Some(theirs.approval_id), ..found }, vec![]),
        (ApprovalQuery { id_prefix: none, ..all.clone() }, vec![]),
        (all.clone(), vec![ours, theirs, &decided]),
        (ApprovalQuery { limit: 2, ..all.clone() }, vec![ours, theirs]),
        (ApprovalQuery { limit: 0, ..all.clone() }, vec![]),
        (ApprovalQuery { before: Some(ours.approval_id), ..all.clone() }, vec![theirs, &decided]),
        (ApprovalQuery { before: Some(theirs.approval_id), ..of_agent.clone() }, vec![&decided]),
        (
            ApprovalQuery { before: Some(decided.approval_id), status: pending, ..all.clone() },
            vec![],
        ),
        (ApprovalQuery { before: Some(nobody), ..all.clone() }, vec![]),
        (ApprovalQuery { after: Some(nobody), ..all.clone() }, vec![]),
        (ApprovalQuery { after: Some(decided.approval_id), ..all.clone() }, vec![ours, theirs]),
        (ApprovalQuery { oldest_first: true, ..all.clone() }, vec![&decided, theirs, ours]),
        (
            ApprovalQuery { oldest_first: true, status: pending, limit: 1, ..all.clone() },
            vec![theirs],
        ),
        (
            ApprovalQuery { oldest_first: true, after: Some(theirs.approval_id), ..all.clone() },
            vec![ours],
        ),
        (ApprovalQuery { status: pending, ..all.clone() }, vec![ours, theirs]),
        (ApprovalQuery { status: pending, limit: 1, ..all.clone() }, vec![ours]),
        (ApprovalQuery { status: approved, ..all.clone() }, vec![&decided]),
        (ApprovalQuery { status: Some(ApprovalStatus::Expired), ..all.clone() }, vec![]),
        (of_agent.clone(), vec![ours, &decided]),
        (ApprovalQuery { status: pending, ..of_agent.clone() }, vec![ours]),
        (ApprovalQuery { limit: 1, ..of_agent }, vec![ours]),
        (of_other.clone(), vec![theirs]),
        (ApprovalQuery { status: approved, ..of_other }, vec![]),
        // The operator decides; it waits for nothing.
        (ApprovalQuery { principal_id: Some(operator()), ..all }, vec![]),
    ];
    for (query, expected) in rows {
        let listed = desk.store.approvals(query.clone()).await.unwrap();
        assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "{query:?}");
    }
}

fn placed(events: &[(u64, Event)], positions: &[u64]) -> Vec<PlacedEvent> {
    let placed = |position: &u64| {
        let (_, event) = events.iter().find(|(known, _)| known == position).unwrap();
        PlacedEvent { position: *position, event: event.clone() }
    };
    positions.iter().map(placed).collect()
}

async fn an_event_is_found_by_its_id_and_no_second_one_takes_it(desk: Desk) {
    let mut step = desk.finished().await;
    let first = Event { event_type: EventType::TurnOpened, ..desk.loose_event() };
    assert_eq!(desk.store.event(first.event_id).await, Ok(None));
    desk.store.append_event(first.clone()).await.unwrap();
    let second = Event { event_type: EventType::TurnFailed, ..first.clone() };
    let answer = desk.store.append_event(second).await;
    assert!(matches!(answer, Err(StoreError::State(_))), "{answer:?}");
    assert_eq!(desk.store.event(first.event_id).await, Ok(Some(first.clone())));
    let of_a_run = step.event(EventType::ToolReplayed);
    desk.store.append_event(of_a_run.clone()).await.unwrap();
    assert_eq!(desk.store.event(of_a_run.event_id).await, Ok(Some(of_a_run.clone())));
    let asked = [of_a_run.event_id, desk.loose_event().event_id, first.event_id];
    let mut found = desk.store.events_by_id(&asked).await.unwrap();
    found.sort_by_key(|event| event.event_type != EventType::TurnOpened);
    assert_eq!(found, [first, of_a_run]);
}

async fn events_are_listed_oldest_first_and_filtered(desk: Desk) {
    // The openings of the sessions have the positions 1 to 3.
    let others = session_of(&desk, other(), SessionKind::Default).await;
    let mut step = desk.finished().await;
    let mut elsewhere = step_in(others, &other());
    desk.store.commit(elsewhere.refused_at_once()).await.unwrap();
    let loose = desk.loose_event();
    desk.store.append_event(loose.clone()).await.unwrap();
    // About the agent's run, in the system's session: the operator's to see.
    let late = Event { session_id: desk.system, ..step.event(EventType::LateResult) };
    desk.store.append_event(late.clone()).await.unwrap();
    let differs = Event { session_id: desk.system, ..step.event(EventType::PolicyDiffers) };
    desk.store.append_event(differs.clone()).await.unwrap();

    let own = [&step.events[0], &step.events[1], &elsewhere.events[0], &loose, &late, &differs];
    let events: Vec<_> = (4..).zip(own.into_iter().cloned()).collect();
    let all = EventQuery { after: 3, limit: 10, ..EventQuery::default() };
    let called = vec![EventType::ToolCalled];
    let ended = vec![EventType::ToolFailed, EventType::ToolSucceeded];
    let differing = EventQuery { event_types: vec![EventType::PolicyDiffers], ..all.clone() };
    let of = |principal_id| EventQuery { principal_id: Some(principal_id), ..all.clone() };
    let rows: [(EventQuery, &[u64]); 19] = [
        (all.clone(), &[4, 5, 6, 7, 8, 9]),
        (EventQuery { after: 6, ..all.clone() }, &[7, 8, 9]),
        (EventQuery { after: 9, ..all.clone() }, &[]),
        (EventQuery { after: u64::MAX, ..all.clone() }, &[]),
        (EventQuery { limit: 2, ..all.clone() }, &[4, 5]),
        (EventQuery { limit: 0, ..all.clone() }, &[]),
        (EventQuery { event_types: called, ..all.clone() }, &[4]),
        (EventQuery { event_types: ended.clone(), ..all.clone() }, &[5, 6]),
        (EventQuery { event_types: ended, ..of(other()) }, &[6]),
        (EventQuery { back_from: Some(u64::MAX), ..all.clone() }, &[9, 8, 7, 6, 5, 4]),
        (EventQuery { back_from: Some(7), limit: 2, ..all.clone() }, &[6, 5]),
        (EventQuery { back_from: Some(4), ..all.clone() }, &[]),
        (differing.clone(), &[9]),
        (EventQuery { back_from: Some(9), ..differing.clone() }, &[]),
        (EventQuery { principal_id: Some(agent()), ..differing }, &[]),
        (EventQuery { loose_only: true, ..all.clone() }, &[7]),
        (EventQuery { loose_only: true, ..of(agent()) }, &[]),
        (of(agent()), &[4, 5]),
        (of(operator()), &[7, 8, 9]),
    ];
    for (query, positions) in rows {
        let listed = desk.store.events(query.clone()).await.unwrap();
        assert_eq!(listed, placed(&events, positions), "{query:?}");
    }
    let first = desk.store.events(EventQuery { limit: 3, ..EventQuery::default() }).await.unwrap();
    let openings: Vec<_> = first.iter().map(|p| (p.position, p.event.event_type)).collect();
    assert_eq!(openings, [1, 2, 3].map(|position| (position, EventType::SessionOpened)));
}

async fn events_are_followed_page_by_page(desk: Desk) {
    for _ in 0..5 {
        desk.finished().await;
    }
    let whole = EventQuery { limit: 100, ..EventQuery::default() };
    let whole = desk.store.events(whole).await.unwrap();
    assert_eq!(whole.len(), 12);
    assert_eq!(desk.store.last_position().await, Ok(12));
    let loose = whole.iter().rfind(|placed| placed.event.run_id.is_none()).unwrap().position;
    assert_eq!(desk.store.last_loose_position().await, Ok(loose));
    let mut followed: Vec<PlacedEvent> = Vec::new();
    loop {
        let after = followed.last().map_or(0, |placed| placed.position);
        let page = EventQuery { after, limit: 5, ..EventQuery::default() };
        let page = desk.store.events(page).await.unwrap();
        if page.is_empty() {
            break;
        }
        followed.extend(page);
    }
    assert_eq!(followed, whole);
}

#[tokio::test]
async fn a_store_that_crashed_lists_nothing() {
    let faults = Faults::new(StopAt::Never);
    let store = FaultyStore::new(MemoryStore::new(), Arc::clone(&faults));
    let desk = Desk::open(Arc::new(store)).await;
    desk.store.commit(desk.step().pausing().0).await.unwrap();
    let approvals = ApprovalQuery { limit: 9, ..ApprovalQuery::default() };
    let events = EventQuery { limit: 9, ..EventQuery::default() };
    assert_eq!(desk.store.approvals(approvals.clone()).await.unwrap().len(), 1);
    assert_eq!(desk.store.events(events.clone()).await.unwrap().len(), 3);
    faults.crash();
    let crashed = StoreError::Broken("crashed".into());
    assert_eq!(desk.store.approvals(approvals).await, Err(crashed.clone()));
    assert_eq!(desk.store.events(events).await, Err(crashed));
}
