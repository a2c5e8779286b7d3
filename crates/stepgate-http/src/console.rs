//! The console: HTML pages for people, rendered by the server, behind a login, without scripts.
//!
//! A login is valid only for these pages. `/v1` and `/mcp` accept only tokens; these pages accept only the cookie
//! that was issued in exchange for a token.

mod approval;
mod destination;
mod form;
mod login;
mod logins;
mod text;
mod trouble;
mod visitor;

use std::sync::Arc;

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};

use super::{App, Problem, routes};

pub(super) use logins::Logins;
pub(super) use trouble::Trouble;
use visitor::Visitor;
pub(super) use visitor::enter;

/// Every method of every page. They are not in the table of routes, because the OpenAPI document is for programs.
const PAGES: [(&str, &str); 6] = [
    ("GET", "/approvals/{id}"),
    ("POST", "/approvals/{id}"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/style.css"),
];

/// The pages with their handlers.
pub(super) fn pages() -> [(&'static str, MethodRouter<Arc<App>>); 4] {
    [
        ("/approvals/{id}", routing::get(approval::show).post(approval::decide)),
        ("/login", routing::get(login::ask).post(login::log_in)),
        ("/logout", routing::post(login::log_out)),
        ("/style.css", routing::get(style)),
    ]
}

/// The methods that a page has.
pub(super) fn methods_of(path: &str) -> impl Iterator<Item = &'static str> {
    PAGES.iter().filter(move |(_, page)| routes::fits(page, path)).map(|(method, _)| *method)
}

/// Whether a path is one of these pages.
pub(super) fn is_page(path: &str) -> bool {
    methods_of(path).next().is_some()
}

/// A problem in the form of its path: an HTML page or JSON.
pub(super) fn refused(path: &str, problem: Problem) -> Response {
    match is_page(path) {
        true => Trouble::from(problem).into_response(),
        false => problem.into_response(),
    }
}

/// Security headers of every page: no scripts, no resources except our style sheet, no embedding in frames, and no
/// referrer to other sites.
///
/// The referrer policy is `same-origin`, not `no-referrer`: with the latter, browsers also send `Origin: null` from our
/// own forms, and we could not tell them from forms of other sites.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; \
         base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the security headers to a page's response. `Cache-Control: no-store` is added to every response elsewhere.
pub(super) fn add_security_headers(response: &mut Response) {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

/// The layout around every page.
struct Frame {
    title: String,
    visitor: Option<Visitor>,
}

impl Frame {
    fn new(title: impl Into<String>, visitor: Option<&Visitor>) -> Self {
        Self { title: title.into(), visitor: visitor.cloned() }
    }
}

/// Renders a whole page.
fn html(status: StatusCode, page: &impl Template) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    match page.render() {
        Ok(text) => (status, [(header::CONTENT_TYPE, kind)], text).into_response(),
        // Never happens: rendering into memory does not fail.
        Err(_) => Problem::internal().into_response(),
    }
}

async fn style() -> Response {
    let kind = HeaderValue::from_static("text/css; charset=utf-8");
    let text = include_str!("../templates/style.css");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
