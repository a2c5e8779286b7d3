//! The protocol's official conformance suite against `/mcp`, in front of a tool server that offers the
//! tools which the scenarios call. What comes out must be what `docs/mcp-conformance.md` says, scenario
//! by scenario, either way: a scenario that begins to pass is as much a difference as one that stops.

mod bearer_proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::binary::{Place, finish};
use crate::docs::{quoted, read, rows};
use crate::http_client::{Gateway, exchange, request};
use crate::mcp_scene::{fixture, node22, place_with};
use crate::scene::python;

const PAGE: &str = "docs/mcp-conformance.md";

/// How often a scenario that ends otherwise than documented is run again.
const RERUNS: usize = 2;

/// Tools that policy lets through only with a person's word: with the Tasks extension, their calls
/// become tasks.
const POLICIES: &str = r#"
    @id("look")
    permit (principal, action in Action::"read_only", resource);
    @id("ask") @approval("a task for a person")
    permit (principal, action in Action::"draft", resource);
"#;

/// What became of a scenario.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    word: &'static str,
    /// The checks that failed or warned.
    checks: BTreeSet<String>,
}

impl Verdict {
    /// Passing needs a check of the scenario's own that succeeded: the two that look at every
    /// message's form are added to all scenarios, and those that only skip prove nothing.
    fn of(checks: &[Value]) -> Self {
        let named = |status: &str| -> BTreeSet<String> {
            let named = checks.iter().filter(|check| check["status"] == status);
            named.map(|check| check["id"].as_str().unwrap().to_owned()).collect()
        };
        let (failed, warned, succeeded) = (named("FAILURE"), named("WARNING"), named("SUCCESS"));
        let word = if !failed.is_empty() {
            "fails"
        } else if !warned.is_empty() {
            "warns"
        } else if succeeded.iter().any(|id| !id.starts_with("wire-schema")) {
            "passes"
        } else {
            "says nothing"
        };
        Self { word, checks: &failed | &warned }
    }
}

/// A gateway with the fixture behind it, the proxy before it, and an operator who approves whatever
/// is asked.
struct Scene {
    place: Place,
    gateway: Gateway,
    url: String,
    ends: Arc<AtomicBool>,
    operator: Option<JoinHandle<()>>,
}

impl Scene {
    fn new() -> Self {
        let tasks = ["slow_compute", "failing_job", "protocol_error_job", "confirm_delete"]
            .map(|tool| {
                format!(
                    "[servers.fixture.tools.{tool}]\nmode = \"draft\"\nin_doubt = \"redispatch\"\n"
                )
            })
            .concat();
        let config = format!(
            "[policy]\nreload_ms = 20\n\
             [servers.fixture]\ncommand = {:?}\nargs = [{:?}]\nmode = \"read_only\"\n\
             own_names = true\ntimeout_ms = 70000\n{tasks}",
            python(),
            fixture("conformance_server.py"),
        );
        let place = place_with(&config, POLICIES);
        let gateway = Gateway::start_with(&place, &["--quiet"]);
        let proxy = bearer_proxy::before(gateway.address, &gateway.agent);
        let ends = Arc::new(AtomicBool::new(false));
        let operator = operator(gateway.address, gateway.operator.clone(), Arc::clone(&ends));
        let url = format!("http://{proxy}/mcp");
        Self { place, gateway, url, ends, operator: Some(operator) }
    }

    /// Runs scenarios, and reads what the suite wrote about each.
    fn run(&self, scenarios: &[&str]) -> BTreeMap<String, Verdict> {
        let results = tempfile::TempDir::new().unwrap();
        let mut command = suite();
        command.args(["server", "--url", &self.url, "--output-dir"]).arg(results.path());
        command.args(scenarios).current_dir(results.path());
        let output = finish(&mut command, b"");
        let mut verdicts = BTreeMap::new();
        for folder in fs::read_dir(results.path()).unwrap() {
            let folder = folder.unwrap();
            let name = folder.file_name().into_string().unwrap();
            // `server-NAME-2026-11-15T09-00-00-000Z`
            let name = name.strip_prefix("server-").unwrap();
            let name = &name[..name.len() - "-2026-11-15T09-00-00-000Z".len()];
            let checks = fs::read(folder.path().join("checks.json")).unwrap();
            let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
            report(name, &checks);
            verdicts.insert(name.to_owned(), Verdict::of(&checks));
        }
        assert!(!verdicts.is_empty(), "{}{}", output.stdout, output.stderr);
        verdicts
    }

    /// Everything that the scenarios did must verify.
    fn end(mut self) {
        self.ends.store(true, Ordering::Release);
        self.operator.take().unwrap().join().unwrap();
        self.gateway.signal(rustix::process::Signal::TERM);
        let (code, stderr) = self.gateway.end();
        assert_eq!(code, Some(0), "{stderr}");
        let verified = self.place.stepgate(["verify"], "");
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    }
}

/// Says what failed, for whoever reads the output of a test that failed.
fn report(scenario: &str, checks: &[Value]) {
    for check in checks {
        if ["FAILURE", "WARNING"].iter().any(|status| check["status"] == *status) {
            println!("{scenario}: {} {}: {}", check["status"], check["id"], check["errorMessage"]);
            if check["id"] == "wire-schema-valid" {
                println!("{}", check["details"]);
            }
        }
    }
}

fn suite() -> Command {
    node22("@modelcontextprotocol/conformance/dist/index.js")
}

/// Approves whatever is asked, until it is told to stop.
fn operator(address: SocketAddr, token: String, ends: Arc<AtomicBool>) -> JoinHandle<()> {
    let send = move |method: &str, path: &str| {
        exchange(address, request(method, path, &token, &[], "").as_bytes())
    };
    thread::spawn(move || {
        while !ends.load(Ordering::Acquire) {
            let asked = send("GET", "/v1/approvals?status=pending").map(|reply| reply.json());
            for approval in asked.iter().flat_map(|asked| asked["approvals"].as_array()).flatten() {
                let id = approval["approval_id"].as_str().unwrap();
                send("POST", &format!("/v1/approvals/{id}/approve"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    })
}

/// What the page says under this heading.
fn documented(heading: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let page = read(PAGE);
    let begin = page.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = &page[begin + 4..];
    let section = &section[..section.find("\n## ").unwrap_or(section.len())];
    let row = |row: &Vec<String>| {
        let checks = quoted(&row[2]).into_iter().map(str::to_owned).collect();
        (quoted(&row[0])[0].to_owned(), (row[1].clone(), checks))
    };
    rows(section, 3).iter().map(row).collect()
}

/// Compares with the page. Some scenarios give a server half a second: what differs is run again, by
/// itself, and a real difference stays.
fn agree(scene: &Scene, heading: &str, mut verdicts: BTreeMap<String, Verdict>) {
    let documented = documented(heading);
    for _ in 0..RERUNS {
        let differs = |name: &&String| match (documented.get(*name), verdicts.get(*name)) {
            (Some((word, checks)), Some(found)) => {
                let is_word = word == found.word || word == "does not apply";
                !is_word || *checks != found.checks
            }
            (Some(_), None) | (None, Some(_) | None) => false,
        };
        let differing: Vec<_> = documented.keys().filter(differs).cloned().collect();
        for name in differing {
            println!("again: {name}");
            let of_version = ["--spec-version", heading];
            let version = if heading == "Extensions" { &[][..] } else { &of_version };
            verdicts.extend(scene.run(&[&["--scenario", name.as_str()], version].concat()));
        }
    }
    compare(heading, &documented, verdicts);
}

/// Of what fails, the page alone can say that it does not apply.
fn compare(
    heading: &str,
    documented: &BTreeMap<String, (String, BTreeSet<String>)>,
    verdicts: BTreeMap<String, Verdict>,
) {
    let word_for = |name: &str, found: &'static str| match documented.get(name) {
        Some((word, _)) if found == "fails" && word == "does not apply" => word.clone(),
        Some(_) | None => found.to_owned(),
    };
    let found: BTreeMap<_, _> = verdicts
        .into_iter()
        .map(|(name, verdict)| (name.clone(), (word_for(&name, verdict.word), verdict.checks)))
        .collect();
    for (name, verdict) in &found {
        if documented.get(name) != Some(verdict) {
            println!("differs: {name}: {verdict:?}, documented {:?}", documented.get(name));
        }
    }
    assert_eq!(found, *documented, "{PAGE} differs from what the suite found");
    let count = |word: &str| found.values().filter(|(said, _)| said == word).count().to_string();
    let words = ["passes", "warns", "fails", "does not apply", "says nothing"];
    let counts = [vec![found.len().to_string()], words.map(count).to_vec()].concat();
    let summary = rows(&read(PAGE), 7).into_iter().find(|row| row[0] == heading).unwrap();
    assert_eq!(summary[1..], counts, "the summary of {heading} in {PAGE}");
}

#[test]
fn the_scenarios_of_2025_11_25_end_as_documented() {
    let scene = Scene::new();
    agree(&scene, "2025-11-25", scene.run(&["--suite", "all", "--spec-version", "2025-11-25"]));
    scene.end();
}

#[test]
fn the_scenarios_of_2026_07_28_end_as_documented() {
    let scene = Scene::new();
    agree(&scene, "2026-07-28", scene.run(&["--suite", "all", "--spec-version", "2026-07-28"]));
    scene.end();
}

#[test]
fn the_scenarios_of_extensions_end_as_documented() {
    let scene = Scene::new();
    let verdicts =
        documented("Extensions").into_keys().flat_map(|name| scene.run(&["--scenario", &name]));
    agree(&scene, "Extensions", verdicts.collect());
    scene.end();
}

#[test]
fn the_page_names_every_server_scenario_of_the_suite() {
    let listed = finish(suite().args(["list", "--server"]), b"");
    let mut named = BTreeSet::new();
    let mut expected = BTreeSet::new();
    for heading in ["2025-11-25", "2026-07-28", "Extensions"] {
        named.extend(documented(heading).into_keys().map(|name| (heading, name)));
        let mark = if heading == "Extensions" { "extension" } else { heading };
        for line in listed.stdout.lines().filter_map(|line| line.trim().strip_prefix("- ")) {
            let (name, versions) = line.split_once(" [").unwrap();
            if versions.trim_end_matches(']').split(',').any(|version| version == mark) {
                expected.insert((heading, name.to_owned()));
            }
        }
    }
    assert_eq!(named, expected);
}

#[test]
fn a_node_program_of_the_tests_stays_on_the_loopback() {
    let script = r#"
        const http = require("node:http");
        const listen = (...where) => new Promise((done) => {
          try {
            const server = http.createServer().listen(...where);
            server.on("listening", () => { done(server.address().address); server.close(); });
          } catch (error) { done("refused"); }
        });
        const reach = (url) => fetch(url).then(() => "reached", (error) => error.cause.message);
        (async () => {
          const places = [[0], ["0"], [{ port: 0 }], [], [0, "localhost"], [0, "0.0.0.0"], [{ port: 0, host: "::" }]];
          for (const place of places) console.log(await listen(...place));
          for (const url of ["http://192.0.2.1/", "https://example.com/"]) console.log(await reach(url));
        })();
    "#;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("script.cjs");
    fs::write(&file, script).unwrap();
    let output = finish(&mut node22(file), b"");
    let said: Vec<_> = output.stdout.lines().collect();
    let (listened, reached) = said.split_at(7);
    let own = "127.0.0.1";
    assert_eq!(listened, [own, own, own, own, own, "refused", "refused"], "{}", output.stderr);
    assert!(reached.iter().all(|said| said.contains("loopback")), "{reached:?}");
}
