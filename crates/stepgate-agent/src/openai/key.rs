//! The key of an endpoint, and how it is kept out of the endpoint's texts.

use std::fmt;

use crate::envelope::ToolCall;
use crate::model::Completion;

/// Shortest key that is searched for in answers. A shorter one is a placeholder such as `ollama`, for
/// endpoints that require any key at all, and a model may well say that word.
const SECRET_BYTES_MIN: usize = 16;
const MASK: &str = "***";

/// The key of an endpoint. It has no `Debug` that shows it.
#[derive(Clone)]
pub struct ModelKey(String);

impl ModelKey {
    /// A key from the environment or a file.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The value of the authorization header.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// A text without the key, for the operator. Some endpoints write JSON with each slash escaped.
    pub(super) fn masked(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        text.replace(&self.0, MASK).replace(&self.0.replace('/', "\\/"), MASK)
    }

    /// Whether an answer repeats the key. Answers are never changed, so such an answer is refused.
    pub(super) fn is_in(&self, completion: &Completion) -> bool {
        let Completion { model, text, calls, usage: _, cut_off: _ } = completion;
        let of_calls = calls.iter().flat_map(|call| {
            let ToolCall { tool_call_id, name, arguments_json } = call;
            [tool_call_id, name, arguments_json]
        });
        let mut texts = of_calls.chain(text).chain([model]);
        self.is_secret() && texts.any(|text| text.contains(&self.0))
    }

    /// The length of the prefix of an unfinished text that may be shown: up to where the key may begin.
    pub(super) fn tellable(&self, text: &str) -> usize {
        if !self.is_secret() {
            return text.len();
        }
        if let Some(place) = text.find(&self.0) {
            return place;
        }
        let begun = (1..self.0.len()).rev().find(|length| {
            self.0.get(..*length).is_some_and(|beginning| text.ends_with(beginning))
        });
        text.len() - begun.unwrap_or(0)
    }

    fn is_secret(&self) -> bool {
        self.0.len() >= SECRET_BYTES_MIN
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelKey(…)")
    }
}
