//! Bearer tokens. There is no table of them: they are the fold of `token_created` and `token_revoked`
//! in the system session, whose chain shows any change. Only the hash of a token is ever written.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{RwLock, RwLockReadGuard};

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepgate_core::consent;
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType, payload};
use stepgate_core::gate::Gate;
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::lock;
use stepgate_core::ports::{Store, StoreError};
use stepgate_core::spelled;
use stepgate_core::system;
use stepgate_core::time::Timestamp;
use subtle::{Choice, ConstantTimeEq};

/// The prefix of every token, so that people and secret scanners recognise one.
const PREFIX: &str = "sg_";
/// 256 random bits.
const RANDOM_BYTES: usize = 32;
/// Most tokens that are valid at one time: each request is compared with all of them.
pub const TOKENS_MAX: usize = 1000;
/// Longest lifetime of a token that expires: ten years.
pub const LIFE_S_MAX: u64 = 10 * 365 * 24 * 60 * 60;
/// A token that expires within this time is pointed out: a week.
pub const SOON_S: u64 = 7 * 24 * 60 * 60;

/// The principal name of the operator token that the first `serve` creates.
const FIRST_OPERATOR: &str = "operator";
/// The principal name of decisions made at a terminal by the owner of the data directory. No token has it.
pub const TERMINAL_OPERATOR: &str = "operator-at-terminal";

spelled! {
    /// What a token may be used for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Role {
        /// Proposes steps, and sees its own.
        Agent = "agent",
        /// Decides, and sees everything.
        Operator = "operator",
        /// Sees everything, and changes nothing.
        Auditor = "auditor",
    }
}

impl FromStr for Role {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::parse(text)
            .with_context(|| format!("`{text}` is not a role: agent, operator or auditor"))
    }
}

/// What is known of a token: everything except the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its id, which is no secret.
    pub token_id: ArtifactId,
    /// The principal that it authenticates.
    pub principal_id: PrincipalId,
    /// What it may be used for.
    pub role: Role,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires, if it does.
    pub expires_at: Option<Timestamp>,
    /// SHA-256 of the token.
    hash: Digest,
}

/// The secret of a token, on its way to the caller that asked for it. Its `Debug` does not show it.
pub struct Secret(String);

impl Secret {
    fn fresh() -> anyhow::Result<Self> {
        Ok(Self(format!("{PREFIX}{}", random_text()?)))
    }

    /// The text, for the single answer or file that it is written to.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// A random text that cannot be guessed.
pub fn random_text() -> anyhow::Result<String> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    getrandom::fill(&mut bytes).context("the system gives no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// It never existed, or it was revoked.
    Unknown,
    /// It has expired.
    Expired(Timestamp),
}

/// A token to be created.
pub struct NewToken {
    /// The principal that it authenticates.
    pub principal_id: PrincipalId,
    /// What it may be used for.
    pub role: Role,
    /// Who creates it.
    pub maker: Maker,
    /// Its lifetime; none means that it does not expire.
    pub life_s: Option<u64>,
}

/// Who creates a token.
pub enum Maker {
    /// The first start.
    Start,
    /// The owner of the data directory, on the machine itself, under this name.
    Owner(PrincipalId),
    /// An operator over the network, who is responsible for what the token requests.
    Operator(PrincipalId),
}

/// Where the request to create a token came from.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Via {
    Directory,
    Network,
}

/// The payload of `token_created`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenCreated")]
#[serde(deny_unknown_fields)]
pub struct Created {
    token_id: ArtifactId,
    principal_id: PrincipalId,
    role: Role,
    hash: Digest,
    /// The operator who created it; none if the first start did.
    #[serde(default)]
    created_by: Option<PrincipalId>,
    /// None in stores of 0.1.0, which did not record it: such a token counts as made by no principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    via: Option<Via>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

/// The tokens that were not revoked, and who created which of all tokens that ever existed.
#[derive(Debug, Default)]
struct Known {
    live: Vec<Token>,
    /// Pairs of a principal and a principal that created a token for it over the network.
    makers: BTreeSet<(PrincipalId, PrincipalId)>,
}

/// The tokens of a store.
#[derive(Debug, Default)]
pub struct Tokens {
    known: RwLock<Known>,
    /// The position of the last event that was read. Held while tokens are revoked or read, so that a read does not
    /// bring back a token that was just revoked.
    seen: tokio::sync::Mutex<u64>,
}

impl Tokens {
    /// Reads every token event.
    pub async fn load(store: &dyn Store) -> anyhow::Result<Self> {
        let tokens = Self::default();
        tokens.read_on(store).await?;
        Ok(tokens)
    }

    /// Reads what other nodes did to tokens since the last read. Changes by this node are applied already.
    pub async fn read_on(&self, store: &dyn Store) -> anyhow::Result<()> {
        const TYPES: [EventType; 2] = [EventType::TokenCreated, EventType::TokenRevoked];
        let mut seen = self.seen.lock().await;
        // Read before the events: events of other nodes up to this position are not read again.
        let looked_at = store.last_position().await?;
        if looked_at <= *seen {
            return Ok(());
        }
        let events = system::events_since(store, &TYPES, *seen).await?;
        let mut known = lock::write(&self.known);
        for placed in &events {
            apply(&mut known, &placed.event)?;
        }
        *seen = events.last().map_or(looked_at, |placed| placed.position.max(looked_at));
        Ok(())
    }

    /// Authenticates a token. Compares it with every known token in constant time, so that timing reveals nothing.
    pub fn authenticate(&self, token: &str, now: Timestamp) -> Result<Token, BadToken> {
        let presented = Digest::of_bytes(token.as_bytes()).to_string();
        let mut found = Err(BadToken::Unknown);
        for token in &self.known().live {
            let is_it: Choice = token.hash.to_string().as_bytes().ct_eq(presented.as_bytes());
            if bool::from(is_it) {
                found = match token.expires_at.filter(|at| *at <= now) {
                    Some(at) => Err(BadToken::Expired(at)),
                    None => Ok(token.clone()),
                };
            }
        }
        found
    }

    pub(crate) fn is_live(&self, token_id: ArtifactId, now: Timestamp) -> bool {
        let is_good = |token: &Token| token.expires_at.is_none_or(|at| now < at);
        self.known().live.iter().any(|token| token.token_id == token_id && is_good(token))
    }

    /// Every token that was not revoked, oldest first.
    pub fn list(&self) -> Vec<Token> {
        self.known().live.clone()
    }

    /// Whether two principals must not decide for each other: they are the same, one created a token for the other
    /// (directly or through others), or both have tokens created by the same principal, which then controls both.
    ///
    /// A person at the owner's terminal has no creator and is linked to no principal: otherwise a single owner could
    /// decide nothing. The one exception: requests of the owner's own first token are not decided there.
    pub fn are_linked(&self, one: &PrincipalId, other: &PrincipalId) -> bool {
        let is_pair = |one: &PrincipalId, other: &PrincipalId| {
            one.as_str() == TERMINAL_OPERATOR && other.as_str() == FIRST_OPERATOR
        };
        if one.as_str() == TERMINAL_OPERATOR || other.as_str() == TERMINAL_OPERATOR {
            return one == other || is_pair(one, other) || is_pair(other, one);
        }
        let known = self.known();
        !known.behind(one).is_disjoint(&known.behind(other))
    }

    /// Creates a token. It is valid once its event is durable.
    pub async fn create(&self, gate: &Gate, new: NewToken) -> anyhow::Result<(Token, Secret)> {
        let NewToken { principal_id, role, maker, life_s } = new;
        ensure!(!is_reserved(&principal_id), "`{principal_id}` is reserved: choose another name");
        if let Maker::Operator(by) = &maker
            && let Some(objection) = self.objection(gate, &principal_id, by).await?
        {
            bail!(objection);
        }
        let is_full = self.known().live.len() >= TOKENS_MAX;
        ensure!(!is_full, "there are {TOKENS_MAX} tokens already: revoke one first");
        let secret = Secret::fresh()?;
        let (created_by, via) = match maker {
            Maker::Start => (None, Via::Directory),
            Maker::Owner(by) => (Some(by), Via::Directory),
            Maker::Operator(by) => (Some(by), Via::Network),
        };
        let life_ms = life_s.map(|life_s| life_s.min(LIFE_S_MAX).saturating_mul(1000));
        let created = Created {
            token_id: ArtifactId::new(gate.world.fresh_uuid()),
            principal_id,
            role,
            hash: Digest::of_bytes(secret.reveal().as_bytes()),
            created_by,
            via: Some(via),
            expires_at: life_ms.map(|life_ms| gate.world.now().plus_ms(life_ms)),
        };
        let payload = serde_json::to_value(&created)?;
        let event = gate.note(EventType::TokenCreated, payload).await?;
        let mut known = lock::write(&self.known);
        Ok((known.add(created, event.ts), secret))
    }

    /// Why an operator must not have a token of this name; none if nothing is wrong with it. With the name of another
    /// operator, of a group or of a member of one it would decide as another person, and with the name of a principal
    /// that it made a grant for it would use its own grant.
    pub async fn objection(
        &self,
        gate: &Gate,
        principal_id: &PrincipalId,
        by: &PrincipalId,
    ) -> Result<Option<String>, StoreError> {
        if principal_id == by {
            return Ok(None);
        }
        let is_operator =
            |token: &Token| token.principal_id == *principal_id && token.role == Role::Operator;
        if gate.groups.knows(principal_id) || self.known().live.iter().any(is_operator) {
            return Ok(Some(format!(
                "`{principal_id}` is another operator, a group, or in one: make its tokens on the gateway's machine"
            )));
        }
        let granters = consent::granters(gate, principal_id).await?;
        let is_own = granters.iter().any(|granter| self.are_linked(granter, by));
        Ok(is_own.then(|| {
            format!("`{principal_id}` has a grant of yours: revoke it first, or make the token on the gateway's machine")
        }))
    }

    /// Everyone who made a token for this principal over the network, for those who did, and so on; and itself.
    pub(crate) fn behind(&self, principal_id: &PrincipalId) -> BTreeSet<PrincipalId> {
        self.known().behind(principal_id)
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        lock::read(&self.known)
    }

    /// Revokes a token. Returns whether it existed.
    pub async fn revoke(
        &self,
        gate: &Gate,
        token_id: ArtifactId,
        revoked_by: &PrincipalId,
    ) -> anyhow::Result<bool> {
        let _seen = self.seen.lock().await;
        if !self.known().live.iter().any(|token| token.token_id == token_id) {
            return Ok(false);
        }
        let payload = payload::TokenRevoked { token_id, revoked_by: revoked_by.clone() };
        gate.note(EventType::TokenRevoked, payload).await?;
        let mut known = lock::write(&self.known);
        known.live.retain(|token| token.token_id != token_id);
        Ok(true)
    }
}

/// Whether this name is reserved, so that no token may have it.
pub fn is_reserved(principal_id: &PrincipalId) -> bool {
    [PrincipalId::SYSTEM, TERMINAL_OPERATOR].contains(&principal_id.as_str())
}

impl Known {
    /// Adds a token. One that is already known stays as it is.
    fn add(&mut self, created: Created, created_at: Timestamp) -> Token {
        let Created { token_id, principal_id, role, hash, created_by, via, expires_at } = created;
        if let (Some(maker), Some(Via::Network)) = (created_by, via) {
            self.makers.insert((principal_id.clone(), maker));
        }
        let token = Token { token_id, principal_id, role, created_at, expires_at, hash };
        if self.live.iter().all(|there| there.token_id != token.token_id) {
            self.live.push(token.clone());
        }
        token
    }

    /// A principal, with every principal that created a token for it, for those principals, and so on.
    fn behind(&self, principal_id: &PrincipalId) -> BTreeSet<PrincipalId> {
        let mut found = BTreeSet::from([principal_id.clone()]);
        let mut open = vec![principal_id.clone()];
        while let Some(one) = open.pop() {
            let makers = self.makers.iter().filter(|(made, _)| *made == one);
            for (_, maker) in makers {
                if found.insert(maker.clone()) {
                    open.push(maker.clone());
                }
            }
        }
        found
    }
}

fn apply(known: &mut Known, event: &Event) -> anyhow::Result<()> {
    if event.event_type == EventType::TokenCreated {
        let created: Created = payload::read(&event.payload)
            .with_context(|| format!("event {} is no token", event.event_id))?;
        known.add(created, event.ts);
    } else if event.event_type == EventType::TokenRevoked {
        let id = event.payload.get("token_id").and_then(Value::as_str);
        let Some(Ok(id)) = id.map(str::parse::<ArtifactId>) else {
            bail!("event {} names no token", event.event_id);
        };
        known.live.retain(|token| token.token_id != id);
    }
    Ok(())
}
