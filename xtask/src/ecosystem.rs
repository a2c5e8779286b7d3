//! Tool servers of the ecosystem, for the tests that put them behind the gate: installed once, beside
//! the build's own output, in the versions that are named here.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::run;

/// From npm: the official servers that only need Node.
const NODE_SERVERS: [&str; 3] = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];

/// From PyPI.
const PYTHON_SERVERS: [&str; 2] = ["mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19"];

/// From PyPI: the library that the agent's wire is held against.
const PYTHON_LIBRARIES: [&str; 1] = ["openai==3.49.0"];

/// Installs what is missing into this directory: `node/` and `python/`.
pub(crate) fn install(directory: &Path) -> anyhow::Result<()> {
    let wanted = [&NODE_SERVERS[..], &PYTHON_SERVERS[..], &PYTHON_LIBRARIES[..]].concat().join("\n");
    let stamp = directory.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    need("node", &["nodejs", "npm"])?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    npm.arg(directory.join("node")).args(NODE_SERVERS);
    run("tool servers from npm (once)", npm)?;
    need("python3", &["python3", "python3-venv"])?;
    let python = directory.join("python");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&python);
    run("a place for Python's tool servers", venv)?;
    let mut pip = Command::new(python.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(PYTHON_SERVERS);
    pip.args(PYTHON_LIBRARIES);
    run("tool servers from PyPI (once)", pip)?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write `{}`", stamp.display()))
}

/// Installs Debian's packages where a program is missing.
fn need(program: &str, packages: &[&str]) -> anyhow::Result<()> {
    let is_there = |program: &str| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    if is_there(program) {
        return Ok(());
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    run(&format!("{program}, which the tests need (once)"), install).with_context(|| {
        format!("install `{program}` by hand, or run this command as root on Debian")
    })?;
    ensure!(is_there(program), "there is still no `{program}`");
    Ok(())
}
