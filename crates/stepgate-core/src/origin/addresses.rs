//! The addresses in a text: where something could be sent, or fetched from.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization;

use crate::text::is_ignorable;

/// Digits that a telephone or account number has at least.
const DIGITS_MIN: usize = 9;

#[expect(clippy::expect_used, reason = "constant patterns, which a test compiles")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// A host name or an IPv4 address anywhere in a piece.
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"[\p{L}\p{N}](?:[\w-]*[\p{L}\p{N}])?\.\p{L}{2,}|(?i:xn--)|\d+\.\d+\.\d+\.\d+")
});
/// Something on both sides of an `@`.
static MAIL: LazyLock<Regex> = LazyLock::new(|| pattern(r"\S@\S"));
/// Schemes without `//`.
static SCHEME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?i:mailto|tel|sms|data|javascript):"));
/// A point, or an `at`, in brackets: `evil[.]example`.
static HIDDEN_POINT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\s*[\[({]\s*(?i:\.|dot)\s*[\])}]\s*"));
static HIDDEN_AT: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s*[\[({]\s*(?i:@|at)\s*[\])}]\s*"));
/// A date or a time is no number of a telephone.
static DATE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\d(?:[ Tt]\d\d:\d\d(?::\d\d)?)?"));
static LONG_NUMBER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:^|[^\p{L}\p{N}])((?:\+|[A-Za-z]{2})?\d(?:[ ()./-]{0,2}\d){8,})"));

/// Each piece between white space, quotes, brackets, commas and semicolons that has a host name, an `@`, a scheme or
/// nine digits in it, whole; and nine or more digits with separators. Disguises are undone first: other forms of the
/// same letters, invisible characters, points in brackets.
pub(crate) fn addresses_in(text: &str) -> BTreeSet<String> {
    let plain: String = text.chars().map(plain_sign).nfkc().filter(|c| !is_ignorable(*c)).collect();
    let plain = HIDDEN_POINT.replace_all(&plain, ".");
    let plain = HIDDEN_AT.replace_all(&plain, "@");
    let mut found = BTreeSet::new();
    // What is left when the addresses are taken out.
    let mut rest = String::with_capacity(plain.len());
    for piece in plain.split_inclusive(is_border) {
        let (body, border) = match piece.char_indices().next_back() {
            Some((at, last)) if is_border(last) => piece.split_at(at),
            Some(_) | None => (piece, ""),
        };
        let trimmed = body.trim_matches(|c| ".:!?*_~-".contains(c));
        match is_address(trimmed) {
            true => {
                found.insert(trimmed.to_owned());
                rest.push('|');
            }
            false => rest.push_str(body),
        }
        rest.push_str(border);
    }
    let rest = DATE.replace_all(&rest, "|");
    let numbers = LONG_NUMBER.captures_iter(&rest).filter_map(|number| number.get(1));
    found.extend(numbers.map(|number| number.as_str().to_owned()));
    found
}

fn is_border(c: char) -> bool {
    c.is_whitespace() || "<>\"'`|,;(){}[]“”‘’«»".contains(c)
}

fn is_address(piece: &str) -> bool {
    let digits = || piece.chars().filter(char::is_ascii_digit).count() >= DIGITS_MIN;
    let is_date = || piece.chars().all(|c| c.is_ascii_digit() || ":.tT/-".contains(c));
    HOST.is_match(piece)
        || piece.contains("://")
        || MAIL.is_match(piece)
        || SCHEME.is_match(piece)
        || (digits() && !is_date())
}

/// Signs that look like a point or an `@`, and that no normal form turns into one.
fn plain_sign(c: char) -> char {
    match c {
        '。' | '．' | '｡' | '․' => '.',
        '＠' | '﹫' => '@',
        other => other,
    }
}

#[cfg(test)]
mod tests;
