//! Untrusted text on a page: invisible characters are made visible, and nothing changes the reading direction.

use askama::Template;
use serde_json::Value;
use stepgate_gateway::text::hidden;

/// Longest text that is shown without a click, in characters.
const SHORT_CHARS: usize = 280;
/// Most lines that are shown without a click.
const SHORT_LINES: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Plain(String),
    /// The number of an invisible character.
    Hidden(String),
    Break,
}

/// A text, split into pieces. The template escapes them.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(path = "text.html")]
pub(super) struct Text {
    pieces: Vec<Piece>,
}

/// The template has already escaped it.
impl askama::filters::HtmlSafe for Text {}

impl Text {
    pub(super) fn of(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        for c in text.chars() {
            let piece = match (c, hidden(c)) {
                ('\n', _) => Piece::Break,
                (_, Some(number)) => Piece::Hidden(number),
                (c, None) => {
                    plain.push(c);
                    continue;
                }
            };
            if !plain.is_empty() {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
        }
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        Self { pieces }
    }
}

/// A text that may be long: its beginning, and the whole text if that is longer.
#[derive(Debug, PartialEq, Eq, Template)]
#[template(path = "shown.html")]
pub(super) struct Shown {
    beginning: Text,
    whole: Option<Whole>,
}

impl askama::filters::HtmlSafe for Shown {}

/// The whole of a long text.
#[derive(Debug, PartialEq, Eq)]
struct Whole {
    text: Text,
    chars: String,
}

impl Shown {
    pub(super) fn of(text: &str) -> Self {
        match beginning(text) {
            None => Self { beginning: Text::of(text), whole: None },
            Some(beginning) => {
                let chars = with_commas(text.chars().count());
                let whole = Whole { text: Text::of(text), chars };
                Self { beginning: Text::of(beginning), whole: Some(whole) }
            }
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_none()
    }

    /// A value: a string as plain text, everything else as JSON.
    pub(super) fn value(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::of(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::of(&value.to_string()),
            Value::Array(_) | Value::Object(_) => Self::of(&format!("{value:#}")),
        }
    }
}

/// The beginning of a text that is too long to be shown at once; none if it is short enough.
fn beginning(text: &str) -> Option<&str> {
    let by_chars = text.char_indices().nth(SHORT_CHARS).map(|(at, _)| at);
    let by_lines = text.match_indices('\n').nth(SHORT_LINES - 1).map(|(at, _)| at);
    let at = by_chars.into_iter().chain(by_lines).min()?;
    text.get(..at)
}

/// The type of a value, so that the text `5` and the number 5 look different.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "yes or no",
        Value::Number(_) => "number",
        Value::String(text) if text.is_empty() => "text, empty",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
