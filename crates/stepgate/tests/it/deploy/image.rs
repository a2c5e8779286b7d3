//! The image under podman, with a read-only root file system and no rights: it serves, stops, and is upgraded with its data.

use std::fs;

use serde_json::{Value, json};

use super::podman::{Podman, UID, hand_over, libraries};
use super::{Served, free_address};
use crate::gate::proposal;
use crate::mcp_scene::fixture;
use crate::scene::until;
use crate::terminal::at_a_terminal;

/// What Kubernetes sets in every container beside a service that is called `stepgate`.
pub(super) const OF_A_SERVICE: [&str; 4] = [
    "--env=STEPGATE_SERVICE_HOST=10.0.0.1",
    "--env=STEPGATE_SERVICE_PORT_HTTPS=443",
    "--env=STEPGATE_PORT=tcp://10.0.0.1:443",
    "--env=STEPGATE_PORT_443_TCP_ADDR=10.0.0.1",
];

/// Starts a container on the volume `data`, and waits until it is ready.
fn serve(podman: &Podman, name: &str, image: &str, options: &[&str]) -> Served {
    let address = free_address();
    let bind = address.to_string();
    let options = [&["--volume=data:/var/lib/stepgate"][..], &OF_A_SERVICE, options].concat();
    podman.start(name, &options, image, &["serve", "--bind", &bind]);
    let volume = podman.must(&["volume", "inspect", "--format={{.Mountpoint}}", "data"]);
    let served = Served { address, data: std::path::Path::new(&volume).join("data") };
    until(&format!("it is ready: {}", podman.log(name)), || {
        served.status_of("/readyz") == Some(200)
    });
    served
}

#[test]
fn the_image_serves_with_nothing_to_write_to_but_its_volume_and_is_upgraded_with_it() {
    let Some(podman) = Podman::new() else { return };
    podman.build("localhost/stepgate:before", "before");
    let inspected = podman.must(&["image", "inspect", "localhost/stepgate:before"]);
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    let config = &inspected[0]["Config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["StopSignal"], "SIGTERM");

    let served = serve(&podman, "first", "localhost/stepgate:before", &[]);
    let args = json!({ "path": "/sandbox/a.txt", "content": "x" });
    let first = served.propose(&proposal(1, "WRITE_FILE", args.clone()));
    assert_eq!(first.json()["outcome"], "SUCCESS", "{}", first.body);
    podman.must(&["healthcheck", "run", "first"]);
    // Nothing but the program: there is no shell to start.
    assert_ne!(podman.run(&["exec", "first", "/bin/sh", "-c", "true"]).code, 0);

    podman.must(&["stop", "--time=60", "first"]);
    assert_eq!(podman.must(&["inspect", "--format={{.State.ExitCode}}", "first"]), "0");
    assert_eq!(served.status_of("/readyz"), None);
    assert_ne!(podman.run(&["healthcheck", "run", "first"]).code, 0);

    podman.build("localhost/stepgate:next", "next");
    let served = serve(&podman, "second", "localhost/stepgate:next", &[]);
    let again = served.propose(&proposal(1, "WRITE_FILE", args));
    assert_eq!((again.status, again.body), (first.status, first.body), "the recorded answer");
    podman.must(&["exec", "second", "/usr/bin/stepgate", "verify"]);
}

/// Landlock stands although the container's system calls are filtered; and a person at a terminal of the container makes
/// the first token.
#[test]
fn tool_servers_are_confined_in_the_image_too() {
    let Some(podman) = Podman::new() else { return };
    podman.build("localhost/stepgate:test", "test");
    let directory = podman.directory().join("configuration");
    fs::create_dir_all(directory.join("policies")).unwrap();
    let policy = r#"@id("test") permit (principal, action, resource);"#;
    fs::write(directory.join("policies/test.cedar"), policy).unwrap();
    fs::copy(fixture("tool_server.py"), directory.join("tool_server.py")).unwrap();
    let config = format!(
        "[servers.fixture]\ncommand = \"/host/usr/bin/python3\"\n\
         args = [\"/etc/stepgate/tool_server.py\", \"/tmp\", \"--probe\", \"/var/lib/stepgate/data/agent.token\"]\n\
         env = {{ LD_LIBRARY_PATH = \"/host/usr/lib/{}\" }}\nmode = \"read_only\"\n",
        libraries()
    );
    fs::write(directory.join("stepgate.toml"), config).unwrap();
    for path in [directory.clone(), directory.join("policies")] {
        hand_over(&path, 0, 0o755);
    }
    let configuration = format!("--volume={}:/etc/stepgate:ro", directory.display());
    // The image has no Python: this system's is mounted.
    let options = [&configuration, "--volume=/usr:/host/usr:ro"];
    let served = serve(&podman, "gate", "localhost/stepgate:test", &options);
    let probe = served.propose(&proposal(1, "fixture.probe", json!({})));
    let result: Value = probe.json()["result"]["structuredContent"].clone();
    assert_eq!(result["file"], "PermissionError", "{}\n{}", probe.body, podman.log("gate"));
    let rights = (&result["CapBnd"], &result["NoNewPrivs"], &result["Seccomp"], &result["uid"]);
    assert_eq!(rights, (&json!("0000000000000000"), &json!("1"), &json!("2"), &json!(UID)));
    assert!(!podman.log("gate").contains("no Landlock"), "{}", podman.log("gate"));

    let exec = ["exec", "--interactive", "--tty", "gate", "/usr/bin/stepgate"];
    let create = ["token", "create", "--name", "ann", "--role", "operator"];
    let made = at_a_terminal(&podman.command(&[&exec[..], &create].concat()), "y\n");
    assert!(made.stdout.contains("sg_"), "{made:?}");
}
