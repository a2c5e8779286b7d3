//! `GET /v1/events`: the history as a stream that a client can resume.
//!
//! Each stream reads the store at its own pace; the hub only wakes it. So a slow client delays no other.

mod object;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::{Stream, stream};
use schemars::JsonSchema;
use stepgate_core::event::EventType;
use stepgate_core::ids::{InvalidId, PrincipalId, RunId, SessionId};
use stepgate_core::ports::{EventQuery, PlacedEvent};
use stepgate_gateway::service::wait_until_set;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{App, Caller, Problem, Reader};
pub(super) use object::EventObject;
use object::requested_approval;

const PAGE: usize = 256;
/// Events that agents do not see.
const HIDDEN: [EventType; 3] =
    [EventType::PolicyDiffers, EventType::BudgetReserved, EventType::BudgetReleased];

/// Largest possible position: the largest integer of SQL.
const POSITION_MAX: u64 = i64::MAX.unsigned_abs();
/// Longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Which events to follow.
#[derive(Default, JsonSchema)]
pub(super) struct StreamParams {
    /// only events after this id; `latest` for those that come from now on
    after: Option<String>,
    /// only events of this type; it can be given several times
    pub(super) kind: Vec<EventType>,
    /// only events of this principal's sessions
    principal: Option<PrincipalId>,
    /// only events of this session
    session: Option<SessionId>,
    /// only events of this run
    run: Option<RunId>,
}

impl<S: Sync> FromRequestParts<S> for StreamParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(pairs) = pairs.map_err(|bad| Problem::malformed(bad.body_text()))?;
        let mut params = Self::default();
        for (name, value) in pairs {
            params.set(&name, &value).map_err(Problem::malformed)?;
        }
        Ok(params)
    }
}

impl StreamParams {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "after" => set_once(&mut self.after, name, value.to_owned()),
            "kind" => {
                let kind = EventType::parse(value);
                self.kind.push(kind.ok_or_else(|| format!("`kind`: there is no type `{value}`"))?);
                Ok(())
            }
            "principal" => {
                let principal = PrincipalId::parse(value).map_err(|bad| bad.to_string())?;
                set_once(&mut self.principal, name, principal)
            }
            "session" => set_once(&mut self.session, name, parsed(value)?),
            "run" => set_once(&mut self.run, name, parsed(value)?),
            unknown => Err(format!("there is no parameter `{unknown}`")),
        }
    }
}

fn parsed<T: FromStr<Err = InvalidId>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|bad: InvalidId| bad.to_string())
}

fn set_once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{name}` is given twice")),
    }
}

pub(super) async fn follow(
    Reader(app, caller): Reader,
    params: StreamParams,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let asked = match headers.get("last-event-id").map(|id| id.to_str()) {
        None => params.after.as_deref().unwrap_or("0"),
        Some(Ok(id)) => id,
        Some(Err(_)) => return Err(not_ours()),
    };
    let last_seen = match asked {
        "latest" => app.service.gate.store.last_position().await?,
        id => id.parse().ok().filter(|id| *id <= POSITION_MAX).ok_or_else(not_ours)?,
    };
    Ok(Following::begin(app, caller, params, last_seen)?.send())
}

fn not_ours() -> Problem {
    Problem::malformed("`Last-Event-ID` and `after` take the id of an event of this stream")
}

/// One client's stream, and its position.
pub(super) struct Following {
    app: Arc<App>,
    caller: Caller,
    params: StreamParams,
    pulse: watch::Receiver<u64>,
    leaving: watch::Receiver<bool>,
    /// Everything up to this position was read.
    after: u64,
    /// What was read and is not sent yet.
    read: VecDeque<PlacedEvent>,
    pub(super) heartbeat: Duration,
}

impl Following {
    /// A stream of the events that the parameters ask for, after this position.
    pub(super) fn begin(
        app: Arc<App>,
        caller: Caller,
        mut params: StreamParams,
        after: u64,
    ) -> Result<Self, Problem> {
        // A stream that stays empty for ever would look like one that waits.
        params.principal = caller.lists(params.principal).map_err(|_| Problem::forbidden())?;
        Ok(Self {
            pulse: app.service.hub.pulse(),
            leaving: app.service.leaving(),
            app,
            caller,
            params,
            after,
            read: VecDeque::new(),
            heartbeat: HEARTBEAT,
        })
    }

    pub(super) fn send(self) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        Sse::new(stream::unfold(self, |mut following| async move {
            let next = following.next().await?;
            Some((Ok(next), following))
        }))
    }

    /// The next event, or a heartbeat. None ends the stream: the process shuts down, the token is not valid any more,
    /// or the store does not answer. The client then reconnects with the last id.
    async fn next(&mut self) -> Option<Event> {
        loop {
            // Checked also for events that were read earlier: that may be long ago.
            if !self.caller.is_live(&self.app) {
                return None;
            }
            if let Some(placed) = self.read.pop_front() {
                return self.event(&placed).await;
            }
            // Marked as seen before reading: an event that comes in between wakes this task again.
            self.pulse.borrow_and_update();
            if self.read_on().await? {
                continue;
            }
            // Events from before the shutdown began are sent first.
            if *self.leaving.borrow() {
                return None;
            }
            tokio::select! {
                changed = self.pulse.changed() => changed.ok()?,
                () = wait_until_set(&mut self.leaving) => {}
                // Its id moves the client past events that the filter leaves out.
                () = sleep(self.heartbeat) => return Some(Event::default().id(self.after.to_string())),
            }
        }
    }

    /// Reads the next page. Returns whether there may be more to read or to send.
    async fn read_on(&mut self) -> Option<bool> {
        let query = EventQuery {
            after: self.after,
            principal_id: self.params.principal.clone(),
            event_types: self.params.kind.clone(),
            limit: PAGE,
            ..EventQuery::default()
        };
        let store = &self.app.service.gate.store;
        let looked_at = store.last_position().await.ok()?;
        if looked_at <= self.after {
            return Some(false);
        }
        let page = store.events(query).await.ok()?;
        // Without events, skip those that this caller does not see or want, so that they are not read again.
        let last = page.last().map_or(looked_at, |placed| placed.position);
        self.after = self.after.max(last);
        let is_more = !page.is_empty();
        self.read = page.into_iter().filter(|placed| self.is_wanted(&placed.event)).collect();
        Some(is_more)
    }

    fn is_wanted(&self, event: &stepgate_core::event::Event) -> bool {
        // They name policies and budgets, which are not for agents.
        let is_hidden = HIDDEN.contains(&event.event_type) && self.caller.sees().is_some();
        !is_hidden
            && self.params.session.is_none_or(|session| session == event.session_id)
            && self.params.run.is_none_or(|run| Some(run) == event.run_id)
    }

    async fn event(&self, placed: &PlacedEvent) -> Option<Event> {
        let event = &placed.event;
        let approval = match requested_approval(event) {
            Some(id) => self.app.service.gate.store.approval(id).await.ok()?,
            None => None,
        };
        let object = EventObject::of(&self.app, &self.caller, event, approval.as_ref());
        let data = serde_json::to_string(&object).unwrap_or_default();
        let id = placed.position.to_string();
        Some(Event::default().id(id).event(event.event_type.as_str()).data(data))
    }
}
