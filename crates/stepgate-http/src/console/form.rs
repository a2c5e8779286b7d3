//! Reads a page's form, with the limits of every body, and only from our own pages.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Form, FromRequest, Request};
use axum::http::{HeaderMap, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Trouble;
use crate::admit::one_header;
use crate::{App, Problem, approvals, body};

/// Longest form: a note with every byte escaped, or a proposal to try.
const FORM_BYTES_MAX: usize = 32 * 1024;

/// Longest form with policies: one file of policies with every byte escaped.
pub(super) const POLICIES_BYTES_MAX: usize = 3 * stepgate_policy::limits::FILE_BYTES_MAX;

/// A form that was sent from one of our pages.
pub(super) struct Sent<T, const BYTES_MAX: usize = FORM_BYTES_MAX>(pub(super) T);

impl<T: DeserializeOwned, const BYTES_MAX: usize> FromRequest<Arc<App>> for Sent<T, BYTES_MAX> {
    type Rejection = Trouble;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Trouble> {
        let (parts, body) = request.into_parts();
        if !is_from_here(app, &parts.headers) {
            return Err(Trouble::foreign_origin());
        }
        let bytes = body::bytes(app, body, BYTES_MAX).await?;
        let request = Request::from_parts(parts, Body::from(bytes.to_vec()));
        match Form::<T>::from_request(request, &()).await {
            Ok(Form(form)) => Ok(Self(form)),
            // The error is not passed on: it could repeat a token that was sent in the wrong field.
            Err(_) => Err(Problem::malformed("the form is not one of ours").into()),
        }
    }
}

/// A form that is only a button.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Press {
    pub(super) csrf: String,
}

/// A note from a form; an empty one is none. Browsers send CRLF line ends from a text area.
pub(super) fn note(text: &str) -> Result<Option<String>, &'static str> {
    approvals::checked(Some(text.replace("\r\n", "\n").trim().to_owned()))
        .map_err(|_| "Nothing was decided: the note is too long. It may have 4,096 bytes.")
}

/// CSRF check: whether the request came from a page of the same origin. A program may omit these headers; a browser
/// always sends them, and they must match.
fn is_from_here(app: &App, headers: &HeaderMap) -> bool {
    let (Ok(site), Ok(origin)) =
        (one_header(headers, "sec-fetch-site"), one_header(headers, "origin"))
    else {
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
    let (Ok(uri), Ok(Some(host))) = (origin.parse::<Uri>(), one_header(headers, "host")) else {
        return false;
    };
    uri.authority().is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host))
}
