//! The command line as a client over TLS.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{client, configure, place, url};
use crate::binary::Place;
use crate::http_client::Gateway;
use crate::tls::authority::Authority;

#[test]
fn a_step_goes_over_tls_to_a_gateway_whose_issuer_is_named() {
    let authority = Authority::new();
    let place = place(&authority, "");
    let gateway = Gateway::start(&place);
    assert!(gateway.greeting[0].ends_with(&format!("https://{}", gateway.address)));
    let client = client(&authority.certificate(), &gateway.agent);
    let by_address = format!("https://{}/", gateway.address);
    for url in [url(&gateway), by_address] {
        let args = ["--url", &url, "run", "WRITE_FILE", "path=/sandbox/a.txt", "content=hi"];
        let output = client.stepgate(args, "");
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    }
    assert_eq!(fs::read_to_string(place.path().join("sandbox/a.txt")).unwrap(), "hi");
    // The socket of the data directory is as it was.
    assert_eq!(place.stepgate(["run", "READ_FILE", "path=/sandbox/a.txt"], "").code, 0);
}

#[test]
fn the_bridge_of_mcp_goes_over_tls() {
    let authority = Authority::new();
    let place = place(&authority, "");
    let gateway = Gateway::start(&place);
    let client = client(&authority.certificate(), &gateway.agent);
    let info = json!({ "name": "a test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let output = client.stepgate(["--url", &url(&gateway), "mcp"], format!("{hello}\n"));
    let answer: Value = serde_json::from_str(output.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "stepgate", "{output:?}");
}

#[test]
fn whoever_cannot_be_trusted_is_told_nothing_and_the_way_out_is_named() {
    let (authority, namesake, other) =
        (Authority::new(), Authority::new(), Authority::called("others"));
    let known = authority.certificate();
    let (unknown, unlike) = (other.certificate(), namesake.certificate());
    let issuer = "has issued the certificate: name the issuer's own";
    let first = place(&authority, "");
    authority.issue("DNS:gate.example.com,DNS:localhost", 2, &first.path());
    let gateway = Gateway::start(&first);
    let by_address = format!("https://{}", gateway.address);
    let in_the_clear = format!("http://{}", gateway.address);
    let second = place(&authority, "");
    authority.issue(super::NAMES, -1, &second.path());
    let ended = Gateway::start(&second);
    let plain = Place::new();
    let plain = Gateway::start(&plain);
    let nowhere = Path::new("/nowhere.pem");
    for (trusted, url, expected) in [
        (unknown.as_path(), url(&gateway), issuer),
        (&unlike, url(&gateway), issuer),
        (nowhere, url(&gateway), "this system has no certificates to trust"),
        (&known, by_address, "gate.example.com"),
        (&known, url(&ended), "the certificate has ended"),
        (&known, in_the_clear, "this address speaks TLS: ask it with https:// (400)"),
        (&known, super::url(&plain), "it does not speak TLS: is it `http://`?"),
        (&known, "https://127.0.0.2".to_owned(), "cannot connect to `127.0.0.2:443`"),
        (&known, "https://a b".to_owned(), "is not a name that a certificate can have"),
    ] {
        let output = client(trusted, &gateway.agent).stepgate(["--url", &url, "run", "THINK"], "");
        assert!(output.code == 1 && output.stderr.contains(expected), "{expected}: {output:?}");
        assert!(!output.stderr.contains(&gateway.agent), "{output:?}");
    }
    assert_eq!(first.stepgate(["runs"], "").stdout, "no runs\n");
}

#[test]
fn what_is_printed_for_clients_says_https() {
    let authority = Authority::new();
    let place = place(&authority, "bind = \"127.0.0.1:7433\"\n");
    let output = place.stepgate(["mcp", "config", "--client", "cursor"], "");
    assert!(output.stdout.contains("https://127.0.0.1:7433/mcp"), "{output:?}");
    configure(&place, "public_url = \"https://gate.example.com\"\n");
    let output = place.stepgate(["mcp", "config", "--client", "cursor"], "");
    assert!(output.stdout.contains("https://gate.example.com/mcp"), "{output:?}");
    configure(&place, "public_url = \"http://gate.example.com\"\n");
    let output = place.stepgate(["mcp", "config", "--client", "cursor"], "");
    assert!(output.code == 1 && output.stderr.contains("TLS is spoken"), "{output:?}");
}
