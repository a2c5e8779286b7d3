//! Messages over HTTP: Standard Webhooks, Slack's JSON, ntfy's JSON. Each is one POST, and no redirect is followed.

use std::error::Error;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde_json::json;
use sha2::Sha256;
use stepgate_exec::servers::Secret;

use super::channel::Trouble;
use super::message::Message;
use super::settings::ChannelSettings;
use crate::text::{printable, shortened};
use crate::world;

/// What the signing key of a webhook begins with.
const KEY_PREFIX: &str = "whsec_";
/// Shortest key: as many bits as the convention asks for.
const KEY_BYTES_MIN: usize = 24;
/// Longest part of a receiver's answer that the operator sees, in characters.
const SAID_CHARS_MAX: usize = 200;

/// A client of one receiver.
pub(super) struct Post {
    settings: ChannelSettings,
    client: Client,
}

impl Post {
    pub(super) fn new(settings: &ChannelSettings, timeout: Duration) -> Result<Self, String> {
        let client = Client::builder().redirect(redirect::Policy::none()).timeout(timeout).build();
        let client = client.map_err(|error| format!("no HTTP client: {}", told(error)))?;
        Ok(Self { settings: settings.clone(), client })
    }

    /// Why nothing can be sent now: an address or a secret is missing or wrong.
    pub(super) fn problem(&self) -> Option<String> {
        self.request(&Message::test("", None)).err()
    }

    pub(super) async fn send(&self, message: &Message) -> Result<(), Trouble> {
        let Request { url, headers, body } = self.request(message).map_err(Trouble::later)?;
        let sent = self.client.post(url).headers(headers).body(body).send().await;
        judge(sent.map_err(|error| Trouble::later(told(error)))?).await
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

struct Request {
    url: Url,
    headers: HeaderMap,
    body: String,
}

/// Adds the three headers of the convention. The timestamp is that of this try: receivers refuse old ones.
fn sign(headers: &mut HeaderMap, key: &[u8], id: &str, body: &str) -> Result<(), String> {
    let timestamp = world::now().as_millisecond().div_euclid(1000);
    headers.insert("webhook-id", header(id)?);
    headers.insert("webhook-timestamp", HeaderValue::from(timestamp));
    headers.insert("webhook-signature", header(&signature(key, id, timestamp, body)?)?);
    Ok(())
}

fn signature(key: &[u8], id: &str, timestamp: i64, body: &str) -> Result<String, String> {
    let mac = Hmac::<Sha256>::new_from_slice(key).map_err(|error| error.to_string())?;
    let signed = format!("{id}.{timestamp}.{body}");
    let digest = mac.chain_update(signed.as_bytes()).finalize().into_bytes();
    Ok(format!("v1,{}", STANDARD.encode(digest)))
}

fn signing_key(key: &Secret) -> Result<Vec<u8>, String> {
    let expected = || {
        format!(
            "its secret must be `{KEY_PREFIX}` and at least {KEY_BYTES_MIN} bytes in base64: \
             make one with `echo {KEY_PREFIX}$(openssl rand -base64 32)`"
        )
    };
    let text = key.read()?;
    let encoded = text.trim().strip_prefix(KEY_PREFIX).ok_or_else(expected)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| expected())?;
    if bytes.len() < KEY_BYTES_MIN { Err(expected()) } else { Ok(bytes) }
}

/// The error does not repeat the address: it can be a secret.
fn address(url: &Secret) -> Result<Url, String> {
    let url: Url = url.read()?.trim().parse().map_err(|error| format!("its url: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("its url is neither http nor https".to_owned()),
    }
}

fn header(text: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| "a secret has characters that no header can have")?;
    value.set_sensitive(true);
    Ok(value)
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

async fn judge(response: Response) -> Result<(), Trouble> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let pause = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let pause = pause.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let why = format!("it answered {}: {}", status.as_u16(), said(response).await);
    // Other statuses, such as 401 and 404, tell of the address or the token, which a person can put right.
    let is_about_the_message = matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
    );
    Err(if is_about_the_message { Trouble::Refused(why) } else { Trouble::Later(why, pause) })
}

/// The first words of an answer, for the operator.
async fn said(mut response: Response) -> String {
    let first = response.chunk().await.ok().flatten().unwrap_or_default();
    shortened(&printable(String::from_utf8_lossy(&first).trim()), SAID_CHARS_MAX)
}

/// An error with its causes, without the address.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text.push_str(&format!(": {deeper}"));
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests;
