//! Where a login redirects: to the page that was requested, and never to another site.

use std::fmt;

use super::super::routes;
use super::PAGES;

/// Longest path that is kept across a login.
const BYTES_MAX: usize = 256;

/// The path of one of our pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination(String);

impl Destination {
    /// Accepts only the plain path of a page that can be fetched with GET. Everything that a browser could read as
    /// another host (`//`, `/\`, a scheme, a control character that it drops) contains a character that none of our
    /// pages has.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-');
        let is_ours = text.len() <= BYTES_MAX
            && text.starts_with('/')
            && !text.contains("//")
            && text.chars().all(is_plain)
            && PAGES
                .iter()
                .any(|(page, methods, _)| methods.starts_with("GET") && routes::fits(page, text));
        (is_ours && !matches!(text, "/login" | "/live")).then(|| Self(text.to_owned()))
    }

    pub(super) fn after_login(&self) -> String {
        // No escaping needed: the path has no character with a meaning in a query.
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
