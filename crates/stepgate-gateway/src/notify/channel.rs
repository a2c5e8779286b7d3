//! A receiver's channel: sends one message, once.

use super::mail::Mail;
use super::message::Message;
use super::post::Post;
use super::settings::{ChannelSettings, ReceiverSettings};
use crate::follow::Trouble;

/// How messages leave.
pub(super) enum Channel {
    Post(Post),
    Mail(Mail),
}

impl Channel {
    /// Reads the settings, but no secret yet: one that is missing may come later. The error names the receiver.
    pub(super) fn new(receiver: &ReceiverSettings) -> Result<Self, String> {
        let made = match &receiver.channel {
            ChannelSettings::Mail(mail) => Mail::new(mail, receiver.timeout).map(Self::Mail),
            posted @ (ChannelSettings::Webhook { .. }
            | ChannelSettings::Slack { .. }
            | ChannelSettings::Ntfy { .. }) => Post::new(posted, receiver.timeout).map(Self::Post),
        };
        made.map_err(|why| format!("notify `{}`: {why}", receiver.name))
    }

    /// Why nothing can be sent now, if that is known without trying.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            Self::Post(post) => post.problem(),
            Self::Mail(mail) => mail.problem(),
        }
    }

    pub(super) async fn send(&self, message: &Message) -> Result<(), Trouble> {
        match self {
            Self::Post(post) => post.send(message).await,
            Self::Mail(mail) => mail.send(message).await,
        }
    }
}
