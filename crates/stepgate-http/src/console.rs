//! The console: HTML pages for people, rendered by the server, behind a login. One script of our own keeps an open page
//! current and recomputes digests; every page works without it.
//!
//! A login is valid only for these pages. `/v1` and `/mcp` accept only tokens; these pages accept only the cookie
//! that was issued in exchange for a token.

mod approval;
mod destination;
mod difference;
mod form;
mod grants;
mod health;
mod inbox;
mod live;
mod login;
mod logins;
mod moment;
mod policy;
mod question;
mod replay;
mod run;
mod runs;
mod sessions;
mod stops;
mod text;
mod tools;
mod trouble;
mod turns;
mod visitor;

use std::sync::Arc;

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};

use super::{App, Problem, routes};

pub(super) use logins::Logins;
use moment::{Moment, ago, duration, left};
use text::{Shown, Text};
pub(super) use trouble::Trouble;
pub(super) use visitor::enter;
use visitor::{Visit, Visitor, VisitorRole};

const SCRIPT: &str = include_str!("../templates/console.js");
const STYLE: &str = include_str!("../templates/style.css");

/// The path of a page, its methods, and what answers them.
type Page = (&'static str, &'static str, fn() -> MethodRouter<Arc<App>>);

/// Every page. They are not in the table of routes, because the OpenAPI document is for programs.
pub(super) const PAGES: [Page; 23] = [
    ("/", "GET, POST", || routing::get(inbox::show).post(inbox::decide)),
    ("/approvals/{id}", "GET, POST", || routing::get(approval::show).post(approval::decide)),
    ("/approvals/{id}/grant", "GET, POST", || routing::get(grants::ask).post(grants::create)),
    ("/grants", "GET, POST", || routing::get(grants::list).post(grants::revoke)),
    ("/stops", "GET, POST", || routing::get(stops::list).post(stops::make)),
    ("/stops/{id}/lift", "POST", || routing::post(stops::lift)),
    ("/runs", "GET", || routing::get(runs::list)),
    ("/runs/{id}", "GET, POST", || routing::get(run::show).post(run::settle)),
    ("/runs/{id}/chain", "GET", || routing::get(run::chain)),
    ("/runs/{id}/export", "GET", || routing::get(run::export)),
    ("/sessions", "GET", || routing::get(sessions::list)),
    ("/sessions/{id}", "GET", || routing::get(sessions::show)),
    ("/turns/{id}", "GET", || routing::get(turns::show)),
    ("/tools", "GET", || routing::get(tools::list)),
    ("/tools/{id}", "GET, POST", || routing::get(tools::show).post(tools::accept)),
    ("/policy", "GET, POST", || routing::get(policy::show).post(policy::evaluate)),
    ("/policy/replay", "GET, POST", || routing::get(replay::ask).post(replay::replay)),
    ("/health", "GET", || routing::get(health::show)),
    ("/login", "GET, POST", || routing::get(login::ask).post(login::log_in)),
    ("/logout", "POST", || routing::post(login::log_out)),
    ("/live", "GET", || routing::get(live::follow)),
    ("/console.js", "GET", || file("text/javascript; charset=utf-8", SCRIPT)),
    ("/style.css", "GET", || file("text/css; charset=utf-8", STYLE)),
];

pub(super) fn methods_of(path: &str) -> impl Iterator<Item = &'static str> + use<> {
    let page = PAGES.iter().find(|(page, ..)| routes::fits(page, path));
    page.into_iter().flat_map(|(_, methods, _)| methods.split(", "))
}

pub(super) fn is_page(path: &str) -> bool {
    // Asked for every request, most of which are none.
    !path.starts_with("/v1/") && methods_of(path).next().is_some()
}

/// A problem in the form of its path: an HTML page or JSON.
pub(super) fn refused(path: &str, problem: Problem) -> Response {
    if is_page(path) { Trouble::from(problem).into_response() } else { problem.into_response() }
}

/// Security headers of every page: no resources except our style sheet and our script, which talks to nothing else, no
/// embedding in frames, and no referrer to other sites.
///
/// The referrer policy is `same-origin`, not `no-referrer`: with the latter, browsers also send `Origin: null` from our
/// own forms, and we could not tell them from forms of other sites.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
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

struct Frame {
    title: String,
    /// The place of the page in the navigation.
    tab: Option<Tab>,
    visitor: Option<Visitor>,
}

impl Frame {
    fn new(title: impl Into<String>, visitor: Option<&Visitor>) -> Self {
        Self { title: title.into(), tab: None, visitor: visitor.cloned() }
    }

    /// The frame of a page that belongs to a part of the console.
    fn at(tab: Tab, title: impl Into<String>, visitor: &Visitor) -> Self {
        Self { tab: Some(tab), ..Self::new(title, Some(visitor)) }
    }

    /// The parts of the console: path, name, and whether the page belongs to it.
    fn tabs(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        Tab::ALL.into_iter().map(|(tab, path, name)| (path, name, self.tab == Some(tab)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tab {
    Inbox,
    Grants,
    Runs,
    Sessions,
    Tools,
    Policy,
    Health,
    Stops,
}

impl Tab {
    /// Every part with its path and name, in the order of the navigation.
    const ALL: [(Self, &'static str, &'static str); 8] = [
        (Self::Inbox, "/", "Inbox"),
        (Self::Grants, "/grants", "Grants"),
        (Self::Runs, "/runs", "Runs"),
        (Self::Sessions, "/sessions", "Sessions"),
        (Self::Tools, "/tools", "Tools"),
        (Self::Policy, "/policy", "Policy"),
        (Self::Health, "/health", "Health"),
        (Self::Stops, "/stops", "Stop"),
    ];
}

fn html(status: StatusCode, page: &impl Template) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    match page.render() {
        Ok(text) => (status, [(header::CONTENT_TYPE, kind)], text).into_response(),
        // Never happens: rendering into memory does not fail.
        Err(_) => Problem::internal().into_response(),
    }
}

/// The handler of a file that is part of the program.
fn file(kind: &'static str, text: &'static str) -> MethodRouter<Arc<App>> {
    routing::get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
}
