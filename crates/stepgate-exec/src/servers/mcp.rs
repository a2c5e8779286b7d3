//! The Model Context Protocol, spoken with the official SDK. Nothing outside this module names it.
//!
//! The SDK has the handshake, the ids and the sessions of HTTP. What a server says about a tool or a
//! call never passes through its types: every message is read strictly first (`tap.rs`), and the answer
//! goes from there to whoever asked, as it was sent. The SDK only learns that an answer came.

mod http;
mod message;
mod stdio;
mod tap;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientCapabilities, ClientConfig, ClientRequest, GetExtensions, Implementation,
    ListToolsRequest, MetaObject, PaginatedRequestParams, ProtocolVersion, RequestId,
    RequestMetaObject,
};
use rmcp::service::{
    PeerRequestOptions, RunningService, RunningServiceCancellationToken, ServiceError,
};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleClient, ServiceExt};
use stepgate_core::json::{Map, Value};
use stepgate_core::lock::locked;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Notify, oneshot};

use super::progress::Listener;
use super::spec::ServerLimits;
use tap::{Slot, Tap};

pub(crate) use http::Endpoint;
pub(crate) use tap::ServerAnswer;

/// A server that has shaken hands.
pub(crate) struct Connection {
    peer: Peer<RoleClient>,
    tap: Arc<Tap>,
    limits: ServerLimits,
    running: Mutex<Option<RunningServiceCancellationToken>>,
}

/// A request that is on its way.
pub(crate) struct Pending {
    id: RequestId,
    answer: oneshot::Receiver<ServerAnswer>,
    sent: oneshot::Receiver<Result<rmcp::model::ServerResult, ServiceError>>,
}

impl Connection {
    /// Shakes hands over the standard input and output of a process.
    pub(crate) async fn over_stdio(
        stdin: ChildStdin,
        stdout: ChildStdout,
        limits: &ServerLimits,
        list_changed: Arc<Notify>,
    ) -> Result<Self, String> {
        let tap = Arc::new(Tap::new(limits, list_changed));
        let pipe = stdio::Pipe::new(stdin, stdout, Arc::clone(&tap), limits);
        Self::shake_hands(pipe, tap, limits).await
    }

    /// Shakes hands over streamable HTTP.
    pub(crate) async fn over_http(
        endpoint: Endpoint,
        limits: &ServerLimits,
        list_changed: Arc<Notify>,
    ) -> Result<Self, String> {
        let tap = Arc::new(Tap::new(limits, list_changed));
        Self::shake_hands(endpoint.transport(Arc::clone(&tap), limits), tap, limits).await
    }

    async fn shake_hands<T>(
        transport: T,
        tap: Arc<Tap>,
        limits: &ServerLimits,
    ) -> Result<Self, String>
    where
        T: Transport<RoleClient> + 'static,
    {
        let us = Implementation::new("stepgate", env!("CARGO_PKG_VERSION"));
        let config = ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let running = config.serve(transport).await.map_err(|error| match tap.why_closed() {
            Some(why) => why,
            None => format!("it did not answer `initialize`: {error}"),
        })?;
        tap.shook_hands();
        let (peer, token) = (running.peer().clone(), running.cancellation_token());
        tokio::spawn(close_with(running, Arc::clone(&tap)));
        Ok(Self { peer, tap, limits: limits.clone(), running: Mutex::new(Some(token)) })
    }

    /// Every tool that the server has, as it describes them.
    pub(crate) async fn list(&self) -> Result<Vec<Value>, String> {
        let ServerLimits { pages_max, tools_max, .. } = self.limits;
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..pages_max {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let request = ListToolsRequest::with_param(params).into();
            let answer = self.request(request, Weak::new()).await?.answer().await;
            let mut page =
                answer.into_result().map_err(|why| format!("`tools/list` failed: {why}"))?;
            match page.remove("tools") {
                Some(Value::Array(more)) => tools.extend(more),
                Some(_) | None => return Err("`tools/list` gave no list".to_owned()),
            }
            if tools.len() > tools_max {
                return Err(format!("it has more than {tools_max} tools"));
            }
            match page.remove("nextCursor") {
                Some(Value::String(next)) => cursor = Some(next),
                Some(_) | None => return Ok(tools),
            }
        }
        Err(format!("its list of tools has more than {pages_max} pages"))
    }

    /// Sends a call. The error says why nothing was sent. The listener is told how far it comes, for as
    /// long as somebody keeps it.
    pub(crate) async fn call(
        &self,
        tool: &str,
        args: Map<String, Value>,
        meta: Map<String, Value>,
        listener: &Arc<Listener>,
    ) -> Result<Pending, String> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(args);
        params.meta = Some(RequestMetaObject(MetaObject(meta)));
        self.request(CallToolRequest::new(params).into(), Arc::downgrade(listener)).await
    }

    async fn request(
        &self,
        mut request: ClientRequest,
        listener: Weak<Listener>,
    ) -> Result<Pending, String> {
        let (slot, answer) = Slot::new(listener);
        request.extensions_mut().insert(slot);
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        match sent.await {
            Ok(handle) => Ok(Pending { id: handle.id, answer, sent: handle.rx }),
            Err(error) => Err(self.tap.why_closed().unwrap_or_else(|| error.to_string())),
        }
    }

    /// Tells the server that nobody waits for this request any more.
    pub(crate) async fn cancel(&self, pending: &Pending, reason: &str) {
        let id = Some(pending.id.clone());
        let params = CancelledNotificationParam::new(id, Some(reason.to_owned()));
        let told = self.peer.send_notification(CancelledNotification::new(params).into());
        // It is a courtesy: a server that does not read is none the wiser.
        let _ = tokio::time::timeout(self.limits.write_wait, told).await;
    }

    /// Returns when the connection is closed, with the reason.
    pub(crate) async fn closed(&self) -> String {
        self.tap.closed().await
    }

    /// Whether the server did what no server may do.
    pub(crate) fn has_misbehaved(&self) -> bool {
        self.tap.has_misbehaved()
    }

    /// What the server says about itself, for models.
    pub(crate) fn instructions(&self) -> Option<String> {
        self.peer.peer_info().and_then(|info| info.instructions.clone())
    }

    /// Ends the connection, whoever still holds it.
    pub(crate) fn end(&self) {
        let running = locked(&self.running).take();
        if let Some(running) = running {
            running.cancel();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end();
    }
}

/// Keeps the SDK's service running, and closes the tap with it.
async fn close_with(running: RunningService<RoleClient, ClientConfig>, tap: Arc<Tap>) {
    let ended = running.waiting().await;
    let why = ended.map_or_else(|error| error.to_string(), |_| "the connection ended".to_owned());
    tap.close(&why);
}

impl Pending {
    /// Waits for the answer, however long it takes. Can be called again after it was interrupted.
    pub(crate) async fn answer(&mut self) -> ServerAnswer {
        let lost = || ServerAnswer::Lost("the connection ended".to_owned());
        if self.sent.is_terminated() {
            return (&mut self.answer).await.unwrap_or_else(|_| lost());
        }
        tokio::select! {
            biased;
            answer = &mut self.answer => answer.unwrap_or_else(|_| lost()),
            sent = &mut self.sent => match sent {
                // The answer itself goes past the SDK, and is there before it.
                Ok(Ok(_)) | Err(_) => (&mut self.answer).await.unwrap_or_else(|_| lost()),
                Ok(Err(error)) => match self.answer.try_recv() {
                    Ok(answer) => answer,
                    Err(_) => ServerAnswer::Lost(error.to_string()),
                },
            },
        }
    }

    /// Waits for an answer that comes after its time, past what the SDK thinks of it.
    pub(crate) async fn late_answer(self, wait: Duration) -> Option<ServerAnswer> {
        tokio::time::timeout(wait, self.answer).await.ok()?.ok()
    }
}
