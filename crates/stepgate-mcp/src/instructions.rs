//! The instructions for clients: the gate's own text, then what tool servers say, quoted as theirs.

use stepgate_gateway::text;

const OWN: &str = "Every call passes a gate: it is validated, decided by policy, approved by \
     a person where policy says so, executed once and recorded. A call that waits for a person \
     answers with a notice or a task; the same call again, soon enough, gets its outcome. Say why you call \
     in _meta `stepgate/reasoning`, and name a call in _meta `stepgate/idempotency-key`: with the same \
     key it is never done twice, whenever you ask. Every result names its key in _meta.";

/// Most characters of one server's instructions that are passed on, and of all servers' together.
pub(super) const SERVER_CHARS_MAX: usize = 4096;
pub(super) const SUM_CHARS_MAX: usize = 16_384;

/// The gate's own text, then that of each server under its name. A server's text is quoted line by line, so that no
/// line of it reads as the gate's or as another server's.
pub(super) fn with<'a>(servers: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut all = OWN.to_owned();
    let mut left = SUM_CHARS_MAX;
    for (server, text) in servers {
        let quoted = quoted(text.trim());
        let chars = quoted.chars().count();
        // Continue, not break: a later text may be short enough.
        if chars > left {
            continue;
        }
        left -= chars;
        all.push_str(&format!("\n\nFrom the tool server `{server}`:\n{quoted}"));
    }
    all
}

/// A server's text, cut to its limit, with each line marked as a quotation.
fn quoted(text: &str) -> String {
    let text = text::shortened(&text::printable_lines(text), SERVER_CHARS_MAX);
    let lines: Vec<String> = text.split('\n').map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
