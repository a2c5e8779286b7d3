//! Reminders and escalations: messages about approvals that are still open at a time.
//!
//! Each timer has a cursor of its own, which is a time: what was due up to it was sent. So a process that starts
//! again sends what became due while none ran, and sends nothing twice but what a crash interrupted.

use std::collections::BTreeSet;
use std::time::Duration;

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::{Store, StoreError};
use stepgate_core::time::Timestamp;

use super::message::Message;
use super::settings::ReceiverSettings;
use super::{cursor_of, ms};
use crate::service::each_open_approval;

/// When a message is due.
#[derive(Clone, Debug)]
enum Due {
    /// This long before the approval expires.
    BeforeExpiry(Duration),
    /// This long after the question was asked, which this receiver was told first.
    AfterQuestion(Duration, String),
}

/// One timer of a receiver.
#[derive(Clone, Debug)]
pub(super) struct Timer {
    due: Due,
    pub(super) cursor: String,
    /// What was due up to this time was sent, in milliseconds.
    reached: u64,
}

impl Timer {
    fn due_at(&self, approval: &Approval) -> Option<u64> {
        let expires_at = approval.expires_at()?;
        let at = match &self.due {
            Due::BeforeExpiry(before) => {
                let before = i64::try_from(ms(*before)).unwrap_or(i64::MAX);
                Timestamp::from_millisecond(expires_at.as_millisecond().saturating_sub(before))
            }
            Due::AfterQuestion(after, _) => approval.ts_requested.plus_ms(ms(*after)),
        };
        // Due when it is asked: the first message says it already. Due after the expiry: there is nothing to decide.
        let is_between = approval.ts_requested < at && at < expires_at;
        is_between.then(|| u64::try_from(at.as_millisecond()).unwrap_or(0))
    }

    /// The message, if the approval is still open.
    pub(super) fn message(
        &self,
        approval: &Approval,
        now: Timestamp,
        public_url: Option<&str>,
    ) -> Option<Message> {
        if approval.status != ApprovalStatus::Pending || approval.has_expired(now) {
            return None;
        }
        let id = approval.approval_id;
        let (kind, title, id) = match &self.due {
            Due::BeforeExpiry(_) => {
                let title = "Approval expires soon".to_owned();
                ("approval_reminder", title, format!("reminder-{id}"))
            }
            Due::AfterQuestion(_, from) => {
                let title = format!("Approval not decided since {from} was told");
                ("approval_escalated", title, format!("escalation-{from}-{id}"))
            }
        };
        Some(Message::of_open(approval, kind, title, id, now, public_url))
    }
}

/// The timers of a receiver, with the approvals that they wait for.
#[derive(Debug)]
pub(super) struct Timers {
    timers: Vec<Timer>,
    /// When, by which timer, which approval.
    due: BTreeSet<(u64, usize, ApprovalId)>,
}

impl Timers {
    /// The timers that the settings ask for; none has been taken yet.
    pub(super) fn of(receiver: &ReceiverSettings) -> Vec<Timer> {
        let base = cursor_of(&receiver.name);
        let timer = |due, name: String| Timer { due, cursor: format!("{base}/{name}"), reached: 0 };
        let reminder = receiver.remind_before.iter();
        let reminder = reminder.map(|it| timer(Due::BeforeExpiry(*it), "reminders".to_owned()));
        let escalations = receiver.escalations.iter().map(|it| {
            timer(Due::AfterQuestion(it.after, it.from.clone()), format!("escalations/{}", it.from))
        });
        reminder.chain(escalations).collect()
    }

    /// Starts timers that have reached these times, with the approvals that are open.
    pub(super) async fn start(
        timers: Vec<(Timer, u64)>,
        store: &dyn Store,
    ) -> Result<Self, StoreError> {
        let timers = timers.into_iter().map(|(timer, reached)| Timer { reached, ..timer });
        let mut started = Self { timers: timers.collect(), due: BTreeSet::new() };
        if !started.timers.is_empty() {
            each_open_approval(store, |approval| started.add(approval, false)).await?;
        }
        Ok(started)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// Waits for an approval that is open. One that is new was never told of, whatever the clock of the node that asked.
    pub(super) fn add(&mut self, approval: &Approval, is_new: bool) {
        if approval.status != ApprovalStatus::Pending {
            return;
        }
        for (index, timer) in self.timers.iter().enumerate() {
            if let Some(at) = timer.due_at(approval).filter(|at| is_new || *at > timer.reached) {
                self.due.insert((at, index, approval.approval_id));
            }
        }
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// The next one that is due by now.
    pub(super) fn next(&self, now: Timestamp) -> Option<(Timer, ApprovalId)> {
        let (at, index, id) = *self.due.first()?;
        let is_due = i64::try_from(at).is_ok_and(|at| at <= now.as_millisecond());
        let timer = self.timers.get(index).filter(|_| is_due)?;
        Some((timer.clone(), id))
    }

    /// Drops the next one, and returns what its timer has reached: less than the time of another one that is due
    /// at the same time.
    pub(super) fn done(&mut self) -> u64 {
        let Some((at, index, _)) = self.due.pop_first() else { return 0 };
        let has_more = self.due.iter().take_while(|next| next.0 == at).any(|next| next.1 == index);
        let reached = if has_more { at.saturating_sub(1) } else { at };
        if let Some(timer) = self.timers.get_mut(index) {
            timer.reached = timer.reached.max(reached);
        }
        reached
    }
}

#[cfg(test)]
mod tests;
