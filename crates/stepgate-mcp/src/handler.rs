//! The SDK's handler interface. Stepgate offers tools and nothing else.

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

use super::call::McpCaller;
use super::{Shared, call, instructions, sessions, tasks};

/// How often to check whether a session's client has left.
const LEFT_PAUSE: Duration = Duration::from_secs(10);

/// The supported protocol versions, oldest first.
pub(super) const VERSIONS: [ProtocolVersion; 5] = [
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

/// The handler of one session, or of one request without a session.
#[derive(Clone)]
pub(super) struct Handler {
    shared: Arc<Shared>,
    /// Whether a task already notifies the client of changes.
    tells: Arc<AtomicBool>,
}

impl Handler {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, tells: Arc::default() }
    }

    fn instructions(&self, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let asker = McpCaller::of(context)?;
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
        let asker = McpCaller::of(&context)?;
        let tools = self.shared.catalog().list(&self.shared.service, &asker.principal_id);
        Ok(ListToolsResult::with_all_items(tools))
    }

    /// The SDK uses it to check headers that repeat arguments. Over stdio there are none.
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
        tasks::get(&self.shared, &McpCaller::of(&context)?, &params.task_id).await
    }

    /// A task never asks its client for input: the operator decides elsewhere. The protocol ignores answers to
    /// questions that were not asked.
    async fn update_task(
        &self,
        params: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::own(&self.shared, &McpCaller::of(&context)?, &params.task_id).await.map(|_| ())
    }

    /// Accepted without effect: a submitted proposal is still decided and recorded.
    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::own(&self.shared, &McpCaller::of(&context)?, &params.task_id).await.map(|_| ())
    }

    /// Notifies the client of a session whenever the offered tools change.
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
                    // A client that does not listen now lists the tools when it reconnects.
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

    /// Notifies the client of a subscription, until the client leaves or the gateway shuts down.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.changes.subscribe();
        let mut leaving = self.shared.service.leaving();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = stepgate_gateway::service::wait_until_set(&mut leaving) => return Ok(()),
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
