//! Certificates are renewed every few weeks, and nobody starts a gateway again for that.

use std::fs;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::TLS13;

use super::{NAMES, client, connect, is_answered, place, url};
use crate::http_client::Gateway;
use crate::tls::authority::Authority;

/// Whether a new connection gets the certificate of this file.
fn shows(gateway: &Gateway, authority: &Authority, certificate: &[u8]) -> bool {
    let connection = connect(gateway.address, authority.client(&[&TLS13])).unwrap();
    let shown = connection.conn.peer_certificates().unwrap()[0].clone();
    shown == CertificateDer::from_pem_slice(certificate).unwrap()
}

#[test]
fn a_renewed_certificate_is_taken_while_a_kept_connection_goes_on_and_a_broken_one_is_not() {
    let authority = Authority::new();
    let place = place(&authority, "");
    let file = place.path().join("gate.pem");
    let mut gateway = Gateway::start(&place);
    let first = fs::read(&file).unwrap();
    let mut kept = connect(gateway.address, authority.client(&[&TLS13])).unwrap();
    assert!(is_answered(&mut kept) && shows(&gateway, &authority, &first));

    authority.issue(NAMES, 3, &place.path());
    let second = fs::read(&file).unwrap();
    gateway.until_it_says("certificate renewed: ");
    assert!(shows(&gateway, &authority, &second));
    assert!(is_answered(&mut kept));

    fs::write(&file, "half of a fi").unwrap();
    gateway.until_it_says("the one before stays in force: ");
    assert!(shows(&gateway, &authority, &second));
    let client = client(&authority.certificate(), &gateway.agent);
    assert_eq!(client.stepgate(["--url", &url(&gateway), "run", "THINK"], "").code, 0);

    authority.issue(NAMES, 4, &place.path());
    gateway.until_it_says("certificate renewed: ");
    assert!(shows(&gateway, &authority, &fs::read(&file).unwrap()));
    assert!(is_answered(&mut kept));
}
