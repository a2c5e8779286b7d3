//! `/v1/tokens`: the tokens. The secret of a token appears only in the response that creates it.

use axum::Json;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::time::Timestamp;
use stepgate_gateway::tokens::{LIFE_S_MAX, Maker, NewToken, Role, TOKENS_MAX, Token, is_reserved};

use super::{Id, JsonBody, Operator, Problem, Watcher};

/// A token as people see it, without its secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Token")]
pub(super) struct TokenObject {
    token_id: ArtifactId,
    principal_id: PrincipalId,
    role: Role,
    created_at: Timestamp,
    /// When it expires; none means never.
    expires_at: Option<Timestamp>,
    /// The secret, only in the response that creates the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl TokenObject {
    fn of(token: Token) -> Self {
        let Token { token_id, principal_id, role, created_at, expires_at, .. } = token;
        Self { token_id, principal_id, role, created_at, expires_at, token: None }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tokens")]
pub(super) struct TokenObjects {
    tokens: Vec<TokenObject>,
}

pub(super) async fn list(Watcher(app, _): Watcher) -> Json<TokenObjects> {
    let tokens = app.service.tokens.list().into_iter().map(TokenObject::of).collect();
    Json(TokenObjects { tokens })
}

#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "CreateToken")]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    role: Option<Role>,
    #[serde(default)]
    expires_in_s: Option<u64>,
}

pub(super) async fn create(
    Operator(app, caller): Operator,
    JsonBody(Create { name, role, expires_in_s }): JsonBody<Create>,
) -> Result<(StatusCode, Json<TokenObject>), Problem> {
    let name = name.ok_or_else(|| Problem::malformed("`name` is missing"))?;
    let role =
        role.ok_or_else(|| Problem::malformed("`role` must be `agent`, `operator` or `auditor`"))?;
    let principal = PrincipalId::parse(&name).map_err(|bad| Problem::malformed(bad.to_string()))?;
    if is_reserved(&principal) {
        return Err(Problem::malformed(format!("`{principal}` is reserved: choose another name")));
    }
    if expires_in_s.is_some_and(|life_s| !(1..=LIFE_S_MAX).contains(&life_s)) {
        let message = format!("`expires_in_s` must be from 1 to {LIFE_S_MAX}");
        return Err(Problem::malformed(message));
    }
    if app.service.tokens.list().len() >= TOKENS_MAX {
        return Err(Problem::conflict("there are too many tokens: revoke one first"));
    }
    let gate = &app.service.gate;
    if !caller.is_owner {
        let objection = app.service.tokens.objection(gate, &principal, &caller.principal_id);
        if let Some(objection) = objection.await? {
            return Err(Problem::malformed(objection));
        }
    }
    let maker = match caller.is_owner {
        true => Maker::Owner(caller.principal_id),
        false => Maker::Operator(caller.principal_id),
    };
    let new = NewToken { principal_id: principal, role, maker, life_s: expires_in_s };
    let (token, secret) = app.service.tokens.create(gate, new).await?;
    let token = TokenObject { token: Some(secret.reveal().to_owned()), ..TokenObject::of(token) };
    Ok((StatusCode::CREATED, Json(token)))
}

pub(super) async fn revoke(
    Operator(app, caller): Operator,
    Id(id): Id<ArtifactId>,
) -> Result<StatusCode, Problem> {
    match app.service.tokens.revoke(&app.service.gate, id, &caller.principal_id).await? {
        true => {
            // End its streams now. Otherwise they would notice only at the next event.
            app.service.hub.wake();
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(Problem::not_found()),
    }
}
