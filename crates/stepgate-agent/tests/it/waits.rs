//! Turns whose process ended while they waited for a person.

use std::sync::Arc;

use async_trait::async_trait;
use stepgate_agent::flow::Request;
use stepgate_agent::model::Offer;
use stepgate_agent::pipeline;
use stepgate_agent::ports::{Agent, Tools, Waiting};
use stepgate_agent::turn::TurnId;
use stepgate_agent::waits::{self, Wait};
use stepgate_core::event::EventType;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::ports::Store;
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Answer, Person};
use stepgate_store::MemoryStore;
use tempfile::TempDir;
use tokio::sync::Barrier;

use crate::adversity::{AskAlways, waiting_of};
use crate::desk::{Desk, Ear, Said, asks, hello, principal, request, says, write};

/// A store that processes share one after the other.
struct House {
    store: MemoryStore,
    directory: Arc<TempDir>,
}

impl House {
    fn new() -> Self {
        Self { store: MemoryStore::new(), directory: Arc::new(TempDir::new().unwrap()) }
    }

    fn desk(&self, ticks: u64, said: impl IntoIterator<Item = Said>) -> Desk {
        let directory = Arc::clone(&self.directory);
        Desk::at(directory, Arc::new(self.store.clone()), ticks, said).with_policy(AskAlways)
    }

    async fn waits(&self) -> Vec<Wait> {
        let events = self.store.loose_events().await.unwrap();
        events.iter().filter_map(|linked| Wait::read(&linked.event)).collect()
    }

    async fn ends(&self) -> usize {
        let events = self.store.loose_events().await.unwrap();
        let is_end = EventType::TurnToolEnded;
        events.iter().filter(|linked| linked.event.event_type == is_end).count()
    }
}

/// A request whose process ends when a person is asked.
async fn asked_and_gone(desk: &Desk) -> Waiting {
    let ear = Ear::default();
    let waits = async {
        loop {
            let heard = ear.0.lock().unwrap().iter().find_map(waiting_of);
            let is_said = desk.agent.gate.store.loose_events().await.unwrap();
            let is_said = is_said.iter().any(|linked| Wait::read(&linked.event).is_some());
            match heard {
                Some(waiting) if is_said => return waiting,
                Some(_) | None => tokio::task::yield_now().await,
            }
        }
    };
    tokio::select! {
        done = desk.ask_heard("k1", hello("go"), &ear) => panic!("{done:?}"),
        waiting = waits => waiting,
    }
}

async fn grant(desk: &Desk, waiting: &Waiting) {
    let approver_id = PrincipalId::parse("operator").unwrap();
    let person = Person::Approves { approver_id, note: None };
    step::resume(&desk.agent.gate, waiting.approval_id.unwrap(), person).await.unwrap();
}

/// Whoever has looked at the turn waits until the others have as well.
struct Together {
    inner: Arc<dyn Tools>,
    all: Arc<Barrier>,
}

#[async_trait]
impl Tools for Together {
    fn offered(&self, principal_id: &PrincipalId) -> Vec<Offer> {
        self.inner.offered(principal_id)
    }

    async fn run(
        &self,
        principal_id: &PrincipalId,
        session_id: SessionId,
        proposal: Payload,
    ) -> Result<Answer, Fault> {
        self.inner.run(principal_id, session_id, proposal).await
    }

    async fn wait_until_finished(&self, run_id: RunId) -> Result<Answer, Fault> {
        self.all.wait().await;
        self.inner.wait_until_finished(run_id).await
    }
}

fn write_call(id: &str) -> Said {
    asks(&[(id, "WRITE_FILE", write("a.txt"))])
}

#[tokio::test]
async fn of_all_who_take_up_a_turn_one_goes_on_with_its_request() {
    let house = House::new();
    let waiting = asked_and_gone(&house.desk(0, [write_call("c1")])).await;
    let wait = Wait {
        turn_id: TurnId::of(&principal(), "k1"),
        tool_call_id: "c1".into(),
        run_id: waiting.run_id,
        number: 2,
        incarnation: None,
    };
    assert_eq!(house.waits().await, std::slice::from_ref(&wait));
    // The same request again, in a process that ends as well: nothing more is said.
    asked_and_gone(&house.desk(1_000_000, [])).await;
    assert_eq!(house.waits().await, std::slice::from_ref(&wait));
    assert_eq!(wait.clone().latest(&house.store).await, Ok(wait.clone()));
    assert_eq!(wait.is_over(&house.store).await, Ok(false));

    let desks = [house.desk(2_000_000, [says("done")]), house.desk(3_000_000, [says("done")])];
    grant(&desks[0], &waiting).await;
    let together = Arc::new(Barrier::new(2));
    let rivals = [0, 1].map(|rival: usize| {
        let inner = Arc::clone(&desks[rival].agent.tools);
        let tools = Arc::new(Together { inner, all: Arc::clone(&together) });
        Agent { tools, ..desks[rival].agent.clone() }
    });
    let (one, two) =
        tokio::join!(waits::take_up(&rivals[0], &wait), waits::take_up(&rivals[1], &wait));
    let won: Vec<Request> = [one.unwrap(), two.unwrap()].into_iter().flatten().collect();
    assert_eq!(won, [request("k1", hello("go"))]);
    assert_eq!((wait.is_over(&house.store).await, house.ends().await), (Ok(true), 1));
    let done = pipeline::run(&desks[0].agent, won[0].clone(), &Ear::default()).await.unwrap();
    assert_eq!(done.response.primary_output_text.as_deref(), Some("done"));
    assert!(desks[0].has("a.txt"));
    assert_eq!(house.ends().await, 1);
    // It went on long ago.
    assert_eq!(waits::take_up(&desks[1].agent, &wait).await, Ok(None));
}

#[tokio::test]
async fn what_is_no_wait_of_the_turn_is_not_taken_up() {
    let house = House::new();
    let desk = house.desk(0, [write_call("c1")]);
    let waiting = asked_and_gone(&desk).await;
    grant(&desk, &waiting).await;
    let wait = house.waits().await.remove(0);
    let others = [
        Wait { turn_id: TurnId::of(&principal(), "k2"), ..wait.clone() },
        Wait { tool_call_id: "c2".into(), ..wait.clone() },
        Wait { number: 1, ..wait.clone() },
        Wait { number: 3, ..wait.clone() },
    ];
    for other in others {
        assert_eq!(waits::take_up(&desk.agent, &other).await, Ok(None), "{other:?}");
    }
    assert_eq!(house.ends().await, 0);
    assert!(waits::take_up(&desk.agent, &wait).await.unwrap().is_some());
}
