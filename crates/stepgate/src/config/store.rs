//! `[store]`: where the store is, and how this node takes part in it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_store::PostgresOptions;

use super::servers::ServerConfig;
use super::{CONNECTIONS_CEILING, Config, SERVE_CEILING_MS};

/// Free space that is reserved for operators: a backup of a small store fits, and thousands of decisions.
const FREE_BYTES_MIN: u64 = 256 * 1024 * 1024;
const FREE_BYTES_CEILING: u64 = 1024 * 1024 * 1024 * 1024 * 1024;

/// Where the store is, and how this node takes part in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreConfig {
    /// The URL of a PostgreSQL database; empty for the file in the data directory.
    pub(crate) url: String,
    /// How this node calls itself to the others; empty for the name of the machine.
    pub(crate) node_id: String,
    /// Connections that read at one time.
    #[schemars(range(min = 1, max = CONNECTIONS_CEILING))]
    readers_max: usize,
    /// How long this node may be silent before others take its runs over, in milliseconds.
    #[schemars(range(min = 1000, max = SERVE_CEILING_MS))]
    lease_ms: u64,
    /// How much of that must be left for a call to be sent, in milliseconds.
    #[schemars(range(min = 100, max = SERVE_CEILING_MS))]
    dispatch_margin_ms: u64,
    /// Free space on the disk of the data directory that is reserved for operators, in bytes: with less, agents' steps
    /// are refused.
    #[schemars(range(min = 0, max = FREE_BYTES_CEILING))]
    pub(crate) free_bytes_min: u64,
    /// The file with the keys that encrypt erasable arguments, and payloads with redacted ones, one a line; empty for
    /// `payload.key` in the data directory. All nodes of a shared store need the same.
    pub(crate) payload_key_file: PathBuf,
}

impl Default for StoreConfig {
    fn default() -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let options = PostgresOptions::default();
        Self {
            url: String::new(),
            node_id: String::new(),
            readers_max: options.readers_max,
            lease_ms: ms(options.lease),
            dispatch_margin_ms: ms(options.dispatch_margin),
            free_bytes_min: FREE_BYTES_MIN,
            payload_key_file: PathBuf::new(),
        }
    }
}

impl StoreConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.dispatch_margin_ms * 2 <= self.lease_ms,
            "store.dispatch_margin_ms must be at most half of store.lease_ms, or nothing is ever sent"
        );
        Ok(())
    }
}

impl Config {
    /// How this node takes part in a store that others share.
    pub(crate) fn postgres_options(&self) -> PostgresOptions {
        let store = &self.store;
        PostgresOptions {
            node_id: self.node_id(),
            readers_max: store.readers_max,
            lease: Duration::from_millis(store.lease_ms),
            dispatch_margin: Duration::from_millis(store.dispatch_margin_ms),
            ..PostgresOptions::default()
        }
    }

    /// Whether any tool may have redacted or erasable arguments.
    pub(crate) fn has_redacted(&self) -> bool {
        self.servers.values().any(ServerConfig::has_redacted)
    }

    pub(crate) fn sandbox_id(&self, node_id: Option<&str>) -> String {
        executor_id("sandbox", node_id.filter(|_| !self.sandbox.shared))
    }

    pub(crate) fn node_id(&self) -> String {
        if !self.store.node_id.is_empty() {
            return self.store.node_id.clone();
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        if name.is_empty() { "node".to_owned() } else { name.to_owned() }
    }
}

/// The name of something that acts: what is one node's own is named after it, too.
pub(super) fn executor_id(name: &str, own_of: Option<&str>) -> String {
    match own_of {
        Some(node_id) => format!("{name}@{node_id}"),
        None => name.to_owned(),
    }
}
