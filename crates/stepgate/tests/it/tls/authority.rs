//! Whoever issues the certificates of these tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;

use crate::binary::finish;

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn new() -> Self {
        Self::called("tests")
    }

    pub(super) fn called(name: &str) -> Self {
        let authority = Self(tempfile::tempdir().unwrap());
        let mut openssl = openssl();
        openssl.args(["req", "-x509", "-days", "9", "-subj", &format!("/CN={name}")]).args(KEY);
        openssl.arg("-keyout").arg(authority.key()).arg("-out").arg(authority.certificate());
        run(openssl);
        authority
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("ca.key")
    }

    /// Writes `gate.pem` and `gate.key`, each with one rename, for so many days from now.
    pub(crate) fn issue(&self, names: &str, days: i32, place: &Path) {
        let file = |name: &str| self.0.path().join(name);
        fs::write(file("names"), format!("subjectAltName={names}")).unwrap();
        let mut request = openssl();
        request.args(["req", "-new", "-subj", "/CN=gate"]).args(KEY);
        request.arg("-keyout").arg(file("gate.key")).arg("-out").arg(file("request"));
        run(request);
        let mut sign = openssl();
        sign.args(["x509", "-req", "-CAcreateserial", "-days", &days.to_string()]);
        sign.arg("-in").arg(file("request")).arg("-extfile").arg(file("names"));
        sign.arg("-CA").arg(self.certificate()).arg("-CAkey").arg(self.key());
        sign.arg("-out").arg(file("gate.pem"));
        run(sign);
        for name in ["gate.pem", "gate.key"] {
            let beside = place.join(format!("{name}.new"));
            fs::copy(file(name), &beside).unwrap();
            fs::rename(beside, place.join(name)).unwrap();
        }
    }

    /// A client that trusts nobody else.
    pub(super) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.certificate()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

fn openssl() -> Command {
    Command::new("openssl")
}

fn run(mut openssl: Command) {
    let output = finish(&mut openssl, b"");
    assert_eq!(output.code, 0, "{output:?}");
}
