//! Reads a page's form, with the limits of every body, and only from our own pages.

use axum::body::Body;
use axum::extract::{Form, FromRequest, Request};
use axum::http::{HeaderMap, Method, Uri, header};
use serde::de::DeserializeOwned;

use super::trouble::Trouble;
use crate::{App, Problem, approvals, body};

/// Longest form: a note with every byte escaped, or a proposal to try.
const FORM_BYTES_MAX: usize = 32 * 1024;

/// Longest form with policies: one file of policies with every byte escaped.
const POLICIES_BYTES_MAX: usize = 3 * stepgate_policy::limits::FILE_BYTES_MAX;

/// Reads a form that was sent from one of our pages.
pub(super) async fn read<T: DeserializeOwned>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Trouble> {
    read_up_to(app, headers, body, FORM_BYTES_MAX).await
}

/// Reads a form with policies.
pub(super) async fn read_policies<T: DeserializeOwned>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Trouble> {
    read_up_to(app, headers, body, POLICIES_BYTES_MAX).await
}

async fn read_up_to<T: DeserializeOwned>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<T, Trouble> {
    if !is_from_here(app, headers) {
        return Err(Trouble::foreign_origin());
    }
    let bytes = body::bytes(app, body, bytes_max).await?;
    let mut request = Request::new(Body::from(bytes.to_vec()));
    *request.method_mut() = Method::POST;
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        request.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    match Form::<T>::from_request(request, &()).await {
        Ok(Form(form)) => Ok(form),
        // The error is not passed on: it could repeat a token that was sent in the wrong field.
        Err(_) => Err(Problem::malformed("the form is not one of ours").into()),
    }
}

/// A note from a form; an empty one is none. Browsers send CRLF line ends from a text area.
pub(super) fn note(text: &str) -> Result<Option<String>, &'static str> {
    approvals::checked(Some(text.replace("\r\n", "\n").trim().to_owned()))
        .map_err(|_| "Nothing was decided: the note is too long. It may have 4,096 bytes.")
}

/// CSRF check: whether the request came from a page of the same origin. A program may omit these headers; a browser
/// always sends them, and they must match.
fn is_from_here(app: &App, headers: &HeaderMap) -> bool {
    let (Ok(site), Ok(origin)) = (one(headers, "sec-fetch-site"), one(headers, "origin")) else {
        return false;
    };
    let is_same_site = match site {
        None | Some("same-origin" | "none") => true,
        Some(_) => false,
    };
    let is_same_origin = match origin {
        None => true,
        Some("null") => site == Some("same-origin"),
        Some(origin) => origin == app.public_url.origin() || is_host(headers, origin),
    };
    is_same_site && is_same_origin
}

/// Whether an origin has the host that the request was sent to.
fn is_host(headers: &HeaderMap, origin: &str) -> bool {
    let (Ok(uri), Ok(Some(host))) = (origin.parse::<Uri>(), one(headers, "host")) else {
        return false;
    };
    uri.authority().is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host))
}

/// A header that may occur at most once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}
