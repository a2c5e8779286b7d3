//! Bearer tokens. There is no table of them: they are the fold of `token_created` and `token_revoked`
//! in the system session, whose chain shows any change. Only the hash of a token is ever written.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType};
use stepgate_core::gate::{Gate, SYSTEM_PRINCIPAL};
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::ports::EventQuery;
use stepgate_core::time::Timestamp;
use subtle::{Choice, ConstantTimeEq};

/// What every token begins with, so that people and scanners know one when they see it.
const PREFIX: &str = "sg_";
/// 256 bits of chance.
const RANDOM_BYTES: usize = 32;
/// Events that are read at once.
const EVENTS_PAGE: usize = 1000;
/// Most tokens that are good at one time: each request is compared with all of them.
pub(crate) const TOKENS_MAX: usize = 1000;

/// What a token may be used for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Proposes steps, and sees its own.
    Agent,
    /// Decides, and sees everything.
    Operator,
    /// Sees everything, and changes nothing.
    Auditor,
}

impl Role {
    pub(crate) const ALL: [Self; 3] = [Self::Agent, Self::Operator, Self::Auditor];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
        }
    }
}

impl FromStr for Role {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.with_context(|| format!("`{text}` is not a role: agent, operator or auditor"))
    }
}

/// A token as it is known: everything but the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) token_id: ArtifactId,
    pub(crate) principal_id: PrincipalId,
    pub(crate) role: Role,
    pub(crate) created_at: Timestamp,
    /// SHA-256 of the token.
    hash: Digest,
}

/// The token itself, on its way to the one who asked for it. It has no `Debug` that shows it.
pub(crate) struct Secret(String);

impl Secret {
    fn fresh() -> anyhow::Result<Self> {
        Ok(Self(format!("{PREFIX}{}", random_text()?)))
    }

    /// The text, for the one answer or the one file that it goes into.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// A text that nobody can guess.
pub(crate) fn random_text() -> anyhow::Result<String> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    getrandom::fill(&mut bytes).context("the system gives no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What `token_created` says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Created {
    token_id: ArtifactId,
    principal_id: PrincipalId,
    role: Role,
    hash: Digest,
    /// The operator who made it; none where the first start did.
    #[serde(default)]
    created_by: Option<PrincipalId>,
}

/// The tokens that are good now.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    live: RwLock<Vec<Token>>,
    /// The position of the last event that was read.
    seen: AtomicU64,
    /// Whoever changes or reads them, so that nobody brings back what another has just revoked.
    changing: tokio::sync::Mutex<()>,
}

impl Tokens {
    /// Reads every token event.
    pub(crate) async fn load(gate: &Gate) -> anyhow::Result<Self> {
        let tokens = Self::default();
        tokens.read_on(gate).await?;
        Ok(tokens)
    }

    /// Reads what other nodes did to tokens since the last time. What this one did is there already.
    pub(crate) async fn read_on(&self, gate: &Gate) -> anyhow::Result<()> {
        let _changing = self.changing.lock().await;
        let seen = self.seen.load(Ordering::Relaxed);
        // Asked before the events: those of others up to here are not looked at again.
        let looked_at = gate.store.last_position().await?;
        if looked_at <= seen {
            return Ok(());
        }
        let mut query = EventQuery {
            after: seen,
            principal_id: Some(PrincipalId::parse(SYSTEM_PRINCIPAL)?),
            event_types: vec![EventType::TokenCreated, EventType::TokenRevoked],
            loose_only: true,
            limit: EVENTS_PAGE,
        };
        loop {
            let page = gate.store.events(query.clone()).await?;
            let Some(last) = page.last() else {
                self.seen.fetch_max(looked_at, Ordering::Relaxed);
                return Ok(());
            };
            query.after = last.position;
            let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
            for placed in &page {
                apply(&mut live, &placed.event)?;
            }
            self.seen.store(query.after, Ordering::Relaxed);
        }
    }

    /// Who this token is, compared with every token there is, so that the time tells nothing.
    pub(crate) fn authenticate(&self, token: &str) -> Option<Token> {
        let presented = Digest::of_bytes(token.as_bytes()).to_string();
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for token in live.iter() {
            let is_it: Choice = token.hash.to_string().as_bytes().ct_eq(presented.as_bytes());
            if bool::from(is_it) {
                found = Some(token.clone());
            }
        }
        found
    }

    /// Whether it is still good.
    pub(crate) fn is_live(&self, token_id: ArtifactId) -> bool {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.iter().any(|token| token.token_id == token_id)
    }

    /// Every token that is good, oldest first.
    pub(crate) fn list(&self) -> Vec<Token> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes one. It is good once its event is durable.
    pub(crate) async fn create(
        &self,
        gate: &Gate,
        principal_id: PrincipalId,
        role: Role,
        created_by: Option<PrincipalId>,
    ) -> anyhow::Result<(Token, Secret)> {
        ensure!(
            principal_id.as_str() != SYSTEM_PRINCIPAL,
            "`{SYSTEM_PRINCIPAL}` is Stepgate itself: choose another name"
        );
        let is_full = self.list().len() >= TOKENS_MAX;
        ensure!(!is_full, "there are {TOKENS_MAX} tokens already: revoke one first");
        let secret = Secret::fresh()?;
        let created = Created {
            token_id: ArtifactId::new(gate.world.fresh_uuid()),
            principal_id,
            role,
            hash: Digest::of_bytes(secret.reveal().as_bytes()),
            created_by,
        };
        let payload = serde_json::to_value(&created)?;
        let event = gate.note(EventType::TokenCreated, payload).await?;
        let token = created.at(event.ts);
        self.live.write().unwrap_or_else(PoisonError::into_inner).push(token.clone());
        Ok((token, secret))
    }

    /// Ends one. Whether there was such a token.
    pub(crate) async fn revoke(
        &self,
        gate: &Gate,
        token_id: ArtifactId,
        revoked_by: &PrincipalId,
    ) -> anyhow::Result<bool> {
        let _changing = self.changing.lock().await;
        if !self.is_live(token_id) {
            return Ok(false);
        }
        let payload = json!({ "token_id": token_id, "revoked_by": revoked_by });
        gate.note(EventType::TokenRevoked, payload).await?;
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|token| token.token_id != token_id);
        Ok(true)
    }
}

impl Created {
    fn at(self, created_at: Timestamp) -> Token {
        let Self { token_id, principal_id, role, hash, created_by: _ } = self;
        Token { token_id, principal_id, role, created_at, hash }
    }
}

fn apply(live: &mut Vec<Token>, event: &Event) -> anyhow::Result<()> {
    match event.event_type {
        EventType::TokenCreated => {
            let created: Created = serde_json::from_value(event.payload.clone())
                .with_context(|| format!("event {} is no token", event.event_id))?;
            let token = created.at(event.ts);
            if live.iter().all(|there| there.token_id != token.token_id) {
                live.push(token);
            }
        }
        EventType::TokenRevoked => {
            let id = event.payload.get("token_id").and_then(Value::as_str);
            let Some(Ok(id)) = id.map(str::parse::<ArtifactId>) else {
                bail!("event {} names no token", event.event_id);
            };
            live.retain(|token| token.token_id != id);
        }
        EventType::ToolCalled
        | EventType::ToolSucceeded
        | EventType::ToolFailed
        | EventType::PolicyViolation
        | EventType::ApprovalRequested
        | EventType::ApprovalGranted
        | EventType::ApprovalDenied
        | EventType::ApprovalExpired
        | EventType::ToolReplayed
        | EventType::ToolRedispatched
        | EventType::RunRecovered
        | EventType::LateResult
        | EventType::RunResolved
        | EventType::RunNeedsPerson
        | EventType::SessionOpened
        | EventType::ToolAccepted
        | EventType::PolicyLoaded
        | EventType::TurnOpened
        | EventType::TurnAnswered
        | EventType::TurnWaiting
        | EventType::TurnToolEnded
        | EventType::TurnContinued
        | EventType::TurnFailed => {}
    }
    Ok(())
}
