//! One POST to a receiver: its address, its secrets, its signature by Standard Webhooks, and what its answer means.
//! No redirect is followed.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use sha2::Sha256;
use stepgate_exec::servers::Secret;

use super::Trouble;
use crate::text::{printable, shortened, with_causes};
use crate::world;

/// What the signing key of a webhook begins with.
const KEY_PREFIX: &str = "whsec_";
/// Shortest key: as many bits as the convention asks for.
const KEY_BYTES_MIN: usize = 24;
/// Longest part of a receiver's answer that the operator sees, in characters.
const SAID_CHARS_MAX: usize = 200;

/// A client that follows no redirect.
pub(crate) fn client(timeout: Duration) -> Result<Client, String> {
    let client = Client::builder().redirect(redirect::Policy::none()).timeout(timeout).build();
    client.map_err(|error| format!("no HTTP client: {}", told(error)))
}

pub(crate) struct Request {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Sends a request once. The answer is one of success.
pub(crate) async fn send(client: &Client, request: Request) -> Result<Response, Trouble> {
    let Request { url, headers, body } = request;
    let sent = client.post(url).headers(headers).body(body).send().await;
    judge(sent.map_err(|error| Trouble::later(told(error)))?).await
}

/// Adds the three headers of the convention. The timestamp is that of this try: receivers refuse old ones.
pub(crate) fn sign(
    headers: &mut HeaderMap,
    key: &[u8],
    id: &str,
    body: &str,
) -> Result<(), String> {
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

pub(crate) fn signing_key(key: &Secret) -> Result<Vec<u8>, String> {
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
pub(crate) fn address(url: &Secret) -> Result<Url, String> {
    let url: Url = url.read()?.trim().parse().map_err(|error| format!("its url: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("its url is neither http nor https".to_owned()),
    }
}

pub(crate) fn header(text: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| "a secret has characters that no header can have")?;
    value.set_sensitive(true);
    Ok(value)
}

async fn judge(response: Response) -> Result<Response, Trouble> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
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

async fn said(mut response: Response) -> String {
    let first = response.chunk().await.ok().flatten().unwrap_or_default();
    shortened(&printable(String::from_utf8_lossy(&first).trim()), SAID_CHARS_MAX)
}

/// An error with its causes, without the address.
fn told(error: reqwest::Error) -> String {
    with_causes(&error.without_url())
}

#[cfg(test)]
mod tests;
