//! Runs that need a person, as people are told of them.

use stepgate_gateway::attention::NeedObject;

use super::{ERROR, printable};

/// One line: which run, why, and the way out. The reason may repeat text from outside.
pub(crate) fn line(need: &NeedObject) -> String {
    let NeedObject { run_id, kind, reason, since: _, way_out } = need;
    let (kind, reason) = (printable(kind).replace('_', " "), printable(reason));
    format!("{ERROR}{kind}:{ERROR:#} {run_id}: {reason}; {}", printable(way_out))
}

#[cfg(test)]
mod tests;
