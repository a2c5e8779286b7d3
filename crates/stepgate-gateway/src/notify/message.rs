//! What a receiver is told: a view of an event or of an open approval, with a link.
//!
//! INVARIANT: a message has names, ids, times and the operator's own reasons. It has no argument, no result and no
//! text of an agent or a tool server but names, which are printable and short.

use serde::Serialize;
use stepgate_core::approval::Approval;
use stepgate_core::event::{Event, EventType, payload};
use stepgate_core::ids::{ApprovalId, RunId};
use stepgate_core::json::Value;
use stepgate_core::ports::{Store, StoreError};
use stepgate_core::stop::StopOrder;
use stepgate_core::time::Timestamp;

use crate::text::{printable, shortened};

/// Longest text of a field, in characters.
const FIELD_CHARS_MAX: usize = 300;

/// An event that a receiver can be told of.
#[derive(Clone, Copy, Debug)]
pub struct Notifiable {
    /// The event.
    pub event_type: EventType,
    /// Whether a receiver is told of it unless its configuration names events.
    pub is_default: bool,
    title: &'static str,
}

/// Every such event. One more is one more line here.
const NOTIFIABLE: &[Notifiable] = &[
    needs_person(EventType::ApprovalRequested, "Approval needed"),
    needs_person(EventType::ApprovalExpired, "Approval expired without a decision"),
    needs_person(EventType::RunNeedsPerson, "A run needs a person"),
    needs_person(EventType::PartNeedsPerson, "Stepgate needs a person"),
    needs_person(EventType::StopMade, "Calls were stopped"),
    on_request(EventType::ApprovalGranted, "Approved"),
    on_request(EventType::ApprovalDenied, "Denied"),
    on_request(EventType::ApprovalVoted, "One of several people approved"),
    on_request(EventType::GrantCreated, "Further calls were approved in advance"),
    on_request(EventType::GrantRevoked, "A grant was revoked"),
    on_request(EventType::StopLifted, "A stop was lifted"),
    on_request(EventType::RunResolved, "A call in doubt was settled"),
    on_request(EventType::ToolAccepted, "A tool was accepted"),
    on_request(EventType::TokenCreated, "A token was created"),
    on_request(EventType::TokenRevoked, "A token was revoked"),
];

const fn needs_person(event_type: EventType, title: &'static str) -> Notifiable {
    Notifiable { event_type, is_default: true, title }
}

const fn on_request(event_type: EventType, title: &'static str) -> Notifiable {
    Notifiable { event_type, is_default: false, title }
}

/// Every event that a receiver can be told of.
pub fn notifiable() -> impl Iterator<Item = Notifiable> {
    NOTIFIABLE.iter().copied()
}

/// The event of this name, if a receiver can be told of it.
pub fn notifiable_named(name: &str) -> Option<Notifiable> {
    notifiable().find(|it| it.event_type.as_str() == name)
}

/// One message. Its JSON is the body of a webhook.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    /// The same for each try: a receiver knows a repeated message by it.
    #[serde(skip)]
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) timestamp: Timestamp,
    pub(super) data: View,
}

/// What there is to know; what is unknown is left out.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct View {
    pub(super) title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// The part of the gateway that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<ApprovalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
}

impl View {
    /// The fields that are known, with their names for people. The link is apart.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let status = self.status.map(str::to_owned);
        let fields = [
            ("Asked by", self.principal_id.clone()),
            ("Tool", self.tool.clone()),
            ("About", self.subject.clone()),
            ("Reason", self.reason.clone()),
            ("Status", status),
            ("Expires", self.expires_at.map(|at| at.to_string())),
            ("Approval", self.approval_id.map(|it| it.to_string())),
            ("Run", self.run_id.map(|it| it.to_string())),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// As plain text: the fields, one in a line, and the link.
    pub(super) fn text(&self) -> String {
        let lines = self.fields().into_iter().map(|(name, value)| format!("{name}: {value}"));
        let link = self.url.iter().map(|url| format!("\n{url}"));
        lines.chain(link).collect::<Vec<_>>().join("\n")
    }

    fn with_approval(self, approval: &Approval, public_url: Option<&str>) -> Self {
        let approval_id = approval.approval_id;
        let context = approval.context.read().ok();
        Self {
            principal_id: context.map(|it| shown(it.principal_id.as_str())),
            tool: context.map(|it| shown(&it.action())).or(self.tool),
            reason: context.map(|it| shown(&it.reason)),
            status: Some(approval.status.as_str()),
            expires_at: context.map(|it| it.expires_at),
            approval_id: Some(approval_id),
            run_id: Some(approval.tool_run_id),
            url: public_url.map(|url| format!("{url}/approvals/{approval_id}")),
            title: self.title,
            subject: self.subject,
        }
    }
}

impl Message {
    /// The message of an event; none where the table does not have the event.
    pub(super) async fn of_event(
        store: &dyn Store,
        event: &Event,
        public_url: Option<&str>,
    ) -> Result<Option<Self>, StoreError> {
        let Some(known) = notifiable().find(|it| it.event_type == event.event_type) else {
            return Ok(None);
        };
        let text = |name: &str| event.payload.get(name).and_then(Value::as_str);
        let run_id = event.run_id.or_else(|| text("run_id")?.parse().ok());
        let mut view = View {
            title: known.title.to_owned(),
            principal_id: text("principal_id").map(shown),
            tool: text("tool").map(shown),
            subject: text("subject")
                .map(|subject| shown(without_directories(subject)))
                .or_else(|| stopped(event)),
            // One word of ours. The event's own reason may repeat what a tool server said.
            reason: text("kind").map(|kind| shown(&kind.replace('_', " "))),
            run_id,
            url: public_url.map(|url| format!("{url}/")),
            ..View::default()
        };
        if let Some(approval) = approval_of(store, event).await? {
            view = view.with_approval(&approval, public_url);
        } else if let Some(run_id) = run_id
            && let Some(known) = readable(store.recall(run_id).await)?
        {
            view.tool = known.run.tool_name.as_deref().map(shown);
            view.principal_id = Some(shown(known.run.arrival.principal_id.as_str()));
        }
        let (id, kind) = (event.event_id.to_string(), event.event_type.as_str());
        Ok(Some(Self { id, kind, timestamp: event.ts, data: view.titled() }))
    }

    /// The message about an approval that is still open: a reminder, or an escalation.
    pub(super) fn of_open(
        approval: &Approval,
        kind: &'static str,
        title: String,
        id: String,
        timestamp: Timestamp,
        public_url: Option<&str>,
    ) -> Self {
        let view = View { title, ..View::default() }.with_approval(approval, public_url);
        Self { id, kind, timestamp, data: view.titled() }
    }

    /// A message that says only that it arrived.
    pub(super) fn test(receiver: &str, public_url: Option<&str>) -> Self {
        let now = crate::world::now();
        let title = format!("Test: Stepgate reaches the receiver {receiver}");
        let url = public_url.map(|url| format!("{url}/"));
        let data = View { title, url, ..View::default() };
        Self { id: format!("test-{}", uuid::Uuid::now_v7()), kind: "test", timestamp: now, data }
    }
}

impl View {
    /// The title names the tool or the part: often it is all that a person sees.
    fn titled(mut self) -> Self {
        if let Some(about) = self.tool.as_ref().or(self.subject.as_ref()) {
            self.title = format!("{}: {about}", self.title);
        }
        self
    }
}

/// What a stop covers.
fn stopped(event: &Event) -> Option<String> {
    let is_stop = event.event_type == EventType::StopMade;
    let order: StopOrder = payload::read(&event.payload).ok().filter(|_| is_stop)?;
    Some(shown(&order.target.to_string()))
}

/// A directory's own name: where it is on this machine does not leave it.
fn without_directories(subject: &str) -> &str {
    match subject.starts_with('/') {
        true => subject.rsplit('/').find(|part| !part.is_empty()).unwrap_or(subject),
        false => subject,
    }
}

/// The approval that an event names, if it names one that can be read.
pub(super) async fn approval_of(
    store: &dyn Store,
    event: &Event,
) -> Result<Option<Approval>, StoreError> {
    let id = event.payload.get("approval_id").and_then(Value::as_str);
    let Some(id) = id.and_then(|id| id.parse().ok()) else { return Ok(None) };
    readable(store.approval(id).await)
}

/// A row that does not verify is left out; `verify` reports it.
pub(super) fn readable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::State(_)) => Ok(None),
        other => other,
    }
}

fn shown(text: &str) -> String {
    shortened(&printable(text), FIELD_CHARS_MAX)
}
