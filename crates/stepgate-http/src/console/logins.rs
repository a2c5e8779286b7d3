//! The logins, in memory only: a restart logs everyone out, and no secret is written to disk.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use stepgate_core::digest::Digest;
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::lock;
use stepgate_gateway::tokens::random_text;

use super::{Visitor, VisitorRole};
use crate::ServeConfig;

/// Most logins at one time. Above that the least recently used one ends.
pub(super) const LOGINS_MAX: usize = 1000;
/// Most logins of one token, so that one token cannot push out the logins of others.
pub(super) const LOGINS_PER_TOKEN_MAX: usize = 16;

/// The logins, keyed by the digest of the cookie's value: neither reading this memory nor timing a lookup reveals a
/// cookie.
pub(crate) struct Logins {
    idle_max: Duration,
    life_max: Duration,
    open: Mutex<HashMap<Digest, Login>>,
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VisitBy {
    /// A person opened a page or sent a form.
    Person,
    /// An open page refreshes itself.
    Script,
}

struct Login {
    token_id: ArtifactId,
    principal_id: PrincipalId,
    role: VisitorRole,
    csrf: String,
    begun: Instant,
    used: Instant,
}

impl Logins {
    pub(crate) fn new(limits: &ServeConfig) -> Self {
        let (idle_max, life_max) = (limits.login_idle_max, limits.login_life_max);
        Self { idle_max, life_max, open: Mutex::default() }
    }

    /// Begins a login, and returns the value of its cookie.
    pub(super) fn begin(
        &self,
        (token_id, principal_id, role): (ArtifactId, PrincipalId, VisitorRole),
        now: Instant,
        is_live: impl Fn(ArtifactId) -> bool,
    ) -> anyhow::Result<String> {
        let (cookie, csrf) = (random_text()?, random_text()?);
        let mut open = self.open();
        open.retain(|_, login| self.is_good(login, now) && is_live(login.token_id));
        let of_this_token = |login: &Login| login.token_id == token_id;
        if open.values().filter(|login| of_this_token(login)).count() >= LOGINS_PER_TOKEN_MAX {
            end_longest_unused(&mut open, of_this_token);
        }
        if open.len() >= LOGINS_MAX {
            end_longest_unused(&mut open, |_| true);
        }
        let login = Login { token_id, principal_id, role, csrf, begun: now, used: now };
        open.insert(key(&cookie), login);
        Ok(cookie)
    }

    /// The visitor of this cookie, if the login and its token are still valid. A visit of a person resets the idle
    /// timeout; a page that refreshes itself does not.
    pub(super) fn visitor(
        &self,
        cookie: &str,
        now: Instant,
        by: VisitBy,
        is_live: impl Fn(ArtifactId) -> bool,
    ) -> Option<Visitor> {
        let key = key(cookie);
        let mut open = self.open();
        let login = open.get_mut(&key)?;
        if !self.is_good(login, now) || !is_live(login.token_id) {
            open.remove(&key);
            return None;
        }
        match by {
            VisitBy::Person => login.used = now,
            VisitBy::Script => {}
        }
        Some(Visitor {
            principal_id: login.principal_id.clone(),
            role: login.role,
            csrf: login.csrf.clone(),
            login: key,
            stopped: Vec::new(),
        })
    }

    pub(super) fn is_open(&self, visitor: &Visitor, is_live: impl Fn(ArtifactId) -> bool) -> bool {
        let open = self.open();
        let login = open.get(&visitor.login);
        login.is_some_and(|it| self.is_good(it, Instant::now()) && is_live(it.token_id))
    }

    pub(super) fn end(&self, visitor: &Visitor) {
        self.open().remove(&visitor.login);
    }

    fn is_good(&self, login: &Login, now: Instant) -> bool {
        now.saturating_duration_since(login.used) < self.idle_max
            && now.saturating_duration_since(login.begun) < self.life_max
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Digest, Login>> {
        lock::locked(&self.open)
    }
}

fn key(cookie: &str) -> Digest {
    Digest::of_bytes(cookie.as_bytes())
}

fn end_longest_unused(open: &mut HashMap<Digest, Login>, among: impl Fn(&Login) -> bool) {
    let candidates = open.iter().filter(|(_, login)| among(login));
    let longest = candidates.min_by_key(|(_, login)| login.used).map(|(key, _)| *key);
    if let Some(key) = longest {
        open.remove(&key);
    }
}

#[cfg(test)]
mod tests;
