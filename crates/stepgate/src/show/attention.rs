//! What needs a person, as lines for people.

use stepgate_gateway::attention::NeedObject;

use super::{ERROR, Times, printable};

/// One line: what it is about, the reason, and what to do. The reason may repeat untrusted text.
pub(crate) fn line(need: &NeedObject) -> String {
    let NeedObject { subject, kind, reason, way_out, .. } = need;
    let (kind, reason) = (printable(kind).replace('_', " "), printable(reason));
    let (subject, way_out) = (printable(subject), printable(way_out));
    format!("{ERROR}{kind}:{ERROR:#} {subject}: {reason}; {way_out}")
}

/// The same on three lines, with the time.
pub(crate) fn block(need: &NeedObject, times: Times) -> String {
    let NeedObject { subject, kind, reason, since, way_out, .. } = need;
    let (kind, reason) = (printable(kind).replace('_', " "), printable(reason));
    let (subject, way_out) = (printable(subject), printable(way_out));
    let since = times.past(*since);
    format!("{ERROR}{kind}{ERROR:#}  {subject}  {since}\n  why  {reason}\n  do   {way_out}")
}

#[cfg(test)]
mod tests;
