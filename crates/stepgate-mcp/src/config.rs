//! `[mcp]` of the configuration.

use std::time::Duration;

use anyhow::ensure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::time::millis;

/// Longest time that a call waits for a person: an hour.
const WAIT_CEILING_MS: u64 = 60 * 60 * 1000;
/// Longest time that an unanswered call can be joined, and that a session is kept: a day.
const KEEP_CEILING_MS: u64 = 24 * 60 * 60 * 1000;
const SESSIONS_CEILING: usize = 100_000;

/// The MCP interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// How long a call waits for a person before it is answered with a notice, in milliseconds.
    #[serde(rename = "wait_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 0, max = WAIT_CEILING_MS))]
    pub wait: Duration,
    /// How long after its end a call whose answer was lost can be joined by the same call, in
    /// milliseconds.
    #[serde(rename = "join_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 0, max = KEEP_CEILING_MS))]
    pub join: Duration,
    /// Most sessions of clients that shake hands, kept in memory at one time.
    #[schemars(range(min = 1, max = SESSIONS_CEILING))]
    pub sessions_max: usize,
    /// How long such a session is kept in memory when nothing happens in it, in milliseconds.
    #[serde(rename = "session_idle_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 1000, max = KEEP_CEILING_MS))]
    pub session_idle: Duration,
    /// Browser origins that may call, each with its port: `https://app.example.com:443`.
    pub allowed_origins: Vec<String>,
    /// Names of the gateway, as proxies in front of it call it, beside those of this machine.
    pub allowed_hosts: Vec<String>,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(45),
            join: Duration::from_secs(300),
            sessions_max: 1000,
            session_idle: Duration::from_secs(300),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
        }
    }
}

impl McpConfig {
    /// Refuses an origin without its port.
    pub fn check(&self) -> anyhow::Result<()> {
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
}
