//! Two texts compared line by line: what would change.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use super::Text;

/// Longest text that is compared. Comparing takes longer than proportional time.
const BYTES_MAX: usize = 128 * 1024;
/// Longest time for one comparison. After that it is less exact, and still right.
const TIMEOUT: Duration = Duration::from_millis(50);
/// Unchanged lines that are shown around a change.
const AROUND: usize = 3;
/// Most lines that are shown.
const LINES_MAX: usize = 2000;

/// How two texts differ.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// The lines that change, with a few around them.
    Lines(Vec<Line>),
    /// They are equal.
    None,
    /// They are too long to be compared on a page.
    TooLong,
    /// What is there cannot be read as text.
    Unknown,
}

/// A line of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) class: &'static str,
    pub(super) mark: &'static str,
    /// For screen readers, which do not read a colour.
    pub(super) spoken: &'static str,
    pub(super) text: Text,
}

impl Difference {
    pub(super) fn between(before: &str, after: &str) -> Self {
        if before == after {
            return Self::None;
        }
        if before.len().max(after.len()) > BYTES_MAX {
            return Self::TooLong;
        }
        let compared = TextDiff::configure().timeout(TIMEOUT).diff_lines(before, after);
        let mut lines = Vec::new();
        for (at, group) in compared.grouped_ops(AROUND).iter().enumerate() {
            if at > 0 {
                lines.push(Line { class: "gap", mark: "⋯", spoken: "", text: Text::of("") });
            }
            for change in group.iter().flat_map(|part| compared.iter_changes(part)) {
                if lines.len() == LINES_MAX {
                    return Self::TooLong;
                }
                lines.push(line(change.tag(), change.value()));
            }
        }
        Self::Lines(lines)
    }

    pub(super) fn sides(&self) -> Vec<Sides<'_>> {
        match self {
            Self::Lines(lines) => side_by_side(lines),
            Self::None | Self::TooLong | Self::Unknown => Vec::new(),
        }
    }
}

/// A line of the text before beside the line of the text after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sides<'a> {
    pub(super) before: Option<&'a Line>,
    pub(super) after: Option<&'a Line>,
}

/// The lines of both texts side by side: what was removed beside what came in its place.
fn side_by_side(lines: &[Line]) -> Vec<Sides<'_>> {
    let mut rows: Vec<Sides<'_>> = Vec::new();
    // The row of the present change where the next added line goes.
    let mut next_added = 0;
    for line in lines {
        match line.class {
            "removed" => rows.push(Sides { before: Some(line), after: None }),
            "added" => {
                match rows.get_mut(next_added) {
                    Some(row) => row.after = Some(line),
                    None => rows.push(Sides { before: None, after: Some(line) }),
                }
                next_added += 1;
            }
            _ => {
                rows.push(Sides { before: Some(line), after: Some(line) });
                next_added = rows.len();
            }
        }
    }
    rows
}

fn line(tag: ChangeTag, text: &str) -> Line {
    let (class, mark, spoken) = match tag {
        ChangeTag::Equal => ("same", " ", ""),
        ChangeTag::Delete => ("removed", "−", "removed: "),
        ChangeTag::Insert => ("added", "+", "added: "),
    };
    Line { class, mark, spoken, text: Text::of(text.strip_suffix('\n').unwrap_or(text)) }
}

#[cfg(test)]
mod tests;
