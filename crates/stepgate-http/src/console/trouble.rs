//! Errors as HTML pages: words for people, and nothing about the host.

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use stepgate_core::journal::StateError;
use stepgate_gateway::text::{capitalised, printable};

use super::{Frame, html};
use crate::Problem;

#[derive(Debug)]
pub(crate) struct Trouble {
    status: StatusCode,
    title: &'static str,
    words: String,
    /// Where to go from here: URL and link text.
    way_out: Option<(String, &'static str)>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Template)]
#[template(path = "trouble.html")]
struct TroublePage {
    frame: Frame,
    words: String,
    way_out: Option<(String, &'static str)>,
}

impl Trouble {
    fn new(status: StatusCode, title: &'static str, words: impl Into<String>) -> Self {
        Self { status, title, words: words.into(), way_out: None, headers: Vec::new() }
    }

    /// The visitor is not logged in, so nothing was done.
    pub(super) fn not_logged_in(login: String) -> Self {
        let words = "Your login has ended, so nothing was done. Log in and look again.";
        let trouble = Self::new(StatusCode::UNAUTHORIZED, "You are not logged in", words);
        Self { way_out: Some((login, "Log in")), ..trouble }
    }

    /// There is nothing of this kind with the id in the address.
    pub(super) fn no_such(kind: &'static str) -> Self {
        let words =
            format!("No {kind} has this id. Look at the address: it may have been cut off.");
        Self::new(StatusCode::NOT_FOUND, "There is no such page", words)
    }

    pub(super) fn archived(file: Option<&str>) -> Self {
        let file = file.map(|file| format!(" `{file}`")).unwrap_or_default();
        let words =
            format!("This run has left the store. Its archive{file} has everything about it.");
        Self::new(StatusCode::GONE, "This run is archived", words)
    }

    /// A run whose journal was changed.
    pub(super) fn does_not_verify(error: &StateError) -> Self {
        let words = format!(
            "What is stored of this run is not what was written: {}. Nothing goes on with it, and \
             `stepgate verify` names everything that does not hold.",
            printable(&error.detail)
        );
        Self::new(StatusCode::CONFLICT, "This run does not verify", words)
    }

    /// A form that was not made for this login (wrong CSRF token).
    pub(super) fn foreign_form() -> Self {
        let words = "The form was not made for your present login, so nothing was done. Open the page \
                     again and send it from there.";
        Self::new(StatusCode::FORBIDDEN, "This form is not good any more", words)
    }

    pub(super) fn only_looks() -> Self {
        let words = "Nothing was done: auditors look, and operators decide.";
        Self::new(StatusCode::FORBIDDEN, "You may not do that", words)
    }

    /// A form that was sent from another site.
    pub(super) fn foreign_origin() -> Self {
        let words = "The form came from another address than Stepgate's own, so nothing was done. If \
                     a proxy stands in front of Stepgate, its configuration must name the proxy's \
                     address: serve.public_url.";
        Self::new(StatusCode::FORBIDDEN, "This form came from elsewhere", words)
    }
}

/// Programs get a code; people get words.
impl<E: Into<Problem>> From<E> for Trouble {
    fn from(problem: E) -> Self {
        let (status, message, headers) = problem.into().into_parts();
        let (title, words) = match status {
            StatusCode::FORBIDDEN => ("You may not do that", String::new()),
            StatusCode::NOT_FOUND => ("There is no such page", String::new()),
            StatusCode::METHOD_NOT_ALLOWED => ("This page does not take that", String::new()),
            StatusCode::CONFLICT => ("This has changed meanwhile", sentence(&message)),
            StatusCode::REQUEST_TIMEOUT => ("That took too long", sentence(&message)),
            StatusCode::TOO_MANY_REQUESTS => {
                ("Too many tries", "Wait a moment, and try again.".to_owned())
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::INTERNAL_SERVER_ERROR => (
                "Stepgate itself failed",
                "It is not known whether your request was carried out. Open the page again to see \
                 the present state."
                    .to_owned(),
            ),
            _ => ("That cannot be understood", sentence(&message)),
        };
        Self { headers, ..Self::new(status, title, words) }
    }
}

/// Turns a message for programs into a sentence for people.
fn sentence(message: &str) -> String {
    format!("{}.", capitalised(message))
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let Self { status, title, words, way_out, headers } = self;
        let page = TroublePage { frame: Frame::new(title, None), words, way_out };
        let mut response = html(status, &page);
        response.headers_mut().extend(headers);
        response
    }
}
