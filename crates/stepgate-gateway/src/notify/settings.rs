//! What the configuration says about receivers.

use std::time::Duration;

use stepgate_core::event::EventType;
use stepgate_exec::servers::Secret;

use super::mail::MailSettings;

/// The receivers, and where people decide.
#[derive(Clone, Debug, Default)]
pub struct NotifySettings {
    /// The receivers.
    pub receivers: Vec<ReceiverSettings>,
    /// The address of the pages, without a slash at its end; none where there are no pages.
    pub public_url: Option<String>,
}

/// One receiver.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// Its name, unique, and the same on every node.
    pub name: String,
    /// How it is reached.
    pub channel: ChannelSettings,
    /// The events that it is told of.
    pub events: Vec<EventType>,
    /// How long before an approval expires it is reminded.
    pub remind_before: Option<Duration>,
    /// Approvals that other receivers were told of and that no person has decided.
    pub escalations: Vec<Escalation>,
    /// Timeout of one try.
    pub timeout: Duration,
}

/// An approval that is not decided after this time is told to one more receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Escalation {
    /// The receiver that was told first.
    pub from: String,
    /// The time since the question was asked.
    pub after: Duration,
}

/// How a receiver is reached. An address can be a secret: it is all that a sender needs.
#[derive(Clone, Debug)]
pub enum ChannelSettings {
    /// A webhook by the Standard Webhooks convention.
    Webhook {
        /// Its address.
        url: Secret,
        /// The key that signs: `whsec_` and base64.
        key: Secret,
    },
    /// An incoming webhook of Slack, or of what understands its JSON.
    Slack {
        /// Its address.
        url: Secret,
    },
    /// A topic of ntfy.
    Ntfy {
        /// The address of the topic.
        url: Secret,
        /// The access token, where the topic needs one.
        token: Option<Secret>,
    },
    /// Mail.
    Mail(MailSettings),
}

impl ChannelSettings {
    /// The secrets that a message needs.
    pub fn secrets(&self) -> Vec<&Secret> {
        match self {
            Self::Webhook { url, key } => vec![url, key],
            Self::Slack { url } => vec![url],
            Self::Ntfy { url, token } => [url].into_iter().chain(token).collect(),
            Self::Mail(mail) => mail.login.iter().map(|(_, password)| password).collect(),
        }
    }
}
