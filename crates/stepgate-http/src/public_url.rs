//! The URL by which browsers reach the gateway: the base of links, and the expected origin of forms.

use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, ensure};
use axum::http::Uri;
use stepgate_core::ids::ApprovalId;
use stepgate_core::spelled;

/// Scheme, host and port, spelled as a browser spells an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    origin: String,
    scheme: Scheme,
}

spelled! {
    /// The scheme of the gateway's URL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Scheme {
        /// Without encryption.
        Http = "http",
        /// Over TLS.
        Https = "https",
    }
}

impl Scheme {
    /// The default port, which a URL omits.
    fn standard_port(self) -> &'static str {
        match self {
            Self::Http => ":80",
            Self::Https => ":443",
        }
    }
}

impl PublicUrl {
    /// The URL of the listen address, for browsers that use it directly. The address is not checked here: the listener
    /// does that.
    pub fn of_bind(bind: &str, scheme: Scheme) -> Self {
        let host = bind.to_ascii_lowercase();
        let host = host.strip_suffix(scheme.standard_port()).unwrap_or(&host);
        Self { origin: format!("{}://{host}", scheme.as_str()), scheme }
    }

    /// Accepts `http` and `https` with a host, and after it at most one slash: the links between pages start at the
    /// root.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let expected = || format!("`{text}` is not an address like `https://gate.example.com`");
        let uri: Uri = text.parse().with_context(expected)?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).with_context(expected)?;
        let scheme = Scheme::parse(scheme).with_context(expected)?;
        let is_bare =
            matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('#');
        ensure!(is_bare, "`{text}` has more than scheme, host and port: give it a host of its own");
        ensure!(!authority.as_str().contains('@') && !authority.host().is_empty(), expected());
        Ok(Self::of_bind(authority.as_str(), scheme))
    }

    /// The URL of an approval's page, for the person who decides.
    pub fn approval(&self, id: ApprovalId) -> String {
        format!("{self}/approvals/{id}")
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        self.origin.split_once("://").map_or("", |(_, host)| host)
    }

    /// Whether browsers reach the gateway by a loopback name or address.
    pub fn is_loopback(&self) -> bool {
        let host = self.host();
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, _)) => name,
            None => host.split(':').next().unwrap_or_default(),
        };
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The origin with its port, even if it is the default port.
    pub fn with_port(&self) -> String {
        let has_port =
            self.host().rsplit_once(':').is_some_and(|(_, it)| it.parse::<u16>().is_ok());
        match has_port {
            true => self.origin.clone(),
            false => format!("{}{}", self.origin, self.scheme.standard_port()),
        }
    }

    /// The value that a browser sends in `Origin`.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether browsers use TLS, so that cookies can be marked `Secure`.
    pub fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::Https
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

#[cfg(test)]
mod tests;
