//! Streamable HTTP. The SDK keeps the session; every request is made here, so that the raw bytes of every
//! answer can be checked, sizes have a limit, and no redirect is followed.
//!
//! A request continues after the SDK has stopped waiting for it, as long as a caller outside the SDK waits:
//! so a result that comes after the timeout is still seen.

use std::collections::{BTreeMap, HashMap};
use std::error::Error as _;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, redirect};
use rmcp::model::{ClientJsonRpcMessage, RequestId};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::FixedInterval;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;
use stepgate_core::lock;
use stepgate_core::sse::{Event, Parser};
use stepgate_core::text::with_causes;
use tokio::sync::mpsc;

use super::tap::{Incoming, ServerAnswer, Tap};
use crate::servers::spec::{LATE_WAIT, Secret, ServerLimits, WRITE_WAIT};

const SESSION_HEADER: &str = "mcp-session-id";
const LAST_EVENT_HEADER: &str = "last-event-id";
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";
/// Headers that the protocol sets itself.
const RESERVED: [&str; 4] = ["accept", SESSION_HEADER, LAST_EVENT_HEADER, "mcp-protocol-version"];
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Limit of the events that wait for the SDK.
const QUEUE_MAX: usize = 64;

/// The address of a server, and the headers of every request to it.
pub(crate) struct Endpoint {
    url: reqwest::Url,
    headers: Arc<Headers>,
    client: reqwest::Client,
}

/// The configured headers: their sources, and their last read values.
struct Headers {
    configured: BTreeMap<String, Secret>,
    read: RwLock<HeaderMap>,
}

impl Headers {
    fn read(configured: &BTreeMap<String, Secret>) -> Result<Self, String> {
        let read = RwLock::new(headers(configured)?);
        Ok(Self { configured: configured.clone(), read })
    }

    fn now(&self) -> HeaderMap {
        lock::read(&self.read).clone()
    }

    /// Reads them again; returns whether they have changed.
    fn read_again(&self) -> bool {
        let Ok(fresh) = headers(&self.configured) else { return false };
        let mut read = lock::write(&self.read);
        let is_other = *read != fresh;
        *read = fresh;
        is_other
    }
}

impl Endpoint {
    /// Reads what is configured. The error does not repeat a header's value.
    pub(crate) fn read(url: &str, headers: &BTreeMap<String, Secret>) -> Result<Self, String> {
        let url: reqwest::Url =
            url.parse().map_err(|error| format!("`{url}` is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{url}` is neither http nor https"));
        }
        let headers = Arc::new(Headers::read(headers)?);
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_WAIT)
            .build()
            .map_err(|error| format!("no HTTP client: {error}"))?;
        Ok(Self { url, headers, client })
    }

    pub(super) fn transport(
        self,
        tap: Arc<Tap>,
        limits: &ServerLimits,
    ) -> StreamableHttpClientTransport<Http> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str());
        config.max_concurrent_requests = limits.concurrency;
        config.control_request_timeout = WRITE_WAIT;
        // A lost session means that the server was restarted: a new connection is made, and its tools are
        // listed again.
        config.reinit_on_expired_session = false;
        let mut retries = FixedInterval::default();
        retries.max_times = Some(3);
        config.retry_config = Arc::new(retries);
        let Self { headers, client, .. } = self;
        let http = Http { client, headers, tap, limits: limits.clone() };
        StreamableHttpClientTransport::with_client(http, config)
    }
}

fn headers(configured: &BTreeMap<String, Secret>) -> Result<HeaderMap, String> {
    configured.iter().map(|(name, secret)| header(name, secret)).collect()
}

fn header(name: &str, secret: &Secret) -> Result<(HeaderName, HeaderValue), String> {
    let is_reserved = RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
    let key = match name.parse::<HeaderName>() {
        Ok(key) if !is_reserved => key,
        Ok(_) | Err(_) => return Err(format!("`{name}` cannot be a header of the configuration")),
    };
    let secret = secret.read().map_err(|why| format!("the secret `{name}`: {why}"))?;
    let mut value = HeaderValue::from_str(&secret).map_err(|_| {
        format!("the value of the header `{name}` has characters that no header can have")
    })?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Trouble(String);

type HttpError = StreamableHttpError<Trouble>;
type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// Makes the SDK's requests.
#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    headers: Arc<Headers>,
    tap: Arc<Tap>,
    limits: ServerLimits,
}

impl StreamableHttpClient for Http {
    type Error = Trouble;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let request = self.client.post(uri.as_ref()).header(CONTENT_TYPE, JSON);
        let request = request.body(serde_json::to_vec(&message)?);
        let (id, has_session) = (self.tap.outgoing(&message), session_id.is_some());
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        let request = dressed(request, session_id, headers);
        let http = self.clone();
        // A task of its own: it goes on when the SDK stops waiting.
        let exchange = tokio::spawn(async move {
            let exchange = http.exchange(request, id, is_request, has_session);
            let answer = tokio::time::timeout(LATE_WAIT, exchange).await;
            answer.unwrap_or_else(|_| Err(trouble("no answer")))
        });
        exchange.await.unwrap_or_else(|_| Err(trouble("the request was given up")))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let request = dressed(self.client.delete(uri.as_ref()), Some(session_id), headers);
        let request = request.timeout(CONNECT_WAIT);
        self.send(request).await.map_err(|error| trouble(in_words(&error)))?;
        Ok(())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<EventStream, HttpError> {
        let mut request = dressed(self.client.get(uri.as_ref()), session_id, headers);
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_HEADER, id);
        }
        let response = self.send(request).await.map_err(|error| trouble(in_words(&error)))?;
        match (response.status(), is(&response, EVENT_STREAM)) {
            (StatusCode::OK, true) => Ok(self.events(response, None)),
            (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND, _) => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            (status, _) => Err(trouble(format!("it answered {status}"))),
        }
    }
}

impl Http {
    /// One POST and its answer. `id` is the request's, if a caller outside the SDK waits for it.
    async fn exchange(
        &self,
        request: RequestBuilder,
        id: Option<RequestId>,
        is_request: bool,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let response = match self.send(request).await {
            Ok(response) => response,
            Err(error) => {
                let why = in_words(&error);
                let answer = match error.is_connect() {
                    true => ServerAnswer::NotSent(why.clone()),
                    false => ServerAnswer::Lost(why.clone()),
                };
                self.put(id.as_ref(), answer);
                // After a failed connection the server is reconnected.
                self.tap.give_up(&why);
                return Err(trouble(why));
            }
        };
        let session = response.headers().get(SESSION_HEADER);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let status = response.status();
        if status == StatusCode::NOT_FOUND && has_session {
            let why = "its session is gone";
            self.tap.give_up(why);
            self.put(id.as_ref(), ServerAnswer::NotSent(why.to_owned()));
            return Err(StreamableHttpError::SessionExpired);
        }
        if !is_request {
            return match status.is_success() {
                true => Ok(StreamableHttpPostResponse::Accepted),
                false => Err(trouble(format!("it answered {status}"))),
            };
        }
        if status.is_success() && is(&response, EVENT_STREAM) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, id), session));
        }
        if !is(&response, JSON) {
            // A refusal is an answer: the request did not reach the tool.
            let why = format!("it answered {status} and no JSON");
            let answer = match status.is_client_error() || status.is_redirection() {
                true => ServerAnswer::NotSent(why.clone()),
                false => ServerAnswer::Lost(why.clone()),
            };
            self.put(id.as_ref(), answer);
            return Err(trouble(why));
        }
        let message = self.body(response, id.as_ref()).await?;
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    /// Sends a request with the configured headers. After a 401 the secrets are read again: if a secret was
    /// rotated, the request is sent again with the new one. The server refused the first request, so that is
    /// safe.
    async fn send(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        let again = request.try_clone();
        let response = request.headers(self.headers.now()).send().await?;
        match again {
            Some(again)
                if response.status() == StatusCode::UNAUTHORIZED && self.headers.read_again() =>
            {
                again.headers(self.headers.now()).send().await
            }
            Some(_) | None => Ok(response),
        }
    }

    fn put(&self, id: Option<&RequestId>, answer: ServerAnswer) {
        if let Some(id) = id {
            self.tap.put(id, answer);
        }
    }

    /// The single message of a body.
    async fn body(
        &self,
        mut response: Response,
        id: Option<&RequestId>,
    ) -> Result<rmcp::model::ServerJsonRpcMessage, HttpError> {
        let bytes_max = self.limits.message_bytes_max;
        let status = response.status();
        let mut body = Vec::new();
        let judged = loop {
            match response.chunk().await {
                Ok(Some(piece)) if body.len() + piece.len() > bytes_max => {
                    let why = format!("a message was longer than {bytes_max} bytes");
                    self.put(id, ServerAnswer::Unreadable(why.clone(), None));
                    break Incoming::Close(why);
                }
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break self.tap.incoming(&body),
                Err(error) => break Incoming::Close(in_words(&error)),
            }
        };
        let why = match judged {
            Incoming::Pass(message) => return Ok(*message),
            Incoming::Close(why) => why,
            Incoming::Done => format!("it answered {status} and no message"),
        };
        self.put(id, ServerAnswer::Lost(why.clone()));
        Err(trouble(why))
    }

    /// The messages of a stream. If the stream ends without an answer, the request's caller is told.
    fn events(&self, response: Response, id: Option<RequestId>) -> EventStream {
        let (sender, mut receiver) = mpsc::channel(QUEUE_MAX);
        let http = self.clone();
        tokio::spawn(async move { http.pump(response, id, sender).await });
        stream::poll_fn(move |context| receiver.poll_recv(context)).map(Ok).boxed()
    }

    async fn pump(&self, mut response: Response, id: Option<RequestId>, sender: mpsc::Sender<Sse>) {
        let mut parser = Parser::new(self.limits.message_bytes_max);
        let mut can_resume = false;
        let is_wanted = |id: &RequestId| self.tap.is_waited_for(id);
        let why = loop {
            let piece = tokio::select! {
                piece = response.chunk() => piece,
                () = sender.closed(), if !id.as_ref().is_some_and(is_wanted) => return,
            };
            let events = match piece {
                Ok(Some(piece)) => parser.feed(&piece),
                Ok(None) => break "it ended the stream".to_owned(),
                Err(error) => break in_words(&error),
            };
            let Ok(events) = events else {
                let why =
                    format!("an event was longer than {} bytes", self.limits.message_bytes_max);
                self.put(id.as_ref(), ServerAnswer::Unreadable(why.clone(), None));
                can_resume = false;
                break why;
            };
            can_resume |= events.iter().any(|event| event.id.is_some());
            if let Err(why) = self.forward(events, &sender).await {
                self.tap.close(&why);
                break why;
            }
        };
        if !can_resume {
            self.put(id.as_ref(), ServerAnswer::Lost(why));
        }
    }

    /// Passes on what the SDK should see. The error says why the server is disconnected.
    async fn forward(&self, events: Vec<Event>, sender: &mpsc::Sender<Sse>) -> Result<(), String> {
        for Event { data, id, event_type: _ } in events {
            let judged = match data.as_deref().map(str::trim) {
                None | Some("") => Incoming::Done,
                Some(data) => self.tap.incoming(data.as_bytes()),
            };
            let data = match judged {
                Incoming::Pass(message) => serde_json::to_string(&message).ok(),
                Incoming::Done => None,
                Incoming::Close(why) => return Err(why),
            };
            if data.is_some() || id.is_some() {
                // The SDK may have stopped listening, while a caller outside the SDK still waits.
                let _ = sender.send(Sse { event: None, data, id, retry: None }).await;
            }
        }
        Ok(())
    }
}

fn dressed(
    request: RequestBuilder,
    session_id: Option<Arc<str>>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    let mut request = request.header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match session_id {
        Some(id) => request.header(SESSION_HEADER, id.as_ref()),
        None => request,
    }
}

fn is(response: &Response, kind: &str) -> bool {
    let named = response.headers().get(CONTENT_TYPE);
    named.is_some_and(|named| named.as_bytes().starts_with(kind.as_bytes()))
}

fn trouble(why: impl Into<String>) -> HttpError {
    StreamableHttpError::Client(Trouble(why.into()))
}

/// An error with its causes, without the URL, which may contain a secret.
fn in_words(error: &reqwest::Error) -> String {
    let words = match () {
        () if error.is_connect() => "it cannot be connected to".to_owned(),
        () if error.is_timeout() => "it took too long".to_owned(),
        () => "the exchange broke off".to_owned(),
    };
    let cause = error.source().map(|cause| format!(": {}", with_causes(cause)));
    words + &cause.unwrap_or_default()
}
