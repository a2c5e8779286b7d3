//! Notifications: people are told that something needs them, at the receivers that the configuration names.
//!
//! Start here. Each receiver has a task of its own (`delivery`), which follows the events from a durable cursor
//! and sends each message at least once (`channel`). A message (`message`) is a view with a link: it is never the
//! place of a decision, and it has no arguments. Reminders and escalations follow the clock (`timers`).

mod channel;
mod delivery;
mod mail;
mod message;
mod post;
mod settings;
mod timers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::follow::Trouble;
use crate::follow::counts::{self, Counts};
use crate::service::Service;

pub use mail::{Encryption, MailSettings};
pub use message::{Notifiable, notifiable, notifiable_named};
pub use settings::{ChannelSettings, Escalation, NotifySettings, ReceiverSettings};

use channel::Channel;
use delivery::Delivery;
use message::Message;

/// Starts a task for each receiver; they end when the process shuts down. The error names the receiver.
pub fn begin(settings: NotifySettings, service: &Arc<Service>) -> Result<(), String> {
    let deliveries: Vec<_> = settings
        .receivers
        .into_iter()
        .map(|receiver| Delivery::new(receiver, settings.public_url.clone(), service))
        .collect::<Result<_, String>>()?;
    for delivery in deliveries {
        tokio::spawn(delivery.keep_telling());
    }
    Ok(())
}

/// Checks the settings of every receiver, without its secrets. The error names the receiver.
pub fn check(settings: &NotifySettings) -> Result<(), String> {
    settings.receivers.iter().try_for_each(|receiver| Channel::new(receiver).map(drop))
}

/// Sends a test message once. The error says why it did not arrive.
pub async fn test(receiver: &ReceiverSettings, public_url: Option<&str>) -> Result<(), String> {
    let channel = Channel::new(receiver)?;
    let message = Message::test(&receiver.name, public_url);
    channel.send(&message).await.map_err(Trouble::why)
}

/// What the names of receivers' cursors begin with.
const CURSORS: &str = "notify/";

/// The cursor of a receiver's events; its reminders and escalations have cursors of their own.
pub fn cursor_of(receiver: &str) -> String {
    format!("{CURSORS}{receiver}")
}

/// What became of each receiver's messages, by its name.
pub fn counts() -> BTreeMap<String, Counts> {
    counts::counts(CURSORS)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
