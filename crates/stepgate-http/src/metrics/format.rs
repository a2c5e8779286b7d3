//! The two text formats: OpenMetrics, and Prometheus's own for clients that do not ask for it.

use axum::http::{HeaderMap, header};

const OPEN_METRICS: &str = "application/openmetrics-text";

/// The format that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    pub(crate) fn asked(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter();
        let mut accepted = accepted.filter_map(|value| value.to_str().ok());
        match accepted.any(|text| text.contains(OPEN_METRICS)) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A text of OpenMetrics in this format. In Prometheus's own, a counter is named with its suffix, and the end is not
    /// marked.
    pub(super) fn of(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Prometheus => plain(&text),
        }
    }
}

fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut lines = text.lines().filter(|line| *line != "# EOF").peekable();
    while let Some(line) = lines.next() {
        let is_counter = match line.strip_prefix("# HELP ") {
            Some(_) => lines.peek().is_some_and(|next| next.ends_with(" counter")),
            None => line.starts_with("# TYPE ") && line.ends_with(" counter"),
        };
        match line.splitn(4, ' ').collect::<Vec<_>>().as_slice() {
            [hash, what, name, rest] if is_counter => {
                plain.push_str(&format!("{hash} {what} {name}_total {rest}\n"));
            }
            _ => {
                plain.push_str(line);
                plain.push('\n');
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests;
