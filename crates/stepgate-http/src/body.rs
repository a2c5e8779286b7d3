//! Reads bodies with a size limit, a timeout and strict JSON parsing, before any library sees them.

mod metered;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::run::Payload;

use super::{App, Problem};
pub(super) use metered::Metered;
use metered::NoRoom;

/// Longest body that is not a proposal.
const JSON_BYTES_MAX: usize = 256 * 1024;
/// Deepest nesting of a body that is not a proposal.
const JSON_DEPTH_MAX: usize = 64;

/// Reads a proposal, byte for byte. Above the gate's limit only the beginning is kept and the rest is counted, up to
/// the limit on bodies.
pub(super) async fn payload(app: &App, body: Body) -> Result<Payload, Problem> {
    read(app, body, app.service.gate.limits.payload_bytes_max, app.limits.body_bytes_max).await
}

/// Reads the whole body of a request that may contain a proposal, such as an MCP message.
pub async fn whole(app: &App, body: Body) -> Result<Bytes, Problem> {
    let bytes_max = usize::try_from(app.limits.body_bytes_max).unwrap_or(usize::MAX);
    Ok(Bytes::copy_from_slice(&bytes(app, body, bytes_max).await?))
}

pub(super) async fn bytes(app: &App, body: Body, bytes_max: usize) -> Result<Arc<[u8]>, Problem> {
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    Ok(read(app, body, bytes_max, most).await?.bytes)
}

/// A JSON body; an empty body is the default value.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        json(app, &parts.headers, body, JSON_BYTES_MAX).await.map(Self)
    }
}

pub(super) async fn json<T: DeserializeOwned + Default>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<T, Problem> {
    let bytes = bytes(app, body, bytes_max).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    if !is_json(headers) {
        return Err(Problem::unsupported_media_type());
    }
    // With duplicate keys, a filter in front of us could read one value and we the other.
    let value = strict::parse(&bytes, JSON_DEPTH_MAX, Integers::Exact)
        .map_err(|refusal| Problem::malformed(format!("the body is not strict JSON: {refusal}")))?;
    // Serde would take an array for the fields of a struct, in order.
    if !value.is_object() {
        return Err(Problem::malformed("the body must be a JSON object"));
    }
    serde_json::from_value(value)
        .map_err(|error| Problem::malformed(format!("the body is not as it should be: {error}")))
}

/// Whether the content type is JSON or absent, and the body is not compressed.
fn is_json(headers: &HeaderMap) -> bool {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return false;
    }
    match headers.get(header::CONTENT_TYPE).map(|value| value.to_str()) {
        None => true,
        Some(Ok(kind)) => {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        }
        Some(Err(_)) => false,
    }
}

async fn read(app: &App, body: Body, kept_max: usize, bytes_max: u64) -> Result<Payload, Problem> {
    let reading =
        tokio::time::timeout(app.limits.body_timeout, read_all(body, kept_max, bytes_max));
    reading.await.unwrap_or_else(|_| Err(Problem::too_slow()))
}

async fn read_all(mut body: Body, kept_max: usize, bytes_max: u64) -> Result<Payload, Problem> {
    let mut kept: Vec<u8> = Vec::new();
    let mut length: u64 = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(broken)?;
        let Ok(data) = frame.into_data() else { continue };
        length = length.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        if length > bytes_max {
            return Err(Problem::too_large(bytes_max));
        }
        let room = kept_max.saturating_sub(kept.len());
        kept.extend_from_slice(data.get(..room).unwrap_or(&data));
    }
    Ok(Payload { bytes: kept.into(), length })
}

fn broken(error: axum::Error) -> Problem {
    match error.into_inner().is::<NoRoom>() {
        true => Problem::too_many_bodies(),
        false => Problem::malformed("the body broke off"),
    }
}
