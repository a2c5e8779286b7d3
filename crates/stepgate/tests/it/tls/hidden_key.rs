//! The key of the gateway's own certificate, and tool servers that try to read it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use super::{NAMES, client, url};
use crate::gate::proposal;
use crate::gateway_tools::preceded_by;
use crate::http_client::Gateway;
use crate::scene::{Scene, python, until};
use crate::tls::authority::Authority;

/// What a tool server does before it serves: it says which of the files it can read.
const ATTACK: &str = r#"import sys
found = []
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file:
            found.append((path, len(file.read())))
    except OSError:
        pass
print("over:", found)
"#;

/// Lets the tool server try to read these files. Returns the file with what it says.
fn attacked(scene: &Scene, tried: &[PathBuf]) -> PathBuf {
    fs::write(scene.file("attack.py"), ATTACK).unwrap();
    let tried = tried.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(" ");
    let (program, log) = (scene.file("attack.py"), scene.file("attack.log"));
    preceded_by(scene, &format!("{} {program:?} {tried} > {log:?} 2>&1", python()));
    log
}

#[test]
fn a_tool_server_cannot_read_archives_wherever_they_are() {
    let elsewhere = tempfile::TempDir::new().unwrap();
    let archives = elsewhere.path().join("archives");
    fs::create_dir(&archives).unwrap();
    let (secret, plain) = (archives.join("old.archive.jsonl"), elsewhere.path().join("plain"));
    fs::write(&secret, "what agents did").unwrap();
    fs::write(&plain, "for everybody").unwrap();
    let scene = Scene::new("honours_key = true");
    let log = attacked(&scene, &[secret, plain]);
    let config = scene.place.path().join("stepgate.toml");
    let retention = format!("[retention]\ndirectory = {archives:?}\n");
    fs::write(&config, retention + &fs::read_to_string(&config).unwrap()).unwrap();
    let _gateway = Gateway::start(&scene.place);
    let said = || fs::read_to_string(&log).unwrap_or_default();
    until("the attack is over", || said().contains("over:"));
    let said = said();
    assert!(said.contains("plain") && !said.contains(".archive.jsonl"), "{said}");
}

/// Whether the command line names the key or the configuration does, and by its own path or through a link.
#[test]
fn a_tool_server_cannot_read_the_key_of_the_gateway() {
    for is_configured in [false, true] {
        let (authority, elsewhere) = (Authority::new(), tempfile::TempDir::new().unwrap());
        let at = |name: &str| elsewhere.path().join(name);
        authority.issue(NAMES, 2, elsewhere.path());
        fs::write(at("plain"), "for everybody").unwrap();
        let scene = Scene::new("honours_key = true");
        symlink(at("gate.key"), scene.file("link.key")).unwrap();
        let tried = [at("gate.key"), scene.file("link.key"), at("gate.pem"), at("plain")];
        let log = attacked(&scene, &tried);

        let [certificate, key] =
            ["gate.pem", "gate.key"].map(|name| at(name).to_str().unwrap().to_owned());
        let gateway = if is_configured {
            let config = scene.place.path().join("stepgate.toml");
            let tls = format!("[serve]\ntls_certificate = {certificate:?}\ntls_key = {key:?}\n");
            fs::write(&config, tls + &fs::read_to_string(&config).unwrap()).unwrap();
            Gateway::start(&scene.place)
        } else {
            let args = ["--tls-certificate", &certificate, "--tls-key", &key];
            Gateway::start_with(&scene.place, &args)
        };
        let said = || fs::read_to_string(&log).unwrap_or_default();
        until("the attack is over", || said().contains("over:"));
        let said = said();
        assert!(said.contains("plain") && said.contains("gate.pem"), "it looked: {said}");
        assert!(!said.contains(".key"), "is_configured: {is_configured}, {said}");

        // The gateway itself has it, and so does the tool server what it needs.
        let client = client(&authority.certificate(), &gateway.agent);
        let look = proposal(1, "fixture.look", json!({}));
        let output = client.stepgate(["--url", &url(&gateway), "step", "-"], look);
        assert_eq!(output.code, 0, "{output:?}");
    }
}
