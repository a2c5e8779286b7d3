//! What the tests of the MCP door share: where the programs of the ecosystem are, how a Node program is
//! kept on this machine, and a gateway with tool servers behind it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary::Place;

/// Where the programs are: `TARGET/tools/ecosystem`, seen from `TARGET/debug/deps/it-…`.
pub(crate) fn installed() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let directory = here.ancestors().nth(3).unwrap().join("tools/ecosystem");
    assert!(directory.join("installed").exists(), "run `cargo xtask setup` once");
    directory
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Node 22 with a script, a packet's path or a file's, and nothing of our environment. It can listen
/// and connect on the loopback alone.
pub(crate) fn node22(script: impl AsRef<Path>) -> Command {
    let packets = installed().join("clients/node_modules");
    let mut command = Command::new(packets.join("node22/bin/node"));
    command.env_clear().env("NODE_OPTIONS", loopback_only()).arg(packets.join(script));
    command
}

/// For `NODE_OPTIONS`.
pub(crate) fn loopback_only() -> String {
    format!("--require={}", fixture("loopback.cjs").display())
}

/// Python with the SDK, and nothing of our environment.
pub(crate) fn python_with_sdk(script: impl AsRef<Path>) -> Command {
    let mut command = Command::new(installed().join("python/bin/python3"));
    command.env_clear().arg(script.as_ref());
    command
}

/// A data directory with this configuration and these policies.
pub(crate) fn place_with(config: &str, policies: &str) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path().join("policies")).unwrap();
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    fs::write(place.path().join("policies/all.cedar"), policies).unwrap();
    place
}
