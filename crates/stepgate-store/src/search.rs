//! What both SQL engines share of looking for rows by time, text and the beginning of an id.

use stepgate_core::ids::IdPrefix;
use stepgate_core::ports::{RunQuery, RunText};
use stepgate_core::run::Status;
use stepgate_core::time::Timestamp;

/// Longest tool name in the index of tools, in the same words as the index.
pub(crate) const IS_INDEXED_TOOL: &str = "length(tool_name) <= 128";
/// The same as a number.
const TOOL_CHARS_MAX: usize = 128;
/// The condition of the index of unfinished runs, in the same words as the index.
pub(crate) const IS_UNFINISHED: &str = "status IN ('started', 'approval_required', 'approved')";
/// The condition of the index of runs that ended badly, in the same words as the index.
pub(crate) const IS_NOT_OK: &str = "status IN ('error', 'timeout', 'denied')";
/// The entries in a chunk. A chunk without any part was not written by Stepgate: it counts as an entry that no trace has.
pub(crate) const ENTRIES: &str =
    "CASE WHEN entries + checkpoints + records > 0 THEN entries ELSE 1 END";
/// Most names of tools that a part of a name is compared with.
pub(crate) const TOOLS_MAX: usize = 1000;

/// Where several indexes could find the rows of a list, each is counted up to so many rows, and the shortest is used.
pub(crate) const COUNTED_MAX: u64 = 10_000;

/// The query without a part of a name beside a whole name. None if the name does not have the part: no run fits.
pub(crate) fn with_one_name(query: RunQuery) -> Option<RunQuery> {
    let (Some(name), Some(RunText::ToolPart(part))) = (&query.tool_name, &query.text) else {
        return Some(query);
    };
    let fits = name.to_ascii_lowercase().contains(part);
    fits.then_some(RunQuery { text: None, ..query })
}

/// What finds the rows of a list of runs; the other conditions filter them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finder {
    /// The index of a session's runs.
    Session,
    /// The index of unfinished runs.
    Unfinished,
    /// The index of ids.
    Id,
    /// The index of tools. It has the principals, too.
    Tool,
    /// The index of runs that ended badly. It has the principals, too.
    NotOk,
    /// The indexes of a principal's sessions, and of their runs.
    Principal,
    /// All runs, from the newest.
    All,
}

impl Finder {
    /// The indexes that could find the rows, the best guess first. There is at least one.
    pub(crate) fn candidates(query: &RunQuery) -> Vec<Self> {
        let is_unfinished = query.status.is_some_and(|status| !status.is_final());
        let is_id = matches!(query.text, Some(RunText::IdPrefix(_)));
        let is_part = matches!(query.text, Some(RunText::ToolPart(_)));
        let is_indexed = |name: &String| name.chars().count() <= TOOL_CHARS_MAX;
        // These have few rows, or come in an order of their own.
        if query.session_id.is_some() {
            return vec![Self::Session];
        }
        if is_unfinished {
            return vec![Self::Unfinished];
        }
        if is_id {
            return vec![Self::Id];
        }
        let candidates = [
            (query.tool_name.as_ref().map_or(is_part, is_indexed), Self::Tool),
            (query.status.is_some_and(|status| status != Status::Ok), Self::NotOk),
            (query.principal_id.is_some(), Self::Principal),
        ];
        let fits = candidates.into_iter().filter_map(|(fits, it)| fits.then_some(it));
        let fitting: Vec<_> = fits.collect();
        if fitting.is_empty() { vec![Self::All] } else { fitting }
    }

    /// The candidate with the fewest rows.
    pub(crate) fn shortest(counted: impl IntoIterator<Item = (u64, Self)>) -> Self {
        let shortest = counted.into_iter().min_by_key(|(count, _)| *count);
        shortest.map_or(Self::All, |(_, finder)| finder)
    }
}

/// How far the time in a run's id may be from the order in which runs were written: nodes have clocks of their own,
/// and a commit can wait.
const SLACK_MS: u64 = 60 * 1000;
/// Ids at the border that are looked at, because runs are not written exactly in the order of their ids.
const BORDER: usize = 100;

/// The first position at which a run can be of the time or later. A run's id begins with the time at which it came, so
/// the index of ids finds the position; the exact time is compared besides. The mark stands for the value.
pub(crate) fn position_since(mark: &str) -> String {
    format!(
        "(SELECT min(position) FROM (SELECT position FROM tool_runs
           WHERE tool_run_id >= {mark} ORDER BY tool_run_id LIMIT {BORDER}) AS border)"
    )
}

/// The last position at which a run can be before the time.
pub(crate) fn position_until(mark: &str) -> String {
    format!(
        "(SELECT max(position) FROM (SELECT position FROM tool_runs
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

/// The text after all ids that begin with a prefix: it has only hexadecimal digits and hyphens.
pub(crate) fn after_prefix(prefix: &IdPrefix) -> String {
    format!("{}g", prefix.as_str())
}

/// The position that an archived run had.
pub(crate) const ARCHIVED_AT: &str =
    "(SELECT run_position FROM archived_runs WHERE archived_runs.tool_run_id = #)";

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    table: &'static str,
    id: &'static str,
    /// The column that rows are ordered by.
    pub(crate) column: &'static str,
}

impl Order {
    /// Rows come in the order in which they were written; those that a prefix finds, in the order of their ids.
    pub(crate) fn of(table: &'static str, id: &'static str, has_prefix: bool) -> Self {
        let column = if has_prefix { id } else { "position" };
        Self { table, id, column }
    }

    /// A condition for rows beyond the one with an id: `<` for those before it, `>` for those after it. `#`
    /// stands for the id.
    pub(crate) fn beyond(self, sign: char) -> String {
        let Self { table, id, column: by } = self;
        let place = format!("(SELECT {by} FROM {table} WHERE {id} = #)");
        match by == id {
            true => format!("{id} {sign} #"),
            false if table == "tool_runs" => {
                format!("{by} {sign} coalesce({place}, {ARCHIVED_AT})")
            }
            false => format!("{by} {sign} {place}"),
        }
    }
}
