//! The Model Context Protocol, spoken with the official SDK. Only this module uses the SDK.
//!
//! The SDK handles the handshake, the request ids and the HTTP sessions. A server's descriptions of tools
//! and answers to calls never pass through the SDK's types: every message is parsed strictly first
//! (`tap.rs`), and the answer goes from there to the caller as it was sent. The SDK only learns that an
//! answer came.

mod http;
mod message;
mod stdio;
mod tap;

use std::sync::{Arc, Mutex, Weak};

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
use tokio::sync::{Notify, oneshot};

use super::child::Ends;
use super::progress::Listener;
use super::spec::{LATE_WAIT, ServerLimits, WRITE_WAIT};
use tap::{Slot, Tap};

pub(crate) use http::Endpoint;
pub(crate) use tap::ServerAnswer;

/// A connection after the handshake.
pub(crate) struct Connection {
    peer: Peer<RoleClient>,
    tap: Arc<Tap>,
    limits: ServerLimits,
    running: Mutex<Option<RunningServiceCancellationToken>>,
}

/// A request that was sent and is not answered yet.
pub(crate) struct Pending {
    id: RequestId,
    answer: oneshot::Receiver<ServerAnswer>,
    sent: oneshot::Receiver<Result<rmcp::model::ServerResult, ServiceError>>,
}

impl Connection {
    pub(crate) async fn over_stdio(
        ends: Ends,
        limits: &ServerLimits,
        list_changed: Arc<Notify>,
    ) -> Result<Self, String> {
        let tap = Arc::new(Tap::new(limits, list_changed));
        let pipe = stdio::Pipe::new(ends, Arc::clone(&tap), limits.message_bytes_max);
        Self::shake_hands(pipe, tap, limits).await
    }

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

    /// Every tool of the server, as the server describes it.
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

    /// Sends a call. The error says why it was not sent. The listener receives the call's progress for as
    /// long as the caller keeps it.
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

    /// Tells the server that the caller no longer waits for this request.
    pub(crate) async fn cancel(&self, pending: &Pending, reason: &str) {
        let id = Some(pending.id.clone());
        let params = CancelledNotificationParam::new(id, Some(reason.to_owned()));
        let told = self.peer.send_notification(CancelledNotification::new(params).into());
        // Best effort: a server that does not read will not notice.
        let _ = tokio::time::timeout(WRITE_WAIT, told).await;
    }

    /// Returns when the connection is closed, with the reason.
    pub(crate) async fn closed(&self) -> String {
        self.tap.closed().await
    }

    pub(crate) fn has_misbehaved(&self) -> bool {
        self.tap.has_misbehaved()
    }

    pub(crate) fn instructions(&self) -> Option<String> {
        self.peer.peer_info().and_then(|info| info.instructions.clone())
    }

    /// Ends the connection, even if other tasks still hold it.
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

/// Runs the SDK's service, and closes the tap when the service ends.
async fn close_with(running: RunningService<RoleClient, ClientConfig>, tap: Arc<Tap>) {
    let ended = running.waiting().await;
    let why = ended.map_or_else(|error| error.to_string(), |_| "the connection ended".to_owned());
    tap.close(&why);
}

impl Pending {
    /// Waits for the answer without a timeout. It can be called again after it was interrupted.
    pub(crate) async fn answer(&mut self) -> ServerAnswer {
        let lost = || ServerAnswer::Lost("the connection ended".to_owned());
        tokio::select! {
            biased;
            answer = &mut self.answer => answer.unwrap_or_else(|_| lost()),
            sent = &mut self.sent, if !self.sent.is_terminated() => match sent {
                // The answer bypasses the SDK, and arrives before the SDK's own.
                Ok(Ok(_)) | Err(_) => (&mut self.answer).await.unwrap_or_else(|_| lost()),
                Ok(Err(error)) => match self.answer.try_recv() {
                    Ok(answer) => answer,
                    Err(_) => ServerAnswer::Lost(error.to_string()),
                },
            },
        }
    }

    /// Waits for an answer after the timeout, whatever the SDK reports.
    pub(crate) async fn late_answer(self) -> Option<ServerAnswer> {
        tokio::time::timeout(LATE_WAIT, self.answer).await.ok()?.ok()
    }
}
