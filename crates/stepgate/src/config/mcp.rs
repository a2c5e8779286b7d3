//! `[mcp]`: the interface for agents that speak MCP.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_mcp::McpSettings;

use super::servers::ServerConfig;

/// Longest time that a call waits for a person: an hour.
const WAIT_CEILING_MS: u64 = 60 * 60 * 1000;
/// Longest time that an unanswered call can be joined, and that a session is kept: a day.
const KEEP_CEILING_MS: u64 = 24 * 60 * 60 * 1000;
const SESSIONS_CEILING: usize = 100_000;

/// The MCP interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct McpConfig {
    /// How long a call waits for a person before it is answered with a notice, in milliseconds.
    #[schemars(range(min = 0, max = WAIT_CEILING_MS))]
    wait_ms: u64,
    /// How long after its end a call whose answer was lost can be joined by the same call, in
    /// milliseconds.
    #[schemars(range(min = 0, max = KEEP_CEILING_MS))]
    join_ms: u64,
    /// Most sessions of clients that shake hands, kept in memory at one time.
    #[schemars(range(min = 1, max = SESSIONS_CEILING))]
    sessions_max: usize,
    /// How long such a session is kept in memory when nothing happens in it, in milliseconds.
    #[schemars(range(min = 1000, max = KEEP_CEILING_MS))]
    session_idle_ms: u64,
    /// Browser origins that may call, each with its port: `https://app.example.com:443`.
    allowed_origins: Vec<String>,
    /// Names of the gateway, as proxies in front of it call it, beside those of this machine.
    allowed_hosts: Vec<String>,
}

impl Default for McpConfig {
    fn default() -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let settings = McpSettings::default();
        Self {
            wait_ms: ms(settings.wait),
            join_ms: ms(settings.join),
            sessions_max: settings.sessions_max,
            session_idle_ms: ms(settings.session_idle),
            allowed_origins: settings.allowed_origins,
            allowed_hosts: settings.allowed_hosts,
        }
    }
}

impl McpConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for origin in &self.allowed_origins {
            let port = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            let port = port.and_then(|rest| rest.rsplit_once(':')).map(|(_, port)| port);
            let has_port = port.is_some_and(|port| port == "*" || port.parse::<u16>().is_ok());
            ensure!(
                has_port,
                "mcp.allowed_origins: `{origin}` is not an origin with its port: write it like \
                 `https://app.example.com:443`"
            );
        }
        Ok(())
    }

    pub(super) fn settings(
        &self,
        own_names: Option<String>,
        has_pages: bool,
        look_ms: u64,
    ) -> McpSettings {
        McpSettings {
            wait: Duration::from_millis(self.wait_ms),
            join: Duration::from_millis(self.join_ms),
            sessions_max: self.sessions_max,
            session_idle: Duration::from_millis(self.session_idle_ms),
            allowed_origins: self.allowed_origins.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            own_names,
            has_pages,
            look: Duration::from_millis(look_ms),
        }
    }
}

/// At most one server's tools keep their own names: those of two could be the same.
pub(super) fn check_own_names(servers: &BTreeMap<String, ServerConfig>) -> anyhow::Result<()> {
    let mut own = servers.iter().filter(|(_, server)| server.own_names).map(|(name, _)| name);
    if let (Some(first), Some(second)) = (own.next(), own.next()) {
        bail!("servers.{first} and servers.{second} have `own_names`: only one server can");
    }
    Ok(())
}
