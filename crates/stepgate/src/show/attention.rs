//! Runs that need a person, as lines for people.

use stepgate_gateway::attention::NeedObject;

use super::{ERROR, printable};

/// One line: the run, the reason, and what to do. The reason may repeat untrusted text.
pub(crate) fn line(need: &NeedObject) -> String {
    let NeedObject { run_id, kind, reason, since: _, way_out } = need;
    let (kind, reason) = (printable(kind).replace('_', " "), printable(reason));
    format!("{ERROR}{kind}:{ERROR:#} {run_id}: {reason}; {}", printable(way_out))
}

#[cfg(test)]
mod tests;
