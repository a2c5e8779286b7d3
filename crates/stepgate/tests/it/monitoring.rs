//! What operators see of a gateway from outside: `/metrics` before `promtool`, the alerts and the dashboard of `deploy/`, and
//! a real Prometheus that scrapes a real gateway.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::attention::quarantine::tamper;
use crate::binary::{Output, Place, finish};
use crate::deploy::free_address;
use crate::docs::root;
use crate::gate::proposal;
use crate::gateway_tools::act;
use crate::http_client::{self, Gateway, PATIENCE, exchange, request};
use crate::mcp_scene::fixture;
use crate::scene::{Scene, python, until};

const RULES: &str = "deploy/prometheus/stepgate.rules.yml";

fn promtool(args: &[&str], input: &str) -> Output {
    let mut promtool = Command::new("promtool");
    finish(promtool.args(args).current_dir(root()), input.as_bytes())
}

/// The text of `/metrics`, as this client asks for it.
fn metrics(gateway: &Gateway, accept: &str) -> String {
    let request = request("GET", "/metrics", &gateway.operator, &[("accept", accept)], "");
    let reply = exchange(gateway.address, request.as_bytes()).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

fn write_file(gateway: &Gateway, id: u32) {
    let args = json!({ "path": "/sandbox/a.txt", "content": "x" });
    let reply = gateway.propose(&proposal(id, "WRITE_FILE", args));
    assert_eq!(reply.json()["outcome"], "SUCCESS", "{}", reply.body);
}

/// The names of metrics in a text, as samples have them.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    let is_ours = |word: &&str| word.starts_with("stepgate_") || word.starts_with("process_");
    let plain = |word: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        parts.iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word).to_owned()
    };
    words.filter(is_ours).map(plain).collect()
}

fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let table = page.split("## Monitoring").nth(1).unwrap().split("\n## ").next().unwrap();
    names(table)
}

#[test]
fn the_metrics_are_what_prometheus_takes_and_each_is_documented() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    write_file(&gateway, 1);
    let text = metrics(&gateway, "text/plain");
    let checked = promtool(&["check", "metrics"], &text);
    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""), "{checked:?}");
    for line in [
        "stepgate_steps_total{outcome=\"SUCCESS\",action=\"WRITE_FILE\",server=\"core\",tool=\"WRITE_FILE\"} 1",
        "stepgate_phase_duration_seconds_count{phase=\"EXECUTE\"} 1",
        "stepgate_phase_duration_seconds_count{phase=\"RESPOND\"} 1",
        "stepgate_tool_duration_seconds_count{action=\"WRITE_FILE\",server=\"core\",tool=\"WRITE_FILE\"} 1",
        // The call before the act, the effect before the answer.
        "stepgate_store_commit_duration_seconds_count 2",
        "stepgate_policy_reload_failing 0",
        "stepgate_recovered_runs_total 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let shown = names(&samples.join("\n"));
    let undocumented: Vec<_> = shown.difference(&documented()).cloned().collect();
    assert_eq!(undocumented, Vec::<String>::new(), "docs/operating.md has no row for them");
    let open = metrics(&gateway, "application/openmetrics-text; version=1.0.0");
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE stepgate_steps counter"), "{open}");
}

#[test]
fn the_alerts_and_the_dashboard_are_about_metrics_that_there_are() {
    let checked = promtool(&["check", "rules", RULES], "");
    assert_eq!(checked.code, 0, "{checked:?}");
    let tests = RULES.replace(".yml", ".test.yml");
    let tested = promtool(&["test", "rules", &tests], "");
    assert_eq!(tested.code, 0, "{tested:?}");
    let rules = fs::read_to_string(root().join(RULES)).unwrap();
    let tests = fs::read_to_string(root().join(tests)).unwrap();
    for line in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(line), "{line} has no test");
    }
    let dashboard = fs::read_to_string(root().join("deploy/grafana/stepgate.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut used = names(&rules);
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            used.extend(names(target["expr"].as_str().unwrap()));
        }
    }
    assert!(used.len() > 20, "{used:?}");
    let unknown: Vec<_> = used.difference(&documented()).cloned().collect();
    assert_eq!(unknown, Vec::<String>::new(), "docs/operating.md does not have them");
}

/// A Prometheus with the alerts of `deploy/`, which scrapes and decides every second and does not wait before it fires.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(directory: &Path, gateway: &Gateway) -> Self {
        let shipped =
            |name: &str| fs::read_to_string(root().join("deploy/prometheus").join(name)).unwrap();
        let rules: Vec<String> = shipped("stepgate.rules.yml")
            .lines()
            .filter(|line| !line.trim().starts_with("for: "))
            .map(str::to_owned)
            .collect();
        fs::write(directory.join("stepgate.rules.yml"), rules.join("\n")).unwrap();
        let token = directory.join("token");
        fs::write(&token, &gateway.operator).unwrap();
        let config = shipped("prometheus.yml")
            .replace("15s", "1s")
            .replace("/etc/prometheus/stepgate.token", token.to_str().unwrap())
            .replace("127.0.0.1:8080", &gateway.address.to_string());
        let file = directory.join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let address = free_address();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}: `cargo xtask setup` installs Prometheus"));
        Self { child, address }
    }

    fn ask(&self, path: &str) -> Value {
        // In HTTP/1.0 an answer has no chunks.
        let request = request("GET", path, "", &[], "").replacen("HTTP/1.1", "HTTP/1.0", 1);
        // While it starts, it answers 503.
        let reply = exchange(self.address, request.as_bytes()).filter(|reply| reply.status == 200);
        reply.map_or(Value::Null, |reply| reply.json())
    }

    /// What fires, by name.
    fn firing(&self) -> BTreeSet<String> {
        let alerts = self.ask("/api/v1/alerts");
        let alerts = alerts["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|it| it["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    fn query(&self, expression: &str) -> Value {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        self.ask(&format!("/api/v1/query?query={escaped}"))
    }

    /// The value of a metric that has one sample.
    fn value(&self, metric: &str) -> Option<String> {
        let found = self.query(metric);
        Some(found["data"]["result"][0]["value"][1].as_str()?.to_owned())
    }
}

/// A data directory with tools, budgets and receivers that get into trouble.
struct Trouble {
    scene: Scene,
    budgets: PathBuf,
    /// A tool server's program.
    program: PathBuf,
}

impl Trouble {
    fn new() -> Self {
        let scene = Scene::new("honours_key = true");
        let data = scene.place.path();
        fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let trouble = Self {
            budgets: data.join("policies/budgets.toml"),
            program: scene.file("server.py"),
            scene,
        };
        fs::copy(fixture("tool_server.py"), &trouble.program).unwrap();
        let budget = "[budget.food]\ntools = [\"grown.send\"]\nargument = \"amount\"\nlimit = \"100\"\n\
                      per = \"principal\"\nwindow = \"ever\"\n";
        fs::write(&trouble.budgets, budget).unwrap();
        trouble.configure("");
        trouble
    }

    /// Each server has its own program; one of them has these tools more.
    fn configure(&self, more: &str) {
        let gone = free_address();
        self.scene.configure("honours_key = true", &[]);
        let file = self.scene.place.path().join("stepgate.toml");
        let state = self.scene.state.path();
        let server = |name: &str, program: &Path, flags: &str| {
            format!(
                "[servers.{name}]\ncommand = {:?}\nargs = [{program:?}, {state:?}{flags}]\nmode = \"read_only\"\n",
                python(),
            )
        };
        let receivers = format!(
            "[serve]\nfailed_auth_per_minute_max = 2\n\
             [otlp]\nendpoint = \"http://{gone}\"\nqueue_max = 1\nmetrics_interval_ms = 200\n\
             [[audit]]\nname = \"siem\"\nkind = \"webhook\"\nurl = \"http://{gone}/in\"\n\
             [[notify]]\nname = \"phone\"\nkind = \"ntfy\"\nurl = \"http://{gone}/topic\"\n"
        );
        let config = fs::read_to_string(&file).unwrap()
            + &server("gone", &self.program, "")
            + &server("grown", &fixture("tool_server.py"), &format!(", \"--bank\"{more}"));
        let receivers = if more.is_empty() { String::new() } else { receivers };
        fs::write(file, config + &receivers).unwrap();
    }

    /// What is left to a gateway that is down: the payload of a run is changed, and a server has a tool more.
    fn make_at_rest(&self) {
        tamper(&self.scene);
        self.configure(", \"--tool\", \"new\"");
    }

    /// What happens while it serves.
    fn make(&self, gateway: &Gateway) {
        let call = |action: &str, args| gateway.propose(&http_client::proposal(action, args));
        let sent = call("grown.send", json!({ "amount": 95, "to": "ann" }));
        assert_eq!(sent.json()["outcome"], "SUCCESS", "{}", sent.body);
        // It cannot be started again.
        fs::remove_file(&self.program).unwrap();
        call("gone.crash", json!({}));
        // Policies that cannot be loaded, and a small write that fails.
        fs::write(self.scene.place.path().join("policies/99-broken.cedar"), "permit (").unwrap();
        fs::create_dir(self.scene.place.path().join(".ready")).unwrap();
    }

    /// What has to go on happening for its counter to rise.
    fn go_on(&self, gateway: &Gateway) {
        gateway.propose(&http_client::proposal("fixture.crash", json!({})));
        assert_eq!(gateway.send("GET", "/readyz", "", "").status, 503);
        gateway.send("GET", "/v1/runs", "not-a-token", "");
    }
}

/// What fires by the trouble that is made, while the gateway serves.
const FIRING: [&str; 12] = [
    "StepgateAuditStreamFails",
    "StepgateBreakerOpen",
    "StepgateBudgetNearlyUsed",
    "StepgateNeedsPerson",
    "StepgateNotificationsFail",
    "StepgatePolicyNotLoaded",
    "StepgateRefusals",
    "StepgateRunQuarantined",
    "StepgateServerDown",
    "StepgateStoreUnavailable",
    "StepgateTelemetryDropped",
    "StepgateToolFails",
];

/// What every panel of the dashboard asks, as Grafana sends it.
fn asked_by_the_dashboard() -> Vec<String> {
    let dashboard = fs::read_to_string(root().join("deploy/grafana/stepgate.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let asked = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let asked = asked.map(|it| it.replace("$instance", ".*").replace("$__rate_interval", "5s"));
    asked.collect()
}

#[test]
fn a_real_prometheus_scrapes_a_gateway_and_its_alerts_fire_on_trouble() {
    let trouble = Trouble::new();
    let place = &trouble.scene.place;
    let gateway = Gateway::start(place);
    assert_eq!(gateway.propose(&act(1)).status, 202);
    let directory = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(directory.path(), &gateway);
    until("the steps are scraped", || {
        prometheus.value("stepgate_steps_total").as_deref() == Some("1")
    });
    assert_eq!(prometheus.firing(), BTreeSet::new());
    for asked in asked_by_the_dashboard() {
        let answer = prometheus.query(&asked);
        assert_eq!(answer["status"], "success", "{asked}: {answer}");
    }

    let address = gateway.address.to_string();
    drop(gateway);
    until("a gateway that is gone is an alert", || prometheus.firing().contains("StepgateDown"));
    trouble.make_at_rest();
    let gateway = Gateway::start_at(place, &address, &[]);
    trouble.make(&gateway);
    let expected: BTreeSet<String> = FIRING.map(str::to_owned).into();
    let mut fired = BTreeSet::new();
    let begin = Instant::now();
    while !expected.is_subset(&fired) {
        trouble.go_on(&gateway);
        fired.extend(prometheus.firing());
        let missing: Vec<_> = expected.difference(&fired).collect();
        assert!(begin.elapsed() < PATIENCE, "never fired: {missing:?}");
    }
    println!("{fired:?} within {:?}", begin.elapsed());
    fs::remove_file(place.path().join("policies/99-broken.cedar")).unwrap();
    until("an alert ends with its trouble", || {
        let firing = prometheus.firing();
        !firing.contains("StepgatePolicyNotLoaded") && !firing.contains("StepgateDown")
    });
    assert!(
        fired.is_subset(&expected.union(&["StepgateDown".to_owned()].into()).cloned().collect())
    );
}
