//! The output of a chat. The model's text is untrusted: only printable characters reach the terminal.

use serde_json::{Value, json};

use crate::show::{self, DIM, ERROR, GOOD, WAITING};

/// Longest arguments that are shown of a call that needs no approval; the approval shows all.
const ARGUMENTS_CHARS_MAX: usize = 400;

/// Error codes after which the same request may still get an answer.
const PASSING: [&str; 6] = [
    "MODEL_TIMED_OUT",
    "MODEL_UNAVAILABLE",
    "MODEL_REFUSED",
    "TURN_IN_PROGRESS",
    "UNAVAILABLE",
    "INTERNAL",
];
/// Error codes of a turn that is over.
const OVER: [&str; 4] =
    ["CONVERSATION_TOO_LONG", "MODEL_OUTPUT_INVALID", "ROUNDS_EXHAUSTED", "TURN_CANCELLED"];

pub(super) struct Teller {
    json: bool,
    /// Whether the last output line is not ended yet.
    in_line: bool,
    /// Whether the model's last answer was already shown in pieces.
    has_told: bool,
}

/// The kind of failure of a turn without an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Temporary: the same request may still get an answer.
    Passing,
    /// The turn is over, and may have had effects.
    Over,
    Refused,
}

impl Teller {
    pub(super) fn new(json: bool) -> Self {
        Self { json, in_line: false, has_told: false }
    }

    pub(super) fn event(&mut self, name: &str, data: &Value) -> anyhow::Result<()> {
        if self.json {
            return show::json(&json!({ "event": name, "data": data }));
        }
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        match name {
            "opened" => {
                self.has_told = false;
                Ok(())
            }
            "text" => self.text(text("text")),
            "answered" => self.end_line(),
            "tool_call" => {
                // After its calls the model generates another answer.
                self.has_told = false;
                let arguments = show::printable(text("argumentsJson"));
                let arguments = show::shortened(&arguments, ARGUMENTS_CHARS_MAX);
                self.line(format!("{DIM}→{DIM:#} {} {arguments}", show::printable(text("action"))))
            }
            "waiting" => self.line(format!("  {WAITING}waiting for a person{WAITING:#}")),
            "tool_result" => {
                let outcome = show::printable(text("outcome"));
                let style = if outcome == "SUCCESS" { GOOD } else { ERROR };
                let run = show::printable(text("runId"));
                self.line(format!("  {style}{outcome}{style:#} {DIM}run {run}{DIM:#}"))
            }
            "response" => {
                // A recorded answer comes as a whole, not in pieces.
                if !self.has_told {
                    self.text(text("primaryOutputText"))?;
                }
                self.warnings(data)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn failure(&mut self, result: &Value) -> anyhow::Result<Failure> {
        self.end_line()?;
        let errors = result.get("errors").and_then(Value::as_array);
        let mut failure = Failure::Refused;
        for error in errors.into_iter().flatten() {
            let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
            let (code, message) = (show::printable(text("code")), show::printable(text("message")));
            if PASSING.contains(&code.as_str()) {
                failure = Failure::Passing;
            } else if OVER.contains(&code.as_str()) {
                failure = Failure::Over;
            }
            show::note(format!("{ERROR}{code}{ERROR:#} {message}"));
        }
        if failure == Failure::Passing {
            show::note("an empty line asks again");
        }
        Ok(failure)
    }

    fn warnings(&mut self, response: &Value) -> anyhow::Result<()> {
        self.end_line()?;
        let warnings = response.get("userWarnings").and_then(Value::as_array);
        for warning in warnings.into_iter().flatten().filter_map(Value::as_str) {
            show::note(show::printable(warning));
        }
        Ok(())
    }

    fn text(&mut self, piece: &str) -> anyhow::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        show::say_piece(show::printable_lines(piece))?;
        self.in_line = !piece.ends_with('\n');
        self.has_told = true;
        Ok(())
    }

    fn line(&mut self, text: String) -> anyhow::Result<()> {
        self.end_line()?;
        show::say(text)
    }

    fn end_line(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.in_line) {
            show::say("")?;
        }
        Ok(())
    }
}
