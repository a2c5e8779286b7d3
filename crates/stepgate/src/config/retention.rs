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

/// The number of days that stands for ever: a hundred years.
const DAYS_CEILING: u32 = 36_500;

/// How long runs stay in the store after they ended. Then they leave it for archives: files that verify alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetentionConfig {
    /// The directory of the archives, beside the configuration file where it is not absolute.
    pub(crate) directory: PathBuf,
    /// Days that runs stay which succeeded. 36500: for ever.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    ok_days: u32,
    /// Days that runs stay which failed or were not valid. 36500: for ever.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    error_days: u32,
    /// Days that runs stay which timed out. 36500: for ever.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    timeout_days: u32,
    /// Days that runs stay which were denied. 36500: for ever.
    #[schemars(range(min = 0, max = DAYS_CEILING))]
    denied_days: u32,
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
            ok_days: DAYS_CEILING,
            error_days: DAYS_CEILING,
            timeout_days: DAYS_CEILING,
            denied_days: DAYS_CEILING,
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
    pub(crate) fn settings(&self, base: &Path, readers: Vec<String>) -> ArchiveSettings {
        ArchiveSettings {
            retention: Retention {
                ok_days: limit(self.ok_days),
                error_days: limit(self.error_days),
                timeout_days: limit(self.timeout_days),
                denied_days: limit(self.denied_days),
                tool_days: self.tool_days.clone(),
            },
            directory: base.join(&self.directory),
            readers,
            interval: Duration::from_millis(self.interval_ms),
        }
    }
}

/// None for ever.
fn limit(days: u32) -> Option<u32> {
    (days < DAYS_CEILING).then_some(days)
}
