//! When two spellings are the same value, and when a value stands in a text.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Number;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::json::{Value, canonical};
use crate::text::is_ignorable;

/// Longest value that is looked for in a request. A longer one comes from the agent.
const VALUE_BYTES_MAX: usize = 4096;
/// Fewest letters and digits of a value that is looked for: a shorter one stands in a text by chance.
const SIGNS_MIN: usize = 3;
/// The same for a value of digits alone.
const DIGITS_MIN: usize = 6;
/// Fewest characters of a number that is looked for.
const NUMBER_CHARS_MIN: usize = 3;
/// Places of a text that are looked at for one value.
const PLACES_MAX: usize = 1000;

/// A value in the one spelling in which values are compared.
///
/// NFC; runs of white space are one space; no `http://` or `https://`; ASCII letters are small, except in the path of an
/// address, where servers tell them apart. Nothing else is folded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spelled(String);

impl Spelled {
    pub(crate) fn of(text: &str) -> Self {
        let normal: String = text.nfc().collect();
        let words: Vec<String> = normal.split_whitespace().map(word).collect();
        Self(words.join(" "))
    }

    /// The spelling of a text or a number; none for anything else, and for what is blank.
    pub(crate) fn of_leaf(leaf: &Value) -> Option<Self> {
        let spelled = match leaf {
            Value::String(text) => Self::of(text),
            Value::Number(number) => Self(number_text(number)),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        Some(spelled).filter(|spelled| !spelled.0.is_empty())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is long enough to be looked for in a text.
    fn is_telling(&self) -> bool {
        let signs = self.0.chars().filter(|c| c.is_alphanumeric());
        let (count, all_digits) =
            signs.fold((0, true), |(count, digits), c| (count + 1, digits && c.is_numeric()));
        let least = if all_digits { DIGITS_MIN } else { SIGNS_MIN };
        count >= least && self.0.len() <= VALUE_BYTES_MAX
    }
}

/// A word without the scheme of an address, in small letters up to the path.
fn word(text: &str) -> String {
    let text = without_scheme(text);
    let path = text.find(['/', '?', '#']).unwrap_or(text.len());
    let (host, path) = text.split_at(path);
    host.to_ascii_lowercase() + path
}

/// Only a scheme that is a word of its own, or follows a sign such as a bracket, is left out.
fn without_scheme(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let is_scheme = |start: usize| {
        let before = lower.get(..start).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    };
    let found = ["http://", "https://"].into_iter().find_map(|scheme| {
        let start = lower.find(scheme).filter(|start| is_scheme(*start))?;
        Some((start, start + scheme.len()))
    });
    match found {
        Some((start, end)) => {
            let (before, after) = (text.get(..start), text.get(end..));
            before.unwrap_or_default().to_owned() + after.unwrap_or_default()
        }
        None => text.to_owned(),
    }
}

/// The shortest spelling of a number: `1100.0` is `1100`. Integers are exact, also beyond 2^53.
pub(super) fn number_text(number: &Number) -> String {
    match (number.as_i64(), number.as_u64()) {
        (Some(integer), _) => integer.to_string(),
        (None, Some(integer)) => integer.to_string(),
        (None, None) => canonical::text_of(number),
    }
}

/// What a user said, ready to be searched.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestText {
    text: String,
    /// The numbers in it, in their shortest spelling.
    numbers: BTreeSet<String>,
}

impl RequestText {
    pub(crate) fn of(text: &str) -> Self {
        Self { text: Spelled::of(text).0, numbers: numbers_in(text) }
    }

    /// Whether a leaf of an argument stands in it.
    pub(crate) fn has(&self, leaf: &Value, spelled: &Spelled) -> bool {
        match leaf {
            Value::Number(_) => {
                spelled.0.chars().count() >= NUMBER_CHARS_MIN && self.numbers.contains(&spelled.0)
            }
            Value::String(_) => self.has_text(spelled),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        }
    }

    /// Whether a value stands in it as a whole: neither the sign before it nor the one after it belongs to it.
    pub(crate) fn has_text(&self, value: &Spelled) -> bool {
        if !value.is_telling() {
            return false;
        }
        let mut from = 0;
        for _ in 0..PLACES_MAX {
            let Some(found) = self.text.get(from..).and_then(|rest| rest.find(&value.0)) else {
                return false;
            };
            let start = from + found;
            let (before, after) = (self.text.get(..start), self.text.get(start + value.0.len()..));
            if begins_after(before.unwrap_or_default()) && ends_before(after.unwrap_or_default()) {
                return true;
            }
            let first = self.text.get(start..).and_then(|rest| rest.chars().next());
            from = start + first.map_or(1, char::len_utf8);
        }
        false
    }
}

/// Signs beside which a value goes on.
const JOINERS: &str = "_-@/\\%=&+~#$*";

fn begins_after(before: &str) -> bool {
    before.chars().next_back().is_none_or(|c| !belongs(c) && !".:".contains(c))
}

/// After a full stop and the like a value goes on only where a letter or digit follows at once.
fn ends_before(after: &str) -> bool {
    let mut signs = after.chars();
    match (signs.next(), signs.next()) {
        (None, _) => true,
        (Some(stop), next) if ".:,?!;".contains(stop) => !next.is_some_and(is_of_word),
        (Some(sign), _) => !belongs(sign),
    }
}

fn belongs(c: char) -> bool {
    is_of_word(c) || JOINERS.contains(c)
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c) || is_ignorable(c)
}

/// The numbers in a text: digits, with commas between thousands and a point before the decimals.
fn numbers_in(text: &str) -> BTreeSet<String> {
    #[expect(clippy::expect_used, reason = "a constant pattern, which a test compiles")]
    static NUMBER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[0-9][0-9,.]*").expect("a valid pattern"));
    let whole = |found: regex::Match<'_>| {
        let (before, after) = (text.get(..found.start())?, text.get(found.end()..)?);
        let before = before.chars().next_back();
        let is_alone = !before.is_some_and(|c| is_of_word(c) || "_-@/\\.,:".contains(c))
            && !after.chars().next().is_some_and(|c| is_of_word(c) || "_-@/\\:".contains(c));
        is_alone.then(|| number(found.as_str().trim_end_matches([',', '.']))).flatten()
    };
    NUMBER.find_iter(text).filter_map(whole).collect()
}

/// The shortest spelling of `1,100.50`; none where the commas are not between thousands.
fn number(text: &str) -> Option<String> {
    let (integer, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let mut groups = integer.split(',');
    let first = groups.next()?;
    let is_grouped = groups.clone().next().is_none() || first.len() <= 3;
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let are_valid = are_digits(first)
        && are_digits(decimals)
        && groups.all(|group| group.len() == 3 && are_digits(group));
    if !is_grouped || !are_valid {
        return None;
    }
    let value: f64 = format!("{}.{decimals}", integer.replace(',', "")).parse().ok()?;
    Number::from_f64(value).map(|number| canonical::text_of(&number))
}

#[cfg(test)]
mod tests;
