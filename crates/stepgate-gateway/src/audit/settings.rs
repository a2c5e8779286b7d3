//! What the configuration says about streams.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::event::EventType;
use stepgate_exec::servers::Secret;

use super::line::Format;

/// One stream.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Its name, unique, and the same on every node.
    pub name: String,
    /// Where it goes.
    pub receiver: ReceiverSettings,
    /// How an event is written.
    pub format: Format,
    /// The events; all where it is empty.
    pub events: Vec<EventType>,
    /// Where a new stream begins.
    pub beginning: Beginning,
    /// Timeout of one try.
    pub timeout: Duration,
}

/// Where a new stream begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BeginConfig")]
#[serde(rename_all = "snake_case")]
pub enum Beginning {
    /// With the first event that there is.
    #[default]
    Start,
    /// With what happens from then on.
    Now,
}

/// Where a stream goes. An address can be a secret: it is all that a sender needs.
#[derive(Clone, Debug)]
pub enum ReceiverSettings {
    /// JSON arrays, each in a POST.
    Webhook {
        /// Its address.
        url: Secret,
        /// The key that signs: `whsec_` and base64.
        key: Option<Secret>,
        /// The value of `Authorization`.
        authorization: Option<Secret>,
    },
    /// Log records over OTLP/HTTP, in JSON.
    Otlp {
        /// The address for logs, with its path.
        url: Secret,
        /// The value of `Authorization`.
        authorization: Option<Secret>,
    },
    /// RFC 5424 over TCP, with the length before each message.
    Syslog {
        /// The server's name.
        host: String,
        /// Its port.
        port: u16,
        /// Whether over TLS (RFC 5425).
        tls: bool,
    },
    /// Lines in a file of this machine.
    File {
        /// The file.
        path: PathBuf,
        /// It is renamed before it would be larger.
        rotate_bytes: u64,
        /// How many renamed ones are kept.
        keep: u32,
    },
}

impl ReceiverSettings {
    /// The secrets that sending needs.
    pub fn secrets(&self) -> Vec<&Secret> {
        match self {
            Self::Webhook { url, key, authorization } => {
                [url].into_iter().chain(key).chain(authorization).collect()
            }
            Self::Otlp { url, authorization } => [url].into_iter().chain(authorization).collect(),
            Self::Syslog { .. } | Self::File { .. } => Vec::new(),
        }
    }
}
