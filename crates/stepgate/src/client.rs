//! The command line as a client: one interface, whichever process holds the data directory.
//!
//! A request goes to the process that holds the directory, through its socket; or to `--url`; or, if no process holds
//! the directory, to the same router in this process, which holds the directory meanwhile.

mod connection;

use std::any::Any;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::Value;
use stepgate_core::ids::RunId;
use stepgate_gateway::service::Service;
use stepgate_http::local::{Process, our_input};
use stepgate_http::sse;
use stepgate_http::{
    self as http, AccessLog, App, INPUT_HEADER, LOCAL_HEADER, LOCAL_HOST, Peer, RUN_HEADER,
};
use stepgate_mcp::bridge::Exchange;
use tower::ServiceExt;

use crate::cli::Global;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::start;
use connection::{Connection, Target};

pub(crate) use stepgate_gateway::tokens::Role;

/// Rows per request: the gateway's maximum.
const PAGE_MAX: usize = 1000;

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// The run that it is the answer of.
    pub(crate) run_id: Option<RunId>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) async fn read(response: Response<Body>) -> anyhow::Result<Self> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.context("the answer broke off")?.to_bytes();
        let run_id = parts.headers.get(RUN_HEADER).and_then(|id| id.to_str().ok()?.parse().ok());
        Ok(Self { status: parts.status, run_id, headers: parts.headers, body })
    }

    /// The body of a successful response; otherwise an error that says what to do.
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        self.succeeded()?;
        self.parsed()
    }

    /// The body, whatever the status.
    pub(crate) fn parsed(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).context("the answer is not JSON: is it a Stepgate?")
    }

    /// An error that says what to do, unless the response is a success.
    pub(crate) fn succeeded(&self) -> anyhow::Result<()> {
        if self.status.is_success() { Ok(()) } else { Err(self.refusal()) }
    }

    /// The error of a response that is not a success.
    pub(crate) fn refusal(&self) -> anyhow::Error {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        // Problem details, or the response of a step.
        let message = body.get("detail").or_else(|| body.pointer("/error/message"));
        let message = message.and_then(Value::as_str).unwrap_or("no reason was given");
        let status = self.status.as_u16();
        match self.status {
            StatusCode::UNAUTHORIZED => anyhow!(
                "{message}: set STEPGATE_TOKEN, or name a file with --token-file ({status})"
            ),
            _ => anyhow!("{message} ({status})"),
        }
    }
}

/// A client of a gateway, or of the router in this process.
pub(crate) struct Client {
    door: Door,
    who: Who,
}

/// How the client authenticates on the directory of this machine.
struct Who {
    /// The role in which the command acts. An auditor reads nothing that the files of the directory do not show anyway;
    /// an operator decides with a token, or with a person at this process's terminal.
    role: Role,
    /// An operator's token, if the command line gives one.
    token: Option<String>,
}

impl Who {
    fn of(global: &Global, role: Role) -> anyhow::Result<Self> {
        let token = match role {
            Role::Agent | Role::Auditor => None,
            Role::Operator => token(global)?,
        };
        Ok(Self { role, token })
    }
}

enum Door {
    /// The process that holds the directory, or a remote gateway.
    Wire(Connection),
    /// This process, which holds the directory until the client is dropped.
    Here { here: Box<Here>, _held: Box<dyn Any + Send> },
}

struct Here {
    router: Router,
    app: Arc<App>,
}

impl Here {
    fn of(service: Arc<Service>, config: &Config) -> anyhow::Result<Self> {
        let (serve, url) = (config.serve.clone(), config.serve.configured_url()?);
        let app = App::new(service, serve, url, AccessLog::Silent, Vec::new());
        Ok(Self { router: http::router(&app), app })
    }
}

/// The gateway that `--url` names, if any.
pub(crate) fn remote(global: &Global) -> anyhow::Result<Option<Target>> {
    let Some(url) = &global.url else {
        return Ok(None);
    };
    Target::url(url, &token(global)?.unwrap_or_default()).map(Some)
}

fn token(global: &Global) -> anyhow::Result<Option<String>> {
    let token = match &global.token_file {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read `{}`", file.display()))?,
        None => std::env::var("STEPGATE_TOKEN").unwrap_or_default(),
    };
    let token = token.trim();
    Ok((!token.is_empty()).then(|| token.to_owned()))
}

pub(crate) fn socket(data: &DataDir) -> Target {
    Target::Socket(data.socket())
}

/// A connection to the process that holds the directory, if it listens.
async fn holder(data: &DataDir) -> Option<Connection> {
    data.holder()?;
    Connection::open(socket(data)).await.ok()
}

pub(crate) async fn is_held(data: &DataDir) -> bool {
    holder(data).await.is_some()
}

impl Client {
    /// A client of the gateway at `--url`, or of the process that holds the directory, if any.
    pub(crate) async fn elsewhere(data: &DataDir, role: Role) -> anyhow::Result<Option<Self>> {
        let connection = match remote(&data.global)? {
            Some(target) => Some(Connection::open(target).await?),
            None => holder(data).await,
        };
        let who = Who::of(&data.global, role)?;
        Ok(connection.map(|connection| Self { door: Door::Wire(connection), who }))
    }

    /// The same, where there must be one.
    pub(crate) async fn serving(data: &DataDir, role: Role) -> anyhow::Result<Self> {
        Self::elsewhere(data, role).await?.context(
            "no process serves this directory: start `stepgate serve`, or name a gateway with --url",
        )
    }

    /// A client of the gateway at a URL, with an agent's token.
    pub(crate) async fn of_agent_at(url: &str, token: &str) -> anyhow::Result<Self> {
        let connection = Connection::open(Target::url(url, token)?).await?;
        let who = Who { role: Role::Agent, token: None };
        Ok(Self { door: Door::Wire(connection), who })
    }

    /// A client of a running gateway, or of this process if there is none.
    pub(crate) async fn of(data: &DataDir, role: Role) -> anyhow::Result<Self> {
        if let Some(client) = Self::elsewhere(data, role).await? {
            return Ok(client);
        }
        let who = Who::of(&data.global, role)?;
        let held = start::hold_recovered(data).await?;
        held.tell().await;
        let service = held.service().await?;
        service.expire_due().await;
        let here = Box::new(Here::of(service, &held.config)?);
        Ok(Self { door: Door::Here { here, _held: Box::new(held) }, who })
    }

    /// The same, for an order that must be in force before anything goes on: in this process no tool server is
    /// started, and no interrupted run is recovered.
    pub(crate) async fn before_recovery(data: &DataDir, role: Role) -> anyhow::Result<Self> {
        if let Some(client) = Self::elsewhere(data, role).await? {
            return Ok(client);
        }
        let who = Who::of(&data.global, role)?;
        let (service, config, lock) = start::hold_store(data).await?;
        let here = Box::new(Here::of(service, &config)?);
        Ok(Self { door: Door::Here { here, _held: Box::new(lock) }, who })
    }

    /// Whether a person at the terminal acts, not a token.
    pub(crate) fn is_at_terminal(&self) -> bool {
        !matches!(self.target(), Some(Target::Http { .. })) && self.who.token.is_none()
    }

    /// Where the connection goes; none for this process.
    fn target(&self) -> Option<&Target> {
        match &self.door {
            Door::Wire(connection) => Some(&connection.target),
            Door::Here { .. } => None,
        }
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Reply> {
        let request = request(self.target(), &self.who, method, path, headers, body.into())?;
        match &mut self.door {
            Door::Wire(connection) => {
                Reply::read(connection.send(request).await?.map(Body::new)).await
            }
            Door::Here { here, .. } => {
                let mut request = request.map(Body::from);
                let process = Process::this().context("`/proc` does not show this process")?;
                request.extensions_mut().insert(Peer::Local(process));
                let reply = Reply::read(here.router.clone().oneshot(request).await?).await?;
                // The command ends next, so tasks that continue after the answer must end first.
                here.app.service.idle().await;
                Ok(reply)
            }
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::GET, path, None).await?.json()
    }

    /// Sends a request with a JSON body, or without a body.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Reply> {
        match body {
            Some(body) => {
                let json = ("content-type", "application/json".to_owned());
                self.send(method, path, &[json], body.to_string()).await
            }
            None => self.send(method, path, &[], Bytes::new()).await,
        }
    }

    /// Reads the rows of a list, page by page: at most `limit`, older than `before`, and matching the filter. The list is
    /// the path without `/v1/`.
    pub(crate) async fn list(
        &mut self,
        list: &str,
        filter: &str,
        before: Option<String>,
        limit: u32,
    ) -> anyhow::Result<Vec<Value>> {
        let limit = usize::try_from(limit)?;
        let name = list.rsplit('/').next().unwrap_or(list);
        let before_of = |id: String| format!("&before={id}");
        let (mut rows, mut before) = (Vec::new(), before.map(before_of).unwrap_or_default());
        while rows.len() < limit {
            let count = (limit - rows.len()).min(PAGE_MAX);
            let path = format!("/v1/{list}?limit={count}{filter}{before}");
            let page = self.get(&path).await?;
            let found = page.get(name).and_then(Value::as_array);
            rows.extend(found.into_iter().flatten().cloned());
            // The agent's interface spells its names as its specification does.
            let next = page.get("next_before").or_else(|| page.get("nextBefore"));
            let Some(next) = next.and_then(Value::as_str) else { break };
            before = before_of(next.to_owned());
        }
        Ok(rows)
    }

    /// Opens a stream of events, after the given id or after `latest`.
    pub(crate) async fn events(&mut self, after: &str) -> anyhow::Result<sse::Events> {
        let path = format!("/v1/events?after={after}");
        let get = Method::GET;
        let request = request(self.target(), &self.who, get, &path, &[], Bytes::new())?;
        let Door::Wire(connection) = &mut self.door else {
            bail!("nobody holds the directory, so nothing happens in it: start `stepgate serve`");
        };
        let response = connection.send(request).await?.map(Body::new);
        if !response.status().is_success() {
            return Err(Reply::read(response).await?.refusal());
        }
        Ok(sse::Events::new(response.into_body()))
    }
}

/// A parameter of a query, with its `&`; empty where there is no value.
pub(crate) fn parameter(name: &str, value: Option<&impl ToString>) -> String {
    value.map(|value| format!("&{name}={}", encoded(&value.to_string()))).unwrap_or_default()
}

pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Builds an authenticated request: with a token, or by the local socket.
fn request(
    target: Option<&Target>,
    who: &Who,
    method: Method,
    path: &str,
    headers: &[(&'static str, String)],
    body: Bytes,
) -> anyhow::Result<Request<Bytes>> {
    let mut request = Request::builder().method(method).uri(path).header("host", LOCAL_HOST);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let mut request = request.body(body)?;
    let headers = request.headers_mut();
    let token = match target {
        Some(Target::Socket(_)) | None => who.token.as_ref(),
        Some(Target::Http { authority, token, tls: _ }) => {
            headers.insert(header::HOST, HeaderValue::from_str(authority)?);
            Some(token)
        }
    };
    match token {
        Some(token) => {
            let mut token = HeaderValue::from_str(&format!("Bearer {token}"))
                .context("the token has characters that no token has")?;
            token.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, token);
        }
        None => {
            headers.insert(LOCAL_HEADER, HeaderValue::from_static(who.role.as_str()));
            if let Some(input) = our_input() {
                headers.insert(INPUT_HEADER, HeaderValue::from_str(&input)?);
            }
        }
    }
    Ok(request)
}

/// Sends concurrent requests to a gateway, each on its own connection.
pub(crate) struct Line {
    target: Target,
    who: Who,
}

impl Line {
    /// As the directory's agent, or with the token of the target.
    pub(crate) fn of_agent(target: Target) -> Self {
        Self { target, who: Who { role: Role::Agent, token: None } }
    }

    /// As the operator of the directory on this machine.
    pub(crate) fn of_operator(data: &DataDir) -> anyhow::Result<Self> {
        Ok(Self { target: socket(data), who: Who::of(&data.global, Role::Operator)? })
    }

    /// Sends a request without a body, and reads the whole response.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> anyhow::Result<Reply> {
        Reply::read(self.exchange(method, path, &[], Vec::new()).await?).await
    }
}

#[async_trait]
impl Exchange for Line {
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> anyhow::Result<Response<Body>> {
        let request = request(Some(&self.target), &self.who, method, path, headers, body.into())?;
        let mut connection = Connection::open(self.target.clone()).await?;
        Ok(connection.send(request).await?.map(Body::new))
    }
}
