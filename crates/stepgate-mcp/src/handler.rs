//! What the protocol asks of a server. Stepgate offers tools, and nothing else.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, DiscoverResult, GetTaskParams,
    GetTaskResult, Implementation, InitializeRequestParams, InitializeResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, ServerNotification,
    SubscriptionFilter, Tool, ToolListChangedNotification, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};

use super::call::Asker;
use super::{Shared, call, instructions, sessions, tasks};

/// How often it is looked whether a session's client has left.
const LEFT_PAUSE: Duration = Duration::from_secs(10);

/// The versions that are spoken, oldest first.
pub(super) const VERSIONS: [ProtocolVersion; 5] = [
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

/// One session, or one request of a client without one.
#[derive(Clone)]
pub(super) struct Handler {
    shared: Arc<Shared>,
    /// Whether the client of the session is told of changes already.
    tells: Arc<AtomicBool>,
}

impl Handler {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, tells: Arc::default() }
    }

    /// What this caller is told before it calls.
    fn instructions(&self, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let asker = Asker::of(context)?;
        let catalog = self.shared.catalog();
        Ok(instructions::with(catalog.instructions(&self.shared.service, &asker.principal_id)))
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut info = ServerConfig::new(tasks::with(capabilities));
        info.server_info = Implementation::new("stepgate", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let negotiated = self.negotiate_initialize(&request)?;
        Ok(negotiated.with_instructions(self.instructions(&context)?))
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let info = self.get_info().with_instructions(self.instructions(&context)?);
        Ok(DiscoverResult::from_server_info(versions, info))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&VERSIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let asker = Asker::of(&context)?;
        let tools = self.shared.catalog().list(&self.shared.service, &asker.principal_id);
        Ok(ListToolsResult::with_all_items(tools))
    }

    /// For the headers that repeat arguments, where there are headers.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        if sessions::is_bridged() {
            return None;
        }
        self.shared.catalog().named(name).map(|offered| offered.definition.clone())
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        call::run(&self.shared, params, &context).await
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        tasks::get(&self.shared, &Asker::of(&context)?, &params.task_id).await
    }

    /// A task asks its client for nothing: whoever decides does so elsewhere. The protocol ignores
    /// answers to what was not asked.
    async fn update_task(
        &self,
        params: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::own(&self.shared, &Asker::of(&context)?, &params.task_id).await.map(|_| ())
    }

    /// Noted, and nothing more: what was proposed is decided and recorded like everything else.
    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::own(&self.shared, &Asker::of(&context)?, &params.task_id).await.map(|_| ())
    }

    /// Tells the client of a session whenever there is something else to offer.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.tells.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut changes = self.shared.changes.subscribe();
        tokio::spawn(async move {
            loop {
                let changed = tokio::time::timeout(LEFT_PAUSE, changes.changed()).await;
                match changed {
                    _ if context.peer.is_transport_closed() => return,
                    Ok(Err(_)) => return,
                    // One that does not listen now lists the tools when it comes back.
                    Ok(Ok(())) => drop(context.peer.notify_tool_list_changed().await),
                    Err(_) => {}
                }
            }
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let accepted = SubscriptionFilter::builder();
        Some(match requested.tools_list_changed {
            Some(true) => accepted.tools_list_changed().build(),
            Some(false) | None => accepted.build(),
        })
    }

    /// Tells the client of a subscription, until it leaves or the gateway does.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.changes.subscribe();
        let mut leaving = self.shared.service.leaving();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = stepgate_gateway::service::is_set(&mut leaving) => return Ok(()),
                changed = changes.changed() => {
                    let word = ToolListChangedNotification::default();
                    let word = ServerNotification::ToolListChangedNotification(word);
                    if changed.is_err() || context.sink().send(word).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
