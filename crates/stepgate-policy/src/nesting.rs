//! Limits the nesting of a policy, before Cedar sees it.
//!
//! Cedar parses, validates and evaluates a policy by recursion. Beyond some depth its parser overflows the
//! stack, which ends the process; its validator stops without a finding, so that an unchecked policy would
//! be in force; and its evaluator fails with an error, sooner on a smaller stack. All three were observed
//! with version 4.14.

use crate::limits::{NESTING_MAX, OPERATORS_MAX, POLICY_BYTES_MAX};

/// The stack size for parsing and validating policies within these limits.
pub(crate) const STACK_BYTES: usize = 64 * 1024 * 1024;

/// The offset at which the first policy of a text exceeds a limit, and the remedy.
pub(crate) fn excess(text: &str) -> Option<(usize, String)> {
    let mut scan = Scan::default();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let at = text.len() - rest.len();
        let token = token_length(rest, c);
        let (word, after) = rest.split_at(token);
        if let Some(message) = scan.take(at, c, word) {
            return Some((at, message));
        }
        rest = after;
    }
    None
}

/// The counters of one policy so far.
#[derive(Default)]
struct Scan {
    brackets: usize,
    ifs: usize,
    /// Operators since the last condition ended: `a.b.c`, `1 + 2 + 3`, `a["b"]["c"]`.
    chain: usize,
    operators: usize,
    begin: usize,
    has_begun: bool,
}

impl Scan {
    /// Takes the next token; returns a message if it exceeds a limit.
    fn take(&mut self, at: usize, first: char, word: &str) -> Option<String> {
        let is_blank = first.is_whitespace() || word.starts_with("//");
        if is_blank && !self.has_begun {
            return None;
        }
        if !self.has_begun {
            (self.begin, self.has_begun) = (at, true);
        }
        self.operators += usize::from(is_operator(first));
        match first {
            '(' | '{' => self.brackets += 1,
            '[' => (self.brackets, self.chain) = (self.brackets + 1, self.chain + 1),
            ')' | ']' | '}' => self.brackets = self.brackets.saturating_sub(1),
            ';' if self.brackets == 0 => *self = Self::default(),
            ',' | '&' | '|' | '=' | '<' | '>' => self.chain = 0,
            _ if is_operator(first) => self.chain += 1,
            _ if word == "if" => self.ifs += 1,
            _ => {}
        }
        if self.brackets + self.ifs + self.chain > NESTING_MAX {
            return Some(format!("nested deeper than {NESTING_MAX}; split the policy"));
        }
        if self.operators > OPERATORS_MAX {
            return Some(format!("more than {OPERATORS_MAX} operators in one policy; split it"));
        }
        if self.has_begun && at - self.begin > POLICY_BYTES_MAX {
            return Some(format!("a policy of more than {POLICY_BYTES_MAX} bytes; split it"));
        }
        None
    }
}

fn is_operator(c: char) -> bool {
    "&|+-*.!<>=".contains(c)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the token at the beginning of a text: a comment, a string, a word, a run of operators, or
/// one character.
fn token_length(text: &str, first: char) -> usize {
    let until = |ends: &dyn Fn(char) -> bool| text.find(ends).unwrap_or(text.len());
    if text.starts_with("//") {
        return until(&|c| c == '\n' || c == '\r');
    }
    if first == '"' {
        return string_length(text);
    }
    if is_word(first) {
        return until(&|c| !is_word(c));
    }
    if is_operator(first) {
        return until(&|c| !is_operator(c));
    }
    first.len_utf8()
}

fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests;
