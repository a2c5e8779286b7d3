//! Where faults happen: three gateways on a PostgreSQL of their own, a proxy before the database for each, one
//! sandbox for all, and tools that count what they do.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use stepgate_test_postgres::{Cluster, Settings};
use tempfile::TempDir;

use super::proxy::Proxy;
use crate::binary::{Output, Place};
use crate::http_client::Gateway;
use crate::scene::python;

/// How long a node may be silent before the others take its runs over.
pub(super) const LEASE: Duration = Duration::from_millis(1500);

/// How long a node that is told to stop still takes requests.
pub(super) const DRAIN: Duration = Duration::from_secs(2);

/// What clients need to know, and what is compared afterwards.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) agent: String,
    pub(super) operator: String,
    pub(super) sandbox: PathBuf,
    /// Whether the sandbox may say that its disk is full.
    pub(super) may_be_full: bool,
}

/// Three tool servers that differ in what becomes of a call in doubt. Each counts its effects by key, in one
/// file however many gateways start it.
pub(super) struct Tools {
    state: TempDir,
}

impl Tools {
    pub(super) fn new() -> Self {
        let state = TempDir::new().unwrap();
        for name in ["once", "again", "asked"] {
            fs::create_dir(state.path().join(name)).unwrap();
        }
        Self { state }
    }

    /// Configures them, and policies that let them act, in a data directory.
    pub(super) fn configure(&self, data: &Path) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tool_server.py");
        let server = |name: &str, flag: &str, delivery: &str| {
            let state = self.state.path().join(name);
            format!(
                "[servers.{name}]\ncommand = {:?}\nargs = [{script:?}, {state:?}{flag}]\n\
                 timeout_ms = 60000\nshared = true\n\
                 [servers.{name}.tools.act]\nmode = \"execute_gated\"\n{delivery}\n",
                python(),
            )
        };
        let config = [
            server("once", ", \"--honours-key\"", "honours_key = true"),
            server("again", "", "in_doubt = \"redispatch\""),
            server("asked", "", "in_doubt = \"query\"\nstatus_tool = \"status\""),
            "[servers.asked.tools.status]\nmode = \"read_only\"\n".to_owned(),
        ];
        fs::create_dir_all(data.join("policies")).unwrap();
        fs::write(data.join("stepgate.toml"), config.concat()).unwrap();
        let policies = r#"
            @id("core") permit (principal, action in Action::"core", resource);
            @id("act") permit (principal, action in Action::"execute_gated", resource);
            @id("look") permit (principal, action in Action::"read_only", resource);
        "#;
        fs::write(data.join("policies/all.cedar"), policies).unwrap();
    }

    /// How often a server acted, by the id of the proposal.
    pub(super) fn effects(&self, name: &str) -> HashMap<String, usize> {
        let text = fs::read_to_string(self.state.path().join(name).join("effects"));
        let mut counts = HashMap::new();
        for key in text.unwrap_or_default().lines() {
            let (_, proposal) = key.rsplit_once('/').unwrap();
            *counts.entry(proposal.to_owned()).or_default() += 1;
        }
        counts
    }
}

/// One of the gateways, with its way to the database.
pub(super) struct Node {
    place: Place,
    /// More than one where the URL names more than one server.
    pub(super) proxies: Vec<Proxy>,
    gateway: Option<Gateway>,
    address: String,
}

impl Node {
    /// With a proxy before each of these ports of PostgreSQL.
    fn new(name: &str, ports: &[u16], database: &str) -> Self {
        let proxies: Vec<_> = ports.iter().map(|port| Proxy::before(*port)).collect();
        let named: Vec<_> =
            proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        let any = if ports.len() > 1 { "?target_session_attrs=read-write" } else { "" };
        let url = format!("postgres://postgres@{}/{database}{any}", named.join(","));
        let place = Place::with(vec![
            ("STEPGATE_STORE", url.into()),
            ("STEPGATE_STORE_NODE_ID", name.into()),
            ("STEPGATE_STORE_LEASE_MS", LEASE.as_millis().to_string().into()),
            ("STEPGATE_STORE_DISPATCH_MARGIN_MS", "300".into()),
            ("STEPGATE_SANDBOX_SHARED", "true".into()),
            ("STEPGATE_SERVE_DRAIN_MS", DRAIN.as_millis().to_string().into()),
        ]);
        fs::create_dir_all(place.path()).unwrap();
        Self { place, proxies, gateway: None, address: "127.0.0.1:0".into() }
    }

    /// Starts it, where it was before.
    pub(super) fn start(&mut self) {
        let mut command = self.place.command(["serve", "--quiet", "--bind", &self.address]);
        let gateway = start_logged(&mut command, &self.log(), &self.place.path());
        self.address = gateway.address.to_string();
        self.gateway = Some(gateway);
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.gateway.as_ref().unwrap().signal(signal);
    }

    /// Waits for the end of its process.
    pub(super) fn ended(&mut self) -> Option<i32> {
        self.gateway.take().unwrap().child.wait().unwrap().code()
    }

    pub(super) fn stepgate(&self, args: &[&str]) -> Output {
        self.place.stepgate(args, "")
    }

    fn log(&self) -> PathBuf {
        self.place.path().parent().unwrap().join("log")
    }
}

/// Starts a gateway that says what it says into a file: nobody has to read it for it to go on.
pub(super) fn start_logged(command: &mut Command, log: &Path, tokens: &Path) -> Gateway {
    let file = OpenOptions::new().create(true).append(true).open(log).unwrap();
    let _shown = Shown(log);
    Gateway::of(command.stderr(file), tokens)
}

/// A log whose end is shown where a test stops.
struct Shown<'a>(&'a Path);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.0).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let end = &lines[lines.len().saturating_sub(20)..];
            println!("the end of {}:\n{}", self.0.display(), end.join("\n"));
        }
    }
}

/// Everything, over one PostgreSQL or over several that are kept available.
pub(super) struct Stage<Database = Cluster> {
    pub(super) cluster: Database,
    pub(super) nodes: Vec<Node>,
    pub(super) tools: Tools,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(&Settings::default(), 1)
    }

    /// With a server that is set up like this; the last node names so many servers in its URL.
    pub(super) fn with(settings: &Settings, hosts: usize) -> Self {
        let cluster = Cluster::start(settings).unwrap();
        let (database, port) = (cluster.database().unwrap(), cluster.port());
        Self::over(cluster, &database, [&[port], &[port], &vec![port; hosts]])
    }
}

impl<Database> Stage<Database> {
    /// Over a database of this name, which each of the three nodes reaches at these ports.
    pub(super) fn over(cluster: Database, database: &str, ports: [&[u16]; 3]) -> Self {
        let names = ["first", "second", "third"].into_iter().zip(ports);
        let nodes: Vec<_> = names.map(|(name, ports)| Node::new(name, ports, database)).collect();
        let tools = Tools::new();
        let sandbox = nodes[0].place.path().join("sandbox");
        fs::create_dir(&sandbox).unwrap();
        for node in &nodes {
            tools.configure(&node.place.path());
            if !node.place.path().join("sandbox").exists() {
                symlink(&sandbox, node.place.path().join("sandbox")).unwrap();
            }
        }
        let mut stage = Self { cluster, nodes, tools };
        for node in &mut stage.nodes {
            node.start();
        }
        stage
    }

    pub(super) fn front(&self) -> Front {
        let first = self.nodes[0].gateway.as_ref().unwrap();
        Front {
            addresses: self.nodes.iter().map(|node| node.address.parse().unwrap()).collect(),
            agent: first.agent.clone(),
            operator: first.operator.clone(),
            sandbox: self.nodes[0].place.path().join("sandbox"),
            may_be_full: false,
        }
    }

    /// Every way to the database.
    pub(super) fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.nodes.iter().flat_map(|node| &node.proxies)
    }
}

impl<Database> Drop for Stage<Database> {
    fn drop(&mut self) {
        for node in &self.nodes {
            drop(Shown(&node.log()));
        }
    }
}
