use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stepgate_core::approvers::Groups;
use stepgate_core::consent_cache::Consents;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Gate, Parked};
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::limits::Limits;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{NoToolServers, World};
use stepgate_core::time::Timestamp;
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::MemoryStore;

use super::{ENTRIES_AT_ONCE, append, load};
use crate::invoke::InvokeError;
use crate::stop::Stop;
use crate::turn::{Answered, Entry, Opened, Turn, TurnId};

struct RealEnough;

#[async_trait]
impl World for RealEnough {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(1_790_000_000_000)
    }

    fn fresh_uuid(&self) -> uuid::Uuid {
        uuid::Uuid::now_v7()
    }

    async fn pause(&self, _: Duration) {}
}

async fn desk() -> (Gate, SessionId, Turn) {
    let directory = tempfile::TempDir::new().unwrap();
    let sandbox = Sandbox::open(directory.path(), "sandbox".into(), SandboxLimits::default());
    let gate = Gate {
        store: Arc::new(MemoryStore::new()),
        executor: Arc::new(sandbox.unwrap()),
        tools: Arc::new(NoToolServers),
        policy: Arc::new(BuiltInRule),
        world: Arc::new(RealEnough),
        limits: Limits::default(),
        extensions: Extensions::default(),
        parked: Parked::default(),
        doubts: Doubts::default(),
        groups: Groups::default(),
        consents: Consents::default(),
        facts: FactSources::default(),
    };
    let agent = PrincipalId::parse("agent").unwrap();
    let session_id = gate.default_session(&agent).await.unwrap().session_id;
    let turn = Turn::provisional(TurnId::of(&agent, "k"));
    (gate, session_id, turn)
}

fn opened() -> Entry {
    Entry::Opened(Box::new(Opened {
        correlation_id: "k".into(),
        request_digest: stepgate_core::digest::Digest::ZERO,
        previous: None,
        mode: "general".into(),
        envelope: Default::default(),
    }))
}

fn answered(text: &str) -> Entry {
    Entry::Answered(Answered {
        model: "m".into(),
        text: Some(text.into()),
        calls: Vec::new(),
        usage: None,
        cut_off: None,
    })
}

#[tokio::test]
async fn what_was_written_is_read_back_in_its_order() {
    let (gate, session_id, mut turn) = desk().await;
    assert_eq!(load(&gate, turn.id).await, Ok(None));
    let failed = Entry::Failed(InvokeError::new("E", "wrong").with("field", "f").into());
    for entry in [opened(), answered("one"), failed] {
        append(&gate, session_id, &mut turn, entry).await.unwrap();
    }
    assert_eq!(load(&gate, turn.id).await, Ok(Some((session_id, turn))));
}

#[tokio::test]
async fn a_turn_with_as_many_events_as_a_query_reads_and_one_more_is_read_whole() {
    let (gate, session_id, mut turn) = desk().await;
    append(&gate, session_id, &mut turn, opened()).await.unwrap();
    for number in 1..=ENTRIES_AT_ONCE {
        append(&gate, session_id, &mut turn, answered(&number.to_string())).await.unwrap();
        if number + 2 > ENTRIES_AT_ONCE {
            assert_eq!(load(&gate, turn.id).await, Ok(Some((session_id, turn.clone()))));
        }
    }
}

/// The answer to a write may be lost: a task that writes the same entry again finds it written.
#[tokio::test]
async fn the_same_entry_is_written_once_and_another_in_its_place_is_refused() {
    let (gate, session_id, turn) = desk().await;
    let (mut first, mut second, mut third) = (turn.clone(), turn.clone(), turn);
    append(&gate, session_id, &mut first, opened()).await.unwrap();
    append(&gate, session_id, &mut second, opened()).await.unwrap();
    append(&gate, session_id, &mut third, opened()).await.unwrap();
    append(&gate, session_id, &mut first, answered("one")).await.unwrap();
    append(&gate, session_id, &mut second, answered("one")).await.unwrap();
    let refused = append(&gate, session_id, &mut third, answered("two")).await;
    let Err(Stop::Invoke(result)) = refused else { panic!("{refused:?}") };
    assert_eq!(result.errors[0].code, "TURN_IN_PROGRESS");
    assert_eq!((first.clone(), third.entries.len()), (second, 1));
    assert_eq!(load(&gate, first.id).await, Ok(Some((session_id, first))));
}

#[tokio::test]
async fn an_event_of_another_kind_is_no_turn() {
    let (gate, session_id, mut turn) = desk().await;
    append(&gate, session_id, &mut turn, answered("one")).await.unwrap();
    assert_eq!(load(&gate, turn.id).await, Ok(None));
}
