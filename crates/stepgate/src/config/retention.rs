//! `[retention]`: how long runs stay in the store, and where they go then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::archive::select::Retention;
use stepgate_gateway::service::ArchiveSettings;

use super::SERVE_CEILING_MS;

/// Longest that a run stays before it is archived: a hundred years.
const DAYS_CEILING: u32 = 36_500;

/// How long runs stay in the store after they ended. Then they leave it for archives: files that verify alone. What is
/// not set stays for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetentionConfig {
    /// The directory of the archives, beside the configuration file where it is not absolute.
    pub(crate) directory: PathBuf,
    /// Days that runs stay which succeeded.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    ok_days: Option<u32>,
    /// Days that runs stay which failed or were not valid.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    error_days: Option<u32>,
    /// Days that runs stay which timed out.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    timeout_days: Option<u32>,
    /// Days that runs stay which were denied.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    denied_days: Option<u32>,
    /// Days that runs of a tool stay, instead of the days above: `{ "bank.send_money" = 3650 }`.
    tool_days: BTreeMap<String, u32>,
    /// How often `stepgate serve` looks for runs that are old enough, in milliseconds.
    #[schemars(range(min = 10, max = SERVE_CEILING_MS))]
    interval_ms: u64,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            directory: "archives".into(),
            ok_days: None,
            error_days: None,
            timeout_days: None,
            denied_days: None,
            tool_days: BTreeMap::new(),
            interval_ms: 60_000,
        }
    }
}

impl RetentionConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for (tool, days) in &self.tool_days {
            ensure!(
                *days <= DAYS_CEILING,
                "retention.tool_days: `{tool}` has {days} days, and the most is {DAYS_CEILING}"
            );
        }
        Ok(())
    }

    /// The settings, with the directory below this one where it is not absolute.
    pub(crate) fn settings(&self, base: &Path) -> ArchiveSettings {
        ArchiveSettings {
            retention: Retention {
                ok_days: self.ok_days,
                error_days: self.error_days,
                timeout_days: self.timeout_days,
                denied_days: self.denied_days,
                tool_days: self.tool_days.clone(),
            },
            directory: base.join(&self.directory),
            interval: Duration::from_millis(self.interval_ms),
        }
    }
}
