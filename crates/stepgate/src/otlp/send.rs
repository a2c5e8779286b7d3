//! One request to the collector: OTLP over HTTP with protobuf, or gRPC, which is the same POST over HTTP/2 with a prefix of five
//! bytes and its status behind the body. No redirect is followed, and no answer is read beyond its limit.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use reqwest::{Client, Method, Request, StatusCode, Url, redirect};
use stepgate_exec::servers::Secret;
use stepgate_gateway::meters::Signal;

use super::OtlpSettings;
use crate::config::otlp::{OtlpConfig, Protocol};

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const CONNECT_WAIT: Duration = Duration::from_secs(5);
const GRPC_STATUS: &str = "grpc-status";
/// The codes of gRPC with which the specification of OTLP allows another try.
const GRPC_LATER: [&str; 7] = ["1", "4", "8", "10", "11", "14", "15"];

/// Why a request was not taken.
pub(super) enum Refusal {
    /// Another try may help.
    Later(String),
    /// Another try does not help.
    Final(String),
}

pub(super) struct Collector {
    client: Client,
    base: Url,
    protocol: Protocol,
    headers: Vec<(HeaderName, Secret)>,
}

impl Collector {
    pub(super) fn new(settings: &OtlpSettings) -> Result<Self, String> {
        let OtlpSettings { config, headers } = settings;
        let OtlpConfig { endpoint, protocol, .. } = config;
        let timeout = Duration::from_millis(config.timeout_ms);
        let base: Url =
            endpoint.parse().map_err(|error| format!("`{endpoint}` is no URL: {error}"))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(format!("`{endpoint}` is neither http nor https"));
        }
        if base.scheme() == "http" && !headers.is_empty() && !is_this_machine(&base) {
            return Err(format!(
                "`{endpoint}` is not encrypted, and its headers would be read on the way: use https"
            ));
        }
        let mut client = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_WAIT.min(timeout))
            .timeout(timeout);
        client = match protocol {
            Protocol::Http => client.http1_only(),
            Protocol::Grpc => client.http2_prior_knowledge(),
        };
        let client = client.build().map_err(|error| format!("no HTTP client: {error}"))?;
        let headers = headers.iter().map(|(name, secret)| {
            let name = name.parse().map_err(|_| format!("`{name}` is no name of a header"))?;
            Ok((name, secret.clone()))
        });
        let headers = headers.collect::<Result<_, String>>()?;
        Ok(Self { client, base, protocol: *protocol, headers })
    }

    pub(super) async fn send(&self, signal: Signal, message: &[u8]) -> Result<(), Refusal> {
        let request = self.request(signal, message).map_err(Refusal::Final)?;
        let response = self.client.execute(request).await.map_err(later)?;
        let status = response.status();
        match (self.protocol, status) {
            (Protocol::Http, StatusCode::OK) => Ok(()),
            (Protocol::Grpc, StatusCode::OK) => grpc_status(response.into()).await,
            (
                _,
                StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT,
            ) => Err(Refusal::Later(format!("it answers {status}"))),
            (Protocol::Http | Protocol::Grpc, _) => {
                Err(Refusal::Final(format!("it answers {status}")))
            }
        }
    }

    /// The request, with the secrets as they are now.
    fn request(&self, signal: Signal, message: &[u8]) -> Result<Request, String> {
        let mut url = self.base.clone();
        let (path, kind, body) = match self.protocol {
            Protocol::Http => {
                let path = format!("{}/v1/{}", url.path().trim_end_matches('/'), signal.as_str());
                (path, "application/x-protobuf", message.to_vec())
            }
            Protocol::Grpc => (grpc_path(signal).to_owned(), "application/grpc", framed(message)),
        };
        url.set_path(&path);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.protocol == Protocol::Grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        for (name, secret) in &self.headers {
            let mut value = HeaderValue::from_str(&secret.read()?)
                .map_err(|_| format!("the value of `{name}` is no value of a header"))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        let mut request = Request::new(Method::POST, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        Ok(request)
    }
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The error of a request without its URL, which may have a secret.
fn later(error: reqwest::Error) -> Refusal {
    let error = error.without_url();
    Refusal::Later(match error.is_timeout() {
        true => "it does not answer in time".to_owned(),
        false => format!("it cannot be reached: {error}"),
    })
}

fn grpc_path(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    }
}

/// A message with its prefix: not compressed, and its length.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], length.to_be_bytes().as_slice(), message].concat()
}

/// The status that stands behind the body, or in the head where there is no body.
async fn grpc_status(response: axum::http::Response<reqwest::Body>) -> Result<(), Refusal> {
    let of = |headers: &HeaderMap| {
        headers.get(GRPC_STATUS).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let (head, body) = response.into_parts();
    let status = match of(&head.headers) {
        Some(status) => Some(status),
        None => {
            let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let read = read.map_err(|error| Refusal::Later(format!("its answer ends: {error}")))?;
            read.trailers().and_then(of)
        }
    };
    match status.as_deref() {
        Some("0") => Ok(()),
        Some(code) if GRPC_LATER.contains(&code) => {
            Err(Refusal::Later(format!("it answers with status {code}")))
        }
        Some(code) => Err(Refusal::Final(format!("it answers with status {code}"))),
        None => Err(Refusal::Final("it answers without a status".to_owned())),
    }
}
