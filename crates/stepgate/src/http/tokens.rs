//! `/v1/tokens`: who may come in. A token itself is in one answer, once.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use stepgate_core::gate::SYSTEM_PRINCIPAL;
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::time::Timestamp;

use super::admit::Operator;
use super::routes::Id;
use super::{App, Problem, body};
use crate::tokens::{Role, TOKENS_MAX, Token};

/// A token as people see it: everything but the token.
#[derive(Serialize)]
pub(super) struct TokenObject {
    token_id: ArtifactId,
    principal_id: PrincipalId,
    role: Role,
    created_at: Timestamp,
    /// The token, in the answer to its making alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl TokenObject {
    fn of(token: Token) -> Self {
        let Token { token_id, principal_id, role, created_at, .. } = token;
        Self { token_id, principal_id, role, created_at, token: None }
    }
}

#[derive(Serialize)]
pub(super) struct TokenObjects {
    tokens: Vec<TokenObject>,
}

pub(super) async fn list(State(app): State<Arc<App>>, _: Operator) -> Json<TokenObjects> {
    let tokens = app.service.tokens.list().into_iter().map(TokenObject::of).collect();
    Json(TokenObjects { tokens })
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    role: Option<Role>,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<TokenObject>), Problem> {
    let Create { name, role } = body::json(&app, &headers, body).await?;
    let name = name.ok_or_else(|| Problem::malformed("`name` is missing"))?;
    let role =
        role.ok_or_else(|| Problem::malformed("`role` must be `agent`, `operator` or `auditor`"))?;
    let principal = PrincipalId::parse(&name).map_err(|bad| Problem::malformed(bad.to_string()))?;
    if principal.as_str() == SYSTEM_PRINCIPAL {
        return Err(Problem::malformed("`system` is Stepgate itself: choose another name"));
    }
    if app.service.tokens.list().len() >= TOKENS_MAX {
        return Err(Problem::conflict("there are too many tokens: revoke one first"));
    }
    let (tokens, by) = (&app.service.tokens, Some(caller.principal_id));
    let (token, secret) = tokens.create(&app.service.gate, principal, role, by).await?;
    let token = TokenObject { token: Some(secret.reveal().to_owned()), ..TokenObject::of(token) };
    Ok((StatusCode::CREATED, Json(token)))
}

pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Id(id): Id<ArtifactId>,
) -> Result<StatusCode, Problem> {
    match app.service.tokens.revoke(&app.service.gate, id, &caller.principal_id).await? {
        true => {
            // Its streams end now, and not with the next thing that happens.
            app.service.hub.wake();
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(Problem::not_found()),
    }
}
