//! `/login`, `/logout`: exchanges a token for a cookie that is valid only for the pages.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use tracing::warn;

use super::destination::Destination;
use super::form::{Press, Sent};
use super::visitor::set_cookie;
use super::{Frame, Trouble, Visitor, VisitorRole, html};
use crate::{App, Params, Peer, Problem};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    refusal: Option<&'static str>,
    next: String,
    /// A link from another site sends no cookie (`SameSite=Strict`): a click on this page does.
    comes_from_elsewhere: bool,
}

#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    next: String,
}

/// Shows the form; redirects a visitor who is already logged in to the requested page.
pub(super) async fn ask(
    visitor: Option<Extension<Visitor>>,
    asked: Result<Params<Asked>, Problem>,
    headers: HeaderMap,
) -> Response {
    let next = asked.ok().and_then(|Params(Asked { next })| Destination::parse(&next));
    match (visitor, next) {
        (Some(_), next) => Redirect::to(&first_page(next)).into_response(),
        (None, next) => {
            let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
            let comes_from_elsewhere = matches!(site, Some(b"cross-site" | b"same-site"));
            let page = LoginPage { comes_from_elsewhere, ..login_page(None, next) };
            html(StatusCode::OK, &page)
        }
    }
}

/// Where a login leads: to the page that was requested, or to the inbox.
fn first_page(next: Option<Destination>) -> String {
    next.map_or("/".to_owned(), |next| next.to_string())
}

fn login_page(refusal: Option<&'static str>, next: Option<Destination>) -> LoginPage {
    let next = next.map(|next| next.to_string()).unwrap_or_default();
    LoginPage { frame: Frame::new("Log in", None), refusal, next, comes_from_elsewhere: false }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginForm {
    token: String,
    #[serde(default)]
    next: String,
}

pub(super) async fn log_in(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    before: Option<Extension<Visitor>>,
    Sent(LoginForm { token, next }): Sent<LoginForm>,
) -> Result<Response, Trouble> {
    let next = Destination::parse(&next);
    let token = app.service.tokens.authenticate(token.trim(), app.service.gate.world.now()).ok();
    let role = token.as_ref().map(|token| VisitorRole::of(token.role));
    let (Some(token), Some(Some(role))) = (token, role) else {
        if let Peer::Address(address) = peer {
            app.count_failure(address)?;
            warn!(%address, "refused: a login from {address}");
        }
        let (status, why) = match role {
            None => {
                (StatusCode::UNAUTHORIZED, "This token is not known, has expired, or was revoked.")
            }
            Some(_) => (
                StatusCode::FORBIDDEN,
                "This token belongs to an agent. Agents cannot log in: use an operator's token.",
            ),
        };
        return Ok(html(status, &login_page(Some(why), next)));
    };
    if let Some(Extension(before)) = before {
        app.logins.end(&before);
    }
    let is_live = |token_id| app.service.is_live(token_id);
    let who = (token.token_id, token.principal_id, role);
    let cookie = app.logins.begin(who, Instant::now(), is_live)?;
    Ok(leading_to(&first_page(next), &set_cookie(&app, Some(&cookie))))
}

pub(super) async fn log_out(
    State(app): State<Arc<App>>,
    visitor: Option<Extension<Visitor>>,
    Sent(Press { csrf }): Sent<Press>,
) -> Result<Response, Trouble> {
    if let Some(Extension(visitor)) = visitor {
        visitor.sent(&csrf)?;
        app.logins.end(&visitor);
    }
    Ok(leading_to("/login", &set_cookie(&app, None)))
}

fn leading_to(path: &str, cookie: &str) -> Response {
    let mut response = Redirect::to(path).into_response();
    // Never fails: our cookies have only characters that a header allows.
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
