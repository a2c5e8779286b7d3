//! Where a login leads: back to the page that was asked for, and never out of the house.

use std::fmt;

use super::super::routes;
use super::PAGES;

/// Longest path that is remembered over a login.
const BYTES_MAX: usize = 256;

/// The path of a page of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination(String);

impl Destination {
    /// Accepts nothing but the plain path of a page that can be looked at. Whatever a browser could
    /// take for another host (`//`, `/\`, a scheme, a control character that it drops) has a character
    /// that no page of ours has.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-');
        let is_ours = text.len() <= BYTES_MAX
            && text.starts_with('/')
            && !text.contains("//")
            && text.chars().all(is_plain)
            && PAGES.iter().any(|(method, page)| *method == "GET" && routes::fits(page, text));
        (is_ours && text != "/login").then(|| Self(text.to_owned()))
    }

    /// The login that leads here.
    pub(super) fn after_login(&self) -> String {
        // Nothing in it means anything in a query.
        format!("/login?next={self}")
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
