//! Turns that were waiting when their process ended: once the wait is over, one of the running processes continues
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stepgate_agent::stop::Stop;
use stepgate_agent::waits::{self, Wait};
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::RunId;
use stepgate_core::json::Value;
use stepgate_core::ports::{EventQuery, Node, StoreError};
use tracing::warn;

use super::Conversations;
use crate::service::sleep_unless_set;

/// How often to poll for turns whose node is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Pause before a turn that cannot be continued now is retried.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Events per page.
const EVENTS_PAGE: usize = 1000;

/// Polls for such turns until the process ends. If the store is not shared, one look is enough: only the previous
/// process can have left any.
pub async fn keep_taking_up(conversations: Arc<Conversations>) {
    let mut leaving = conversations.service.leaving();
    let mut waits = Waits::default();
    loop {
        match waits.look(&conversations).await {
            Ok(is_shared) if !is_shared => return,
            Ok(_) => {}
            Err(error) => warn!("turns that wait are looked for later: {error}"),
        }
        if !sleep_unless_set(LOOK_AGAIN, &mut leaving).await {
            return;
        }
    }
}

/// The waiting turns, according to the events read so far.
#[derive(Default)]
struct Waits {
    seen: u64,
    /// INVARIANT: a living node or this process works on each of these turns.
    open: HashMap<RunId, Wait>,
}

impl Waits {
    /// Takes up turns whose node is gone. Whether the store is shared with other processes, which may leave more.
    async fn look(&mut self, conversations: &Arc<Conversations>) -> Result<bool, StoreError> {
        self.read_on(conversations).await?;
        let nodes = conversations.service.gate.store.nodes().await?;
        let left = self.open.extract_if(|_, wait| !is_cared_for(conversations, &nodes, wait));
        for (_, wait) in left {
            tokio::spawn(go_on(Arc::clone(conversations), wait));
        }
        Ok(!nodes.is_empty())
    }

    async fn read_on(&mut self, conversations: &Conversations) -> Result<(), StoreError> {
        let store = &conversations.service.gate.store;
        let is_first = self.seen == 0;
        let mut event_types = vec![EventType::TurnWaiting];
        // For the first read, each wait is looked up by itself: few turns wait, but every call ends.
        if !is_first {
            event_types.push(EventType::TurnToolEnded);
        }
        let mut query = EventQuery {
            after: self.seen,
            event_types,
            loose_only: true,
            limit: EVENTS_PAGE,
            ..EventQuery::default()
        };
        loop {
            let page = store.events(query.clone()).await?;
            let Some(last) = page.last() else { return Ok(()) };
            query.after = last.position;
            for placed in &page {
                match Wait::read(&placed.event) {
                    Some(wait) if is_first && wait.is_over(&**store).await? => {}
                    Some(wait) => drop(self.open.insert(wait.run_id, wait)),
                    None => drop(ended(&placed.event).and_then(|run_id| self.open.remove(&run_id))),
                }
            }
            self.seen = query.after;
        }
    }
}

/// Whether this process or another living node works on the turn.
fn is_cared_for(conversations: &Conversations, nodes: &[Node], wait: &Wait) -> bool {
    let mut others = nodes.iter().filter(|node| !node.is_this && node.lease_left.is_some());
    conversations.is_live(wait.turn_id)
        || others.any(|node| wait.incarnation == Some(node.incarnation))
}

/// The run whose end a turn has noted.
fn ended(event: &Event) -> Option<RunId> {
    event.payload.get("body")?.get("run_id").and_then(Value::as_str)?.parse().ok()
}

/// Waits as the turn would, and then continues it, unless another request or node does.
async fn go_on(conversations: Arc<Conversations>, wait: Wait) {
    let mut leaving = conversations.service.leaving();
    while let Err(stop) = take_up(&conversations, &wait).await {
        if *leaving.borrow() {
            return;
        }
        let turn_id = wait.turn_id;
        warn!(%turn_id, "turn {turn_id} cannot go on yet: {stop}");
        if !sleep_unless_set(TRY_AGAIN, &mut leaving).await {
            return;
        }
    }
}

async fn take_up(conversations: &Arc<Conversations>, wait: &Wait) -> Result<(), Stop> {
    conversations.agent.tools.wait_until_finished(wait.run_id).await?;
    let store = &conversations.service.gate.store;
    let (nodes, latest) = (store.nodes().await?, wait.clone().latest(&**store).await?);
    // The client has sent the request again meanwhile: that request continues the turn, or a later poll finds it.
    if is_cared_for(conversations, &nodes, &latest) {
        return Ok(());
    }
    let Some(request) = waits::take_up(&conversations.agent, wait).await? else { return Ok(()) };
    while conversations.begin(request.clone()).is_none() {
        tokio::time::sleep(TRY_AGAIN).await;
    }
    Ok(())
}
