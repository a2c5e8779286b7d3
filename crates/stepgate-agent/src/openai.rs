//! The model behind any endpoint that speaks OpenAI's chat completions.
//!
//! One question is one POST. The answer is untrusted: it has limits in bytes and time, it goes through the
//! strict parser, and anything that is not a valid answer is refused. No redirect is followed. An endpoint
//! may repeat the key that it received: the operator sees its error text without the key, and the caller
//! sees none of it.

mod answer;
mod key;
mod question;
mod stream;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use stepgate_core::spans::MODEL;
use stepgate_core::text::with_causes;
use tokio::time::timeout;
use tracing::{Span, field, instrument};

use crate::model::{Completion, ModelError, Prompt};
use crate::ports::{Model, Told};

pub use key::ModelKey;

/// Longest answer that is read, in bytes on the wire.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Backoff before the second try; it doubles with each later one.
const BACK_OFF: Duration = Duration::from_millis(500);
/// Longest prefix of an endpoint's error text that the operator sees, in characters.
const SAID_CHARS_MAX: usize = 500;
/// Longest backoff, also where the endpoint asks for more.
const BACK_OFF_MAX: Duration = Duration::from_secs(20);

/// The address of a model, and its timeout.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Such as `https://api.openai.com/v1`: the part before `/chat/completions`.
    pub base_url: String,
    /// The model to ask for.
    pub model: String,
    /// The API key.
    pub key: Option<ModelKey>,
    /// Timeout of one try.
    pub timeout: Duration,
    /// How many tries there are in all.
    pub attempts_max: u32,
}

/// Callback for errors, for the operator: the caller learns less.
pub type Complaints = Arc<dyn Fn(&str) + Send + Sync>;

/// A client of one endpoint.
pub struct OpenAi {
    url: Url,
    model: String,
    key: ModelKey,
    timeout: Duration,
    attempts_max: u32,
    client: Client,
    complaints: Complaints,
}

impl OpenAi {
    /// Reads what is configured. The error does not repeat the key.
    pub fn new(endpoint: Endpoint, complaints: Complaints) -> Result<Self, String> {
        let Endpoint { base_url, model, key, timeout, attempts_max } = endpoint;
        let text = format!("{}/chat/completions", base_url.trim_end_matches('/'));
        let url: Url = text.parse().map_err(|error| format!("`{base_url}` is no URL: {error}"))?;
        let is_encrypted = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(format!("`{base_url}` is neither http nor https")),
        };
        if key.is_some() && !is_encrypted && !is_this_machine(&url) {
            return Err(format!(
                "`{base_url}` is not encrypted, and a key would be read on the way: use https"
            ));
        }
        let headers = headers(key.as_ref())?;
        let client = client(&url, headers).map_err(|error| format!("no HTTP client: {error}"))?;
        let key = key.unwrap_or_else(|| ModelKey::new(""));
        Ok(Self { url, model, key, timeout, attempts_max, client, complaints })
    }

    /// One try, from the connection to the end of the answer.
    async fn attempt(&self, body: &[u8], told: &Told<'_>) -> Result<Completion, Trouble> {
        let asking = async {
            let sending = self.client.post(self.url.clone()).body(body.to_vec()).send();
            let response = sending.await.map_err(|error| Trouble::again(without_url(error)))?;
            match response.status() {
                StatusCode::OK if is_stream(&response) => {
                    stream::read(response, &self.key, told).await
                }
                StatusCode::OK => Ok(answer::read(&body_of(response).await?)?),
                status => Err(self.refused(status, response).await),
            }
        };
        let completed = timeout(self.timeout, asking).await;
        let completion = completed.unwrap_or_else(|_| Err(ModelError::TimedOut.into()))?;
        match self.key.is_in(&completion) {
            true => Err(answer::invalid("it repeats the key of its endpoint").into()),
            false => Ok(completion),
        }
    }

    /// The cause decides whether a retry may help.
    async fn refused(&self, status: StatusCode, response: Response) -> Trouble {
        let pause = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let pause = pause.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        let body = body_of(response).await.unwrap_or_default();
        let said = beginning(&self.key.masked(&String::from_utf8_lossy(&body)));
        let is_passing = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        match is_passing {
            true => Trouble::Again(format!("{status}: {said}"), pause),
            false => Trouble::Final {
                complaint: format!("the model's endpoint refused: {}: {said}", status.as_u16()),
                error: ModelError::Refused(format!("status {}", status.as_u16())),
            },
        }
    }

    /// Reports an error to the operator. Every text from an endpoint passes through here, so that the key is
    /// masked.
    fn complain(&self, text: &str) {
        (self.complaints)(&self.key.masked(text));
    }
}

#[async_trait]
impl Model for OpenAi {
    #[instrument(
        target = MODEL, name = "chat", level = "debug", skip_all,
        fields(
            otel.name = format_args!("chat {}", self.model),
            otel.kind = "client",
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = "openai",
            gen_ai.request.model = self.model,
            gen_ai.response.model = field::Empty,
            gen_ai.usage.input_tokens = field::Empty,
            gen_ai.usage.output_tokens = field::Empty,
            server.address = self.url.host_str(),
            error.type = field::Empty,
        )
    )]
    async fn complete(&self, prompt: &Prompt, told: &Told<'_>) -> Result<Completion, ModelError> {
        let completed = self.complete_with_retries(prompt, told).await;
        note(&completed);
        completed
    }
}

impl OpenAi {
    async fn complete_with_retries(
        &self,
        prompt: &Prompt,
        told: &Told<'_>,
    ) -> Result<Completion, ModelError> {
        let body = question::body(&self.model, prompt);
        let mut pause = BACK_OFF;
        let mut attempt = 1;
        loop {
            let (why, asked_pause) = match self.attempt(&body, told).await {
                Ok(completion) => return Ok(completion),
                Err(Trouble::Final { complaint, error }) => {
                    self.complain(&complaint);
                    return Err(without_key(error, &self.key));
                }
                Err(Trouble::Again(why, asked_pause)) => (why, asked_pause),
            };
            self.complain(&format!("the model is not available, try {attempt}: {why}"));
            if attempt >= self.attempts_max {
                return Err(ModelError::Unavailable(format!("{attempt} tries failed")));
            }
            attempt += 1;
            tokio::time::sleep(asked_pause.unwrap_or(pause).min(BACK_OFF_MAX)).await;
            pause = pause.saturating_mul(2);
        }
    }
}

/// Adds to the span what is known of an answer, and nothing that the model said.
fn note(completed: &Result<Completion, ModelError>) {
    let span = Span::current();
    match completed {
        Ok(Completion { model, usage, .. }) => {
            span.record("gen_ai.response.model", model.as_str());
            if let Some(usage) = usage {
                span.record("gen_ai.usage.input_tokens", usage.prompt_tokens);
                span.record("gen_ai.usage.output_tokens", usage.completion_tokens);
            }
        }
        Err(error) => {
            let kind = match error {
                ModelError::TimedOut => "timeout",
                ModelError::Unavailable(_) => "unavailable",
                ModelError::Refused(_) => "refused",
                ModelError::Invalid(_) => "invalid",
            };
            span.record("error.type", kind);
        }
    }
}

enum Trouble {
    /// A retry may help, after this pause where the endpoint asks for one.
    Again(String, Option<Duration>),
    /// A retry does not help, or part of this answer was already shown to the caller. The operator gets the
    /// complaint, the caller the error.
    Final { complaint: String, error: ModelError },
}

impl From<ModelError> for Trouble {
    fn from(error: ModelError) -> Self {
        Self::Final { complaint: error.to_string(), error }
    }
}

impl Trouble {
    fn again(why: impl Into<String>) -> Self {
        Self::Again(why.into(), None)
    }
}

fn headers(key: Option<&ModelKey>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = key {
        let mut value = HeaderValue::from_str(&key.bearer())
            .map_err(|_| "the model's key has characters that no header can have".to_owned())?;
        value.set_sensitive(true);
        headers.insert(reqwest::header::AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The proxies of the environment apply, except for connections to this machine: there the key is sent
/// unencrypted, and a proxy could read it.
fn client(url: &Url, headers: HeaderMap) -> reqwest::Result<Client> {
    let builder = Client::builder().default_headers(headers);
    let builder = builder.redirect(redirect::Policy::none()).connect_timeout(CONNECT_WAIT);
    let builder = if is_this_machine(url) { builder.no_proxy() } else { builder };
    builder.build()
}

/// An error for the caller, without the key in the endpoint's text.
fn without_key(error: ModelError, key: &ModelKey) -> ModelError {
    match error {
        ModelError::Invalid(why) => ModelError::Invalid(key.masked(&why)),
        ModelError::TimedOut | ModelError::Unavailable(_) | ModelError::Refused(_) => error,
    }
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// A body within the size limit.
async fn body_of(mut response: Response) -> Result<Vec<u8>, Trouble> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|it| Trouble::again(broke_off(it)))? {
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn too_long() -> Trouble {
    answer::invalid(format!("it is longer than {BODY_BYTES_MAX} bytes")).into()
}

fn broke_off(error: reqwest::Error) -> String {
    format!("the answer broke off: {}", without_url(error))
}

/// The beginning of a text for the operator, on one line.
fn beginning(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(SAID_CHARS_MAX).collect()
}

/// The error and its causes, without the URL, which can contain a secret.
fn without_url(error: reqwest::Error) -> String {
    with_causes(&error.without_url())
}

#[cfg(test)]
mod tests;
