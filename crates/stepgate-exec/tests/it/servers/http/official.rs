//! A server made with the official SDK.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

#[derive(Clone, Default)]
struct Official {
    is_changed: Arc<AtomicBool>,
}

pub(super) fn router(is_plain_json: bool) -> Router {
    let mut config = StreamableHttpServerConfig::default();
    config.json_response = is_plain_json;
    config.legacy_session_mode = !is_plain_json;
    let server = Official::default();
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    Router::new().nest_service("/mcp", service)
}

impl ServerHandler for Official {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let note = if self.is_changed.load(Ordering::SeqCst) { "changed" } else { "as it was" };
        let tool = |name: &str, properties: Value| {
            json!({
                "name": name,
                "description": note,
                "inputSchema": { "type": "object", "properties": properties },
            })
        };
        let tools = json!([
            tool("echo", json!({ "text": { "type": "string" } })),
            tool("seen", json!({})),
            tool("fail", json!({})),
            tool("slow", json!({})),
            tool("progress", json!({})),
            tool("change", json!({})),
        ]);
        Ok(serde_json::from_value(json!({ "tools": tools })).unwrap())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        let args = request.arguments.unwrap_or_default();
        let result = match request.name.as_ref() {
            "echo" => text(args.get("text").and_then(Value::as_str).unwrap_or("")),
            "seen" => {
                let header =
                    context.extensions.get::<Parts>().unwrap().headers.get("authorization");
                let said = json!({
                    "authorization": header.unwrap().to_str().unwrap(),
                    "dispatch": context.meta.0.0["stepgate/dispatch"],
                });
                json!({ "content": [], "structuredContent": said })
            }
            "fail" => {
                json!({ "isError": true, "content": [{ "type": "text", "text": "no such room" }] })
            }
            "slow" => {
                tokio::time::sleep(Duration::from_millis(400)).await;
                text("slow")
            }
            "progress" => {
                let token = context.meta.get_progress_token().unwrap();
                for step in [1.0, 2.0] {
                    let said = ProgressNotificationParam::new(token.clone(), step).with_total(2.0);
                    context.peer.notify_progress(said).await.unwrap();
                }
                text("progress")
            }
            "change" => {
                self.is_changed.store(true, Ordering::SeqCst);
                context.peer.notify_tool_list_changed().await.unwrap();
                text("changed")
            }
            other => return Err(ErrorData::invalid_params(other.to_owned(), None)),
        };
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        Ok(result.into())
    }
}
