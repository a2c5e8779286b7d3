//! Every limit of the core, by name, with its default.

use std::time::Duration;

use crate::json::strict;

/// The limits of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest payload. Longer ones are refused, and only their beginning is kept.
    pub payload_bytes_max: usize,
    /// Deepest nesting of a payload.
    pub json_depth_max: usize,
    /// Longest string that `args_summary` repeats; a longer one is its length and digest.
    pub summary_string_bytes_max: usize,
    /// How many times RECORD tries to write before it leaves the trace to recovery.
    pub record_attempts_max: u32,
    /// Pause between two tries of RECORD.
    pub record_retry_pause: Duration,
    /// How long a person has to decide.
    pub approval_ttl_ms: u64,
    /// Most approvals of one principal that are open at one time.
    pub approvals_open_max: u64,
    /// Most approvals of all principals that are open at one time. One principal may have as many of them as are still
    /// free.
    pub approvals_open_total_max: u64,
    /// Longest life of a grant.
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
