//! What both SQL engines share of looking for runs by time and text.

use stepgate_core::time::Timestamp;

/// Longest tool name in the index of tools, in the same words as the index.
pub(crate) const IS_INDEXED_TOOL: &str = "length(tool_name) <= 128";
/// The same as a number.
pub(crate) const TOOL_CHARS_MAX: usize = 128;
/// The condition of the index of runs that ended badly, in the same words as the index.
pub(crate) const IS_NOT_OK: &str = "status IN ('error', 'timeout', 'denied')";
/// Most names of tools that a part of a name is compared with.
pub(crate) const TOOLS_MAX: usize = 1000;

/// How far the time in a run's id may be from the order in which runs were written: nodes have clocks of their own,
/// and a commit can wait.
const SLACK_MS: u64 = 60 * 1000;
/// Ids at the border that are looked at, because runs are not written exactly in the order of their ids.
const BORDER: usize = 100;

/// A condition for runs whose position is not before the time. A run's id begins with the time at which it came, so the
/// index of ids finds the position; the exact time is compared besides. The mark stands for the value.
pub(crate) fn position_since(mark: &str) -> String {
    format!(
        "position >= (SELECT min(position) FROM (SELECT position FROM tool_runs
           WHERE tool_run_id >= {mark} ORDER BY tool_run_id LIMIT {BORDER}) AS border)"
    )
}

/// A condition for runs whose position is not after the time.
pub(crate) fn position_until(mark: &str) -> String {
    format!(
        "position <= (SELECT max(position) FROM (SELECT position FROM tool_runs
           WHERE tool_run_id < {mark} ORDER BY tool_run_id DESC LIMIT {BORDER}) AS border)"
    )
}

/// The beginning of the ids from which on runs can be of this time or later.
pub(crate) fn first_id(since: Timestamp) -> String {
    id_at(since.as_millisecond().saturating_sub_unsigned(SLACK_MS))
}

/// The beginning of the ids from which on no run is before this time.
pub(crate) fn end_id(until: Timestamp) -> String {
    id_at(until.as_millisecond().saturating_add_unsigned(SLACK_MS))
}

/// The beginning of a UUIDv7 of this time.
fn id_at(ms: i64) -> String {
    let ms = u64::try_from(ms).unwrap_or(0).min((1 << 48) - 1);
    format!("{:08x}-{:04x}", ms >> 16, ms & 0xffff)
}

/// The text after all texts that begin with a prefix of hexadecimal digits and hyphens.
pub(crate) fn after_prefix(prefix: &str) -> String {
    format!("{prefix}g")
}
