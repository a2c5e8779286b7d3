//! Messages over HTTP: Standard Webhooks, Slack's JSON, ntfy's JSON. Each is one POST, and no redirect is followed.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use serde_json::json;

use super::message::Message;
use super::settings::ChannelSettings;
use crate::follow::Trouble;
use crate::follow::post::{self, Request, address, header, sign, signing_key};

/// A client of one receiver.
pub(super) struct Post {
    settings: ChannelSettings,
    client: Client,
}

impl Post {
    pub(super) fn new(settings: &ChannelSettings, timeout: Duration) -> Result<Self, String> {
        Ok(Self { settings: settings.clone(), client: post::client(timeout)? })
    }

    /// Why nothing can be sent now: an address or a secret is missing or wrong.
    pub(super) fn problem(&self) -> Option<String> {
        self.request(&Message::test("", None)).err()
    }

    pub(super) async fn send(&self, message: &Message) -> Result<(), Trouble> {
        let request = self.request(message).map_err(Trouble::later)?;
        post::send(&self.client, request).await.map(drop)
    }

    /// The request, with the secrets as they are now.
    fn request(&self, message: &Message) -> Result<Request, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match &self.settings {
            ChannelSettings::Webhook { url, key } => {
                let body = serde_json::to_string(message).map_err(|error| error.to_string())?;
                sign(&mut headers, &signing_key(key)?, &message.id, &body)?;
                Ok(Request { url: address(url)?, headers, body })
            }
            ChannelSettings::Slack { url } => {
                let body = json!({ "text": slack_text(message) }).to_string();
                Ok(Request { url: address(url)?, headers, body })
            }
            ChannelSettings::Ntfy { url, token } => {
                if let Some(token) = token {
                    headers.insert(AUTHORIZATION, header(&format!("Bearer {}", token.read()?))?);
                }
                let (url, topic) = topic(address(url)?)?;
                Ok(Request { url, headers, body: ntfy_body(message, &topic) })
            }
            ChannelSettings::Mail(_) => Err("mail is not sent over HTTP".to_owned()),
        }
    }
}

/// Slack's markup and Markdown leave a code span as it is: no value can make a link, a mention or a format.
fn slack_text(message: &Message) -> String {
    let mut lines = vec![format!("*Stepgate* {}", code(&message.data.title))];
    let fields = message.data.fields().into_iter();
    lines.extend(fields.map(|(name, value)| format!("{name}: {}", code(&value))));
    lines.extend(message.data.url.as_deref().map(escaped));
    lines.join("\n")
}

fn code(text: &str) -> String {
    format!("`{}`", escaped(text).replace('`', "'"))
}

/// The three characters that Slack asks to be escaped.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// ntfy takes JSON at its root, so that no text of ours becomes a header.
fn ntfy_body(message: &Message, topic: &str) -> String {
    let mut body = json!({
        "topic": topic,
        "title": format!("Stepgate: {}", message.data.title),
        "message": message.data.text(),
    });
    if let (Some(url), Some(fields)) = (&message.data.url, body.as_object_mut()) {
        fields.insert("click".to_owned(), url.clone().into());
    }
    body.to_string()
}

/// The address of the server, and the topic: the last part of the path.
fn topic(mut url: Url) -> Result<(Url, String), String> {
    let topic = url.path().rsplit('/').next().unwrap_or_default().to_owned();
    if topic.is_empty() {
        return Err("its url names no topic: write it like `https://ntfy.sh/TOPIC`".to_owned());
    }
    let root = url.path().strip_suffix(&topic).unwrap_or("/").to_owned();
    url.set_path(&root);
    Ok((url, topic))
}

#[cfg(test)]
mod tests;
