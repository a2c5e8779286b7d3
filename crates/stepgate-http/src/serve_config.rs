//! `[serve]` of the configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::time::millis;

use crate::public_url::{PublicUrl, Scheme};
use crate::server::PairFiles;

/// Most connections that can be configured.
pub const CONNECTIONS_CEILING: usize = 100_000;
/// Longest time for anything that a peer or a shutdown waits for: an hour.
pub const SERVE_CEILING_MS: u64 = 60 * 60 * 1000;
/// Largest body that is read, twice the largest payload.
const BODY_BYTES_CEILING: u64 = 128 * 1024 * 1024;
/// Most memory for bodies.
const BODY_MEMORY_CEILING: u64 = 64 * 1024 * 1024 * 1024;
/// Most bytes of an agent in an hour.
const AGENT_BYTES_CEILING: u64 = 1024 * 1024 * 1024 * 1024;
/// Most requests, a second or at once.
const REQUESTS_CEILING: u32 = 1_000_000;
/// Longest that a person stays logged in: thirty days.
const LOGIN_CEILING_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// How `stepgate serve` listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServeConfig {
    /// Address and port.
    pub bind: String,
    /// How people's browsers reach it, like `https://gate.example.com`; empty where they use `bind`.
    pub public_url: String,
    /// The certificate to speak TLS with, in PEM, with those that lead to its issuer; beside the
    /// configuration file where it is not absolute. Empty: nothing is encrypted.
    pub tls_certificate: PathBuf,
    /// The certificate's key, in PEM, without a password.
    pub tls_key: PathBuf,
    /// Most connections at one time.
    #[schemars(range(min = 1, max = CONNECTIONS_CEILING))]
    pub connections_max: usize,
    /// Connections that agents' requests leave free for operators and auditors; at most half of all counts.
    #[schemars(range(min = 0, max = CONNECTIONS_CEILING))]
    pub connections_reserved: usize,
    /// Most connections from one address, or one IPv6 site (/64), that have not shown a token. Behind a proxy all come from
    /// one address.
    #[schemars(range(min = 1, max = CONNECTIONS_CEILING))]
    pub connections_per_address_max: usize,
    /// How long a request's head may take to come, in milliseconds.
    #[serde(rename = "head_timeout_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 1, max = SERVE_CEILING_MS))]
    pub head_timeout: Duration,
    /// How long a request's body may take to come, in milliseconds.
    #[serde(rename = "body_timeout_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 1, max = SERVE_CEILING_MS))]
    pub body_timeout: Duration,
    /// Longest body that is read at all, in bytes.
    #[schemars(range(min = 1, max = BODY_BYTES_CEILING))]
    pub body_bytes_max: u64,
    /// Memory that unfinished bodies share, in bytes; at least four times `body_bytes_max` counts.
    #[schemars(range(min = 1, max = BODY_MEMORY_CEILING))]
    pub body_memory_bytes_max: u64,
    /// Longest that a caller can wait with `Prefer: wait`, in milliseconds.
    #[serde(rename = "wait_max_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 0, max = SERVE_CEILING_MS))]
    pub wait_max: Duration,
    /// How long a process that is told to stop still takes requests, in milliseconds: until a balancer
    /// that looks at `/readyz` sends it no more.
    #[serde(rename = "drain_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 0, max = SERVE_CEILING_MS))]
    pub drain: Duration,
    /// How long running steps get to finish at shutdown, in milliseconds.
    #[serde(rename = "shutdown_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 0, max = SERVE_CEILING_MS))]
    pub shutdown: Duration,
    /// How long the start of a gateway waits for tool servers that do not answer, in milliseconds. They are off
    /// then, and come up without a restart.
    #[serde(rename = "servers_wait_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 0, max = SERVE_CEILING_MS))]
    pub servers_wait: Duration,
    /// Requests a second of one principal, on average.
    #[schemars(range(min = 1, max = REQUESTS_CEILING))]
    pub requests_per_second_max: u32,
    /// Requests of one principal at once, after a pause.
    #[schemars(range(min = 1, max = REQUESTS_CEILING))]
    pub requests_burst_max: u32,
    /// Failed authentications a minute from one address.
    #[schemars(range(min = 1, max = REQUESTS_CEILING))]
    pub failed_auth_per_minute_max: u32,
    /// Bytes that one agent sends and receives in an hour.
    #[schemars(range(min = 1, max = AGENT_BYTES_CEILING))]
    pub agent_bytes_per_hour_max: u64,
    /// How long a login to the pages may be unused, in milliseconds.
    #[serde(rename = "login_idle_max_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 1, max = LOGIN_CEILING_MS))]
    pub login_idle_max: Duration,
    /// How long a login to the pages lasts at most, in milliseconds.
    #[serde(rename = "login_life_max_ms", with = "millis")]
    #[schemars(with = "u64", range(min = 1, max = LOGIN_CEILING_MS))]
    pub login_life_max: Duration,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:7420".into(),
            public_url: String::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            connections_max: 1024,
            connections_reserved: 64,
            connections_per_address_max: 256,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_bytes_max: 8 * 1024 * 1024,
            body_memory_bytes_max: 128 * 1024 * 1024,
            wait_max: Duration::from_secs(60),
            drain: Duration::ZERO,
            shutdown: Duration::from_secs(10),
            servers_wait: Duration::from_secs(5),
            requests_per_second_max: 10_000,
            requests_burst_max: 20_000,
            failed_auth_per_minute_max: 60,
            agent_bytes_per_hour_max: 10 * 1024 * 1024 * 1024,
            login_idle_max: Duration::from_secs(30 * 60),
            login_life_max: Duration::from_secs(12 * 60 * 60),
        }
    }
}

impl ServeConfig {
    /// How browsers reach a gateway that listens on this address, and speaks so there.
    pub fn public_url(&self, bind: &str, scheme: Scheme) -> anyhow::Result<PublicUrl> {
        let named = match self.public_url.as_str() {
            "" => return Ok(PublicUrl::of_bind(bind, scheme)),
            named => PublicUrl::parse(named).context("serve.public_url is not valid")?,
        };
        match (scheme, named.is_encrypted()) {
            (Scheme::Http, _) | (Scheme::Https, true) => Ok(named),
            (Scheme::Https, false) => {
                bail!("serve.public_url is `{named}`, but TLS is spoken: write it with `https://`")
            }
        }
    }

    /// The certificate and its key, below the directory of the configuration; none where nothing is encrypted.
    pub fn tls(&self, base: &Path) -> anyhow::Result<Option<PairFiles>> {
        let (certificate, key) = (&self.tls_certificate, &self.tls_key);
        match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
            (true, true) => Ok(None),
            (false, false) => {
                Ok(Some(PairFiles { certificate: base.join(certificate), key: base.join(key) }))
            }
            (false, true) => bail!("serve.tls_certificate needs serve.tls_key: name both files"),
            (true, false) => bail!("serve.tls_key needs serve.tls_certificate: name both files"),
        }
    }

    /// How browsers reach a gateway that listens where the configuration says.
    pub fn configured_url(&self) -> anyhow::Result<PublicUrl> {
        self.public_url(&self.bind, self.scheme()?)
    }

    /// How the address is spoken with, as the configuration says.
    pub fn scheme(&self) -> anyhow::Result<Scheme> {
        Ok(match self.tls(Path::new(""))? {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        })
    }
}
