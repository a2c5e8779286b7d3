//! TLS to a server, verified with the certificates that this system trusts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, RootCertStore, crypto::aws_lc_rs};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Timeout of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// TLS settings for one host. Connections share the session cache.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// For this host and these protocols, with the system's certificates or those in `SSL_CERT_FILE`.
    pub fn to(host: &str, protocols: &[&[u8]]) -> anyhow::Result<Self> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned())
            .with_context(|| format!("`{host}` is not a name that a certificate can have"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots()?)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// Makes the handshake, and verifies the server's certificate.
    pub async fn connect(&self, stream: TcpStream) -> anyhow::Result<TlsStream<TcpStream>> {
        let connecting = self.connector.connect(self.name.clone(), stream);
        match tokio::time::timeout(HANDSHAKE_MAX, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(explained(&self.name.to_str(), error)),
            Err(_) => {
                let limit = HANDSHAKE_MAX.as_secs();
                let name = self.name.to_str();
                Err(anyhow!("no TLS with `{name}`: no handshake in {limit} s: is it `http://`?"))
            }
        }
    }
}

fn roots() -> anyhow::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    for certificate in found.certs {
        // A certificate that cannot be parsed cannot be used: skip it.
        let _added = roots.add(certificate);
    }
    let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    ensure!(
        !roots.is_empty(),
        "this system has no certificates to trust{why}: install its `ca-certificates`, or name a file of \
         them with SSL_CERT_FILE"
    );
    Ok(roots)
}

/// The error of a failed handshake, with what to do.
fn explained(name: &str, error: io::Error) -> anyhow::Error {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let way_out = match cause {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {
            "nobody that this system trusts has issued the certificate: name the issuer's own in a \
             file with SSL_CERT_FILE"
        }
        Some(rustls::Error::InvalidCertificate(
            NotValidForName | NotValidForNameContext { .. },
        )) => "the certificate is another's: use a name that it has, or is it another machine?",
        Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            "the certificate has ended: whoever runs the server must renew it, or is the clock \
             of this machine wrong?"
        }
        Some(rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. })) => {
            "the certificate is not good yet: is the clock of this machine wrong?"
        }
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS: is it `http://`?",
        Some(_) => "the handshake failed",
        None => "the connection broke off in the handshake: is it `http://`?",
    };
    anyhow::Error::new(error).context(format!("no TLS with `{name}`: {way_out}"))
}
