//! Every limit of the core, by name, with its default.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::strict;
use crate::time::millis;

/// The greatest values that may be configured.
const ATTEMPTS_CEILING: u32 = 1000;
const PAUSE_CEILING_MS: u64 = 60_000;
const APPROVALS_OPEN_CEILING: u64 = 100_000;
/// A year.
const TIME_CEILING_MS: u64 = 365 * 24 * 60 * 60 * 1000;

/// What a step may cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LimitsConfig")]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Longest payload, in bytes.
    // Of a longer one only the beginning is kept.
    #[schemars(range(min = 1, max = Limits::PAYLOAD_BYTES_CEILING))]
    pub payload_bytes_max: usize,
    /// Deepest nesting of a payload.
    #[schemars(range(min = 2, max = Limits::JSON_DEPTH_CEILING))]
    pub json_depth_max: usize,
    /// Longest string that the record's args_summary repeats, in bytes.
    // A longer one is its length and digest.
    #[schemars(range(min = 0, max = Limits::PAYLOAD_BYTES_CEILING))]
    pub summary_string_bytes_max: usize,
    /// How often RECORD tries to write.
    // Then it leaves the trace to recovery.
    #[schemars(range(min = 1, max = ATTEMPTS_CEILING))]
    pub record_attempts_max: u32,
    /// How long RECORD waits between two tries, in milliseconds.
    #[serde(rename = "record_retry_pause_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 0, max = PAUSE_CEILING_MS))]
    pub record_retry_pause: Duration,
    /// How long a person has to decide on an approval, in milliseconds.
    #[schemars(range(min = 1, max = TIME_CEILING_MS))]
    pub approval_ttl_ms: u64,
    /// Most approvals of one principal that are open at one time.
    #[schemars(range(min = 1, max = APPROVALS_OPEN_CEILING))]
    pub approvals_open_max: u64,
    /// Most approvals of all principals that are open at one time. One principal may have as many as are still free.
    #[schemars(range(min = 1, max = APPROVALS_OPEN_CEILING))]
    pub approvals_open_total_max: u64,
    /// Longest time for which an operator can approve calls in advance, in milliseconds.
    #[schemars(range(min = 1, max = TIME_CEILING_MS))]
    pub grant_life_max_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1024 * 1024,
            json_depth_max: 64,
            summary_string_bytes_max: 256,
            record_attempts_max: 5,
            record_retry_pause: Duration::from_millis(200),
            approval_ttl_ms: 24 * 60 * 60 * 1000,
            approvals_open_max: 100,
            approvals_open_total_max: 1000,
            grant_life_max_ms: 7 * 24 * 60 * 60 * 1000,
        }
    }
}

impl Limits {
    /// The greatest depth that may be configured: Stepgate wraps the payload in further levels, and the
    /// result must still be readable.
    pub const JSON_DEPTH_CEILING: usize = strict::DEPTH_MAX - 8;
    /// The greatest payload that may be configured.
    pub const PAYLOAD_BYTES_CEILING: usize = 64 * 1024 * 1024;
    /// Longest name of an action. A longer one is refused and not repeated anywhere but in the payload.
    pub const ACTION_BYTES_MAX: usize = 256;
    /// Most calls that one grant permits.
    pub const GRANT_USES_MAX: u64 = 100;
}
