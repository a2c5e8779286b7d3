//! Two tool servers to play with, in one program: a calendar that only looks, and a loudspeaker that
//! changes the world and acts once per idempotency key.
//!
//! `stepgate-example-home calendar`, or `stepgate-example-home sonos STATE`, where STATE is the file in
//! which the loudspeaker remembers what it did.

mod calendar;
mod sonos;

use std::path::PathBuf;

use anyhow::{Context, bail};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let role = args.next().and_then(|role| role.into_string().ok()).unwrap_or_default();
    let home = match (role.as_str(), args.next()) {
        ("calendar", None) => Home::Calendar,
        ("sonos", Some(state)) => Home::Sonos(sonos::Speaker::at(PathBuf::from(state))),
        (_, _) => bail!("call it as `calendar`, or as `sonos STATE` with a file to remember in"),
    };
    let service = home.serve(stdio()).await.context("nobody shook hands")?;
    service.waiting().await?;
    Ok(())
}

/// What the program is.
enum Home {
    Calendar,
    Sonos(sonos::Speaker),
}

/// What travels beside the arguments of a call.
const KEY: &str = "stepgate/idempotency-key";

impl Home {
    fn tools(&self) -> Value {
        match self {
            Self::Calendar => calendar::tools(),
            Self::Sonos(_) => sonos::tools(),
        }
    }

    /// What a tool answers, or why it did not do what it was asked.
    fn answer(
        &self,
        tool: &str,
        args: &Map<String, Value>,
        key: Option<&str>,
    ) -> Result<Value, String> {
        match (self, tool) {
            (Self::Calendar, calendar::AGENDA) => Ok(calendar::agenda()),
            (Self::Sonos(speaker), sonos::SET_VOLUME) => speaker.set_volume(args, key),
            (Self::Sonos(speaker), sonos::VOLUME) => speaker.volume(args),
            (Self::Calendar | Self::Sonos(_), _) => Err(format!("there is no tool `{tool}`")),
        }
    }
}

impl ServerHandler for Home {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().build();
        let us = Implementation::new("stepgate-example-home", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(tools).with_server_info(us)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        read(json!({ "tools": self.tools() }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let key = context.meta.0.0.get(KEY).and_then(Value::as_str);
        let args = request.arguments.unwrap_or_default();
        let result = match self.answer(&request.name, &args, key) {
            Ok(said) => json!({
                "content": [{ "type": "text", "text": said.to_string() }],
                "structuredContent": said,
            }),
            Err(why) => json!({ "content": [{ "type": "text", "text": why }], "isError": true }),
        };
        Ok(read::<CallToolResult>(result)?.into())
    }
}

/// A value as the SDK's type for it.
fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}
