//! The visitor of a page: the person whom the login cookie names, as operator or auditor. Agents cannot log in.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Redirect, Response};
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::stops;
use stepgate_gateway::tokens::Role;
use subtle::ConstantTimeEq;

use super::destination::Destination;
use super::logins::VisitBy;
use super::{Text, Trouble};
use crate::{App, Problem};

/// Most cookies of our name that are tried: other programs on the same host may set cookies of this name too.
const COOKIES_MAX: usize = 8;

/// In requests that an open page sends to refresh itself.
const REFRESH_HEADER: &str = "stepgate-refresh";

/// A person who is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visitor {
    pub(super) principal_id: PrincipalId,
    pub(super) role: VisitorRole,
    /// The CSRF token that the visitor's forms must contain.
    pub(super) csrf: String,
    /// The key of the login, to end it.
    pub(super) login: Digest,
    /// What is stopped at this moment. Every page says so.
    pub(super) stopped: Vec<Text>,
}

/// What a visitor may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VisitorRole {
    /// Decide.
    Operator,
    /// Look.
    Auditor,
}

impl VisitorRole {
    /// None for an agent: it is never taken for a person, whatever it holds.
    pub(super) fn of(role: Role) -> Option<Self> {
        match role {
            Role::Operator => Some(Self::Operator),
            Role::Auditor => Some(Self::Auditor),
            Role::Agent => None,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Operator => Role::Operator.as_str(),
            Self::Auditor => Role::Auditor.as_str(),
        }
    }
}

impl Visitor {
    /// The same visitor, who is told what is stopped now. Where the store does not answer, the page itself says so.
    pub(super) async fn again(&self, app: &App) -> Self {
        let stops = stops::in_force(&app.service.gate).await.unwrap_or_default();
        let stopped = stops.iter().map(|stop| Text::of(&stop.order.target.to_string())).collect();
        Self { stopped, ..self.clone() }
    }

    /// Checks a form that changes something: it has this login's CSRF token, and the visitor is an operator.
    pub(super) fn may_change(&self, csrf: &str) -> Result<(), Trouble> {
        self.sent(csrf)?;
        match self.role {
            VisitorRole::Operator => Ok(()),
            VisitorRole::Auditor => Err(Trouble::only_looks()),
        }
    }

    /// Checks that a form has this login's CSRF token. Compares in constant time.
    pub(super) fn sent(&self, csrf: &str) -> Result<(), Trouble> {
        match self.csrf.as_bytes().ct_eq(csrf.as_bytes()).into() {
            true => Ok(()),
            false => Err(Trouble::foreign_form()),
        }
    }

    /// The CSRF token for a form that only operators get.
    pub(super) fn operator_csrf(&self) -> Option<String> {
        match self.role {
            VisitorRole::Operator => Some(self.csrf.clone()),
            VisitorRole::Auditor => None,
        }
    }
}

/// Admits every request to a page, and attaches the visitor if one is logged in.
pub(crate) fn enter(app: &App, request: &mut Request) -> Result<Option<PrincipalId>, Problem> {
    let Some(visitor) = recognised(app, request.headers()) else { return Ok(None) };
    let principal_id = visitor.principal_id.clone();
    app.count_request(&principal_id)?;
    request.extensions_mut().insert(visitor);
    Ok(Some(principal_id))
}

fn recognised(app: &App, headers: &HeaderMap) -> Option<Visitor> {
    let (name, now) = (cookie_name(app), Instant::now());
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let cookies = lines.flat_map(|line| line.split(';')).filter_map(|it| it.trim().split_once('='));
    let ours = cookies.filter(|(it, _)| *it == name).take(COOKIES_MAX);
    let is_live = |token_id| app.service.is_live(token_id);
    // The script marks its requests, so that they do not reset the idle timeout. Leaving out the mark gains nothing:
    // with the cookie one can open the page anyway.
    let by = match headers.contains_key(REFRESH_HEADER) || is_stream(headers) {
        true => VisitBy::Script,
        false => VisitBy::Person,
    };
    ours.filter_map(|(_, value)| app.logins.visitor(value, now, by, is_live)).next()
}

/// Whether a browser opens an event stream, which has no header of ours.
fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes() == b"text/event-stream")
}

/// Over TLS the `__Host-` prefix: browsers accept such a cookie only from this exact host.
fn cookie_name(app: &App) -> &'static str {
    if app.public_url.is_encrypted() { "__Host-stepgate-login" } else { "stepgate-login" }
}

/// The `Set-Cookie` header; without a value it deletes the cookie.
pub(super) fn set_cookie(app: &App, value: Option<&str>) -> String {
    let name = cookie_name(app);
    let secure = if app.public_url.is_encrypted() { "; Secure" } else { "" };
    let (value, age) = match value {
        Some(value) => (value, ""),
        None => ("", "; Max-Age=0"),
    };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}")
}

/// The app, and the visitor of a page. Without a login, a page redirects to the login, and a form does nothing.
pub(super) struct Visit(pub(super) Arc<App>, pub(super) Visitor);

impl FromRequestParts<Arc<App>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Response> {
        if let Some(visitor) = parts.extensions.get::<Visitor>() {
            return Ok(Self(Arc::clone(app), visitor.again(app).await));
        }
        let next = Destination::parse(parts.uri.path());
        let login = next.as_ref().map_or("/login".to_owned(), Destination::after_login);
        Err(match parts.method {
            Method::GET | Method::HEAD => Redirect::to(&login).into_response(),
            _ => Trouble::not_logged_in(login).into_response(),
        })
    }
}
