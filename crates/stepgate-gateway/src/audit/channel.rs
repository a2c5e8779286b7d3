//! Where a stream goes: sends a batch, once.

use std::time::Duration;

use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use stepgate_exec::servers::Secret;

use super::file::LogFile;
use super::line::Line;
use super::otlp;
use super::settings::{ReceiverSettings, StreamSettings};
use super::syslog::Syslog;
use crate::follow::Trouble;
use crate::follow::post::{self, Request, address, header, sign, signing_key};

/// An open way to a receiver.
pub(super) enum Channel {
    Post(Post),
    Syslog(Syslog),
    File(LogFile),
}

impl Channel {
    /// Reads the settings, but no secret yet: one that is missing may come later. The error names the stream.
    pub(super) fn new(settings: &StreamSettings) -> Result<Self, String> {
        let (name, timeout) = (&settings.name, settings.timeout);
        let made = match &settings.receiver {
            ReceiverSettings::Webhook { .. } | ReceiverSettings::Otlp { .. } => {
                let receiver = settings.receiver.clone();
                let name = name.clone();
                post::client(timeout).map(|client| Self::Post(Post { name, receiver, client }))
            }
            ReceiverSettings::Syslog { host, port, tls } => {
                Syslog::new(host, *port, *tls, timeout).map(Self::Syslog)
            }
            ReceiverSettings::File { path, rotate_bytes, keep } => {
                Ok(Self::File(LogFile::new(path.clone(), *rotate_bytes, *keep, timeout)))
            }
        };
        made.map_err(|why| format!("audit `{name}`: {why}"))
    }

    /// Why nothing can be sent now, if that is known without trying.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            Self::Post(post) => post.request(&[]).err(),
            Self::Syslog(_) | Self::File(_) => None,
        }
    }

    pub(super) async fn send(&mut self, lines: &[Line]) -> Result<(), Trouble> {
        match self {
            Self::Post(post) => post.send(lines).await,
            Self::Syslog(syslog) => syslog.send(lines).await,
            Self::File(file) => file.append(lines).await,
        }
    }

    /// How long after it was sent something has surely arrived, if the way is still open then.
    pub(super) fn certain_after(&self) -> Duration {
        match self {
            Self::Syslog(_) => Syslog::CERTAIN_AFTER,
            Self::Post(_) | Self::File(_) => Duration::ZERO,
        }
    }

    /// Whether what was sent before may not have arrived.
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Syslog(syslog) => syslog.is_broken(),
            Self::Post(_) | Self::File(_) => false,
        }
    }

    /// Gives up a way that is broken: what comes next goes over a new one.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Syslog(syslog) => syslog.reset(),
            Self::Post(_) | Self::File(_) => {}
        }
    }

    /// Ends the way. The error says that the last lines may not have arrived.
    pub(super) async fn close(self) -> Result<(), Trouble> {
        match self {
            Self::Syslog(syslog) => syslog.close().await,
            Self::Post(_) | Self::File(_) => Ok(()),
        }
    }
}

/// A client of one receiver over HTTP.
pub(super) struct Post {
    name: String,
    receiver: ReceiverSettings,
    client: Client,
}

impl Post {
    async fn send(&self, lines: &[Line]) -> Result<(), Trouble> {
        let request = self.request(lines).map_err(Trouble::later)?;
        let response = post::send(&self.client, request).await?;
        match &self.receiver {
            ReceiverSettings::Otlp { .. } => otlp::judge(response).await,
            ReceiverSettings::Webhook { .. }
            | ReceiverSettings::Syslog { .. }
            | ReceiverSettings::File { .. } => Ok(()),
        }
    }

    /// The request, with the secrets as they are now.
    fn request(&self, lines: &[Line]) -> Result<Request, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut authorize = |secret: &Option<Secret>| {
            let value = secret.as_ref().map(|secret| header(secret.read()?.trim())).transpose()?;
            value.map(|value| headers.insert(AUTHORIZATION, value));
            Ok::<_, String>(())
        };
        match &self.receiver {
            ReceiverSettings::Webhook { url, key, authorization } => {
                authorize(authorization)?;
                let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
                let body = format!("[{}]", texts.join(",\n"));
                if let Some(key) = key {
                    let ends =
                        [lines.first(), lines.last()].map(|it| it.map_or(0, |it| it.position));
                    let id = format!("{}/{}-{}", self.name, ends[0], ends[1]);
                    sign(&mut headers, &signing_key(key)?, &id, &body)?;
                }
                Ok(Request { url: address(url)?, headers, body })
            }
            ReceiverSettings::Otlp { url, authorization } => {
                authorize(authorization)?;
                Ok(Request { url: address(url)?, headers, body: otlp::body(lines) })
            }
            ReceiverSettings::Syslog { .. } | ReceiverSettings::File { .. } => {
                Err("it is not sent over HTTP".to_owned())
            }
        }
    }
}
