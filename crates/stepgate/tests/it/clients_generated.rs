//! Clients that generators of the ecosystem make from the gateway's own OpenAPI document, and use.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::binary::{Output, finish};
use crate::http_client::Gateway;
use crate::mcp_scene::{fixture, installed, node22, place_with};

/// Writing needs a person, and reading is not allowed.
const POLICIES: &str = "@id(\"ask\") @approval(\"a person looks\")\n\
                        permit (principal, action == Action::\"WRITE_FILE\", resource);";

/// A directory with the document that a gateway serves.
fn documented(gateway: &Gateway) -> TempDir {
    let directory = TempDir::new().unwrap();
    let reply = gateway.send("GET", "/openapi.json", &gateway.agent, "");
    assert_eq!(reply.status, 200, "{}", reply.body);
    fs::write(directory.path().join("openapi.json"), &reply.body).unwrap();
    directory
}

/// What the command printed; it must succeed, and must not warn.
#[track_caller]
fn run(command: &mut Command) -> String {
    let Output { code, stdout, stderr } = finish(command, b"");
    let printed = stdout + &stderr;
    assert_eq!(code, 0, "{printed}");
    assert!(!printed.to_lowercase().contains("warning"), "{printed}");
    printed
}

fn python(directory: &Path) -> Command {
    let mut command = Command::new(installed().join("python-openapi/bin/python3"));
    command.env_clear().current_dir(directory);
    command
}

fn use_it(command: &mut Command, gateway: &Gateway) {
    let printed = run(command.args([&gateway.url(), &gateway.agent, &gateway.operator]));
    assert_eq!(printed, "done\n");
}

#[test]
fn the_document_is_valid_and_a_client_of_openapi_python_client_works() {
    let place = place_with("", POLICIES);
    let gateway = Gateway::start(&place);
    let directory = documented(&gateway);
    let directory = directory.path();
    run(python(directory).args(["-m", "openapi_spec_validator", "openapi.json"]));
    // Its hooks format the code with other programs.
    fs::write(directory.join("config.yaml"), "post_hooks: []\n").unwrap();
    let generate = "generate --path openapi.json --output-path stepgate_client --meta none \
                    --config config.yaml --fail-on-warning";
    run(python(directory).args(["-m", "openapi_python_client"]).args(generate.split_whitespace()));
    let mut client = python(directory);
    client.env("PYTHONPATH", directory).arg(fixture("openapi_client.py"));
    use_it(&mut client, &gateway);
}

#[test]
fn a_client_of_openapi_typescript_is_checked_by_the_compiler_and_works() {
    let place = place_with("", POLICIES);
    let gateway = Gateway::start(&place);
    let directory = documented(&gateway);
    let directory = directory.path();
    let packages = installed().join("openapi/node_modules");
    symlink(&packages, directory.join("node_modules")).unwrap();
    fs::write(directory.join("package.json"), r#"{ "type": "module" }"#).unwrap();
    fs::copy(fixture("openapi_client.ts"), directory.join("client.ts")).unwrap();
    run(node22(packages.join("openapi-typescript/bin/cli.js")).current_dir(directory).args([
        "openapi.json",
        "--output",
        "api.d.ts",
    ]));
    let options = "--noEmit --strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess \
                   --target es2022 --lib es2022,dom --module nodenext \
                   --allowImportingTsExtensions --skipLibCheck client.ts";
    run(node22(packages.join("typescript/bin/tsc"))
        .current_dir(directory)
        .args(options.split_whitespace()));
    let mut client = node22(directory.join("client.ts"));
    client.env("NODE_NO_WARNINGS", "1").current_dir(directory);
    use_it(&mut client, &gateway);
}
