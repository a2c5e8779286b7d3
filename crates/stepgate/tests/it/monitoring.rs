//! What operators see of a gateway from outside: `/metrics` before `promtool`, the alerts and the dashboard of `deploy/`, and
//! a real Prometheus that scrapes a real gateway.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::binary::{Output, Place, finish};
use crate::deploy::free_address;
use crate::docs::root;
use crate::gate::proposal;
use crate::http_client::{Gateway, exchange, request};
use crate::scene::until;

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
        let request = request("GET", path, "", &[], "");
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

    /// The value of a metric that has one sample.
    fn value(&self, metric: &str) -> Option<String> {
        let found = self.ask(&format!("/api/v1/query?query={metric}"));
        Some(found["data"]["result"][0]["value"][1].as_str()?.to_owned())
    }
}

#[test]
fn a_real_prometheus_scrapes_a_gateway_and_its_alerts_fire_on_trouble() {
    let place = Place::new();
    fs::create_dir_all(place.path()).unwrap();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(place.path().join("stepgate.toml"), "[policy]\nreload_ms = 20\n").unwrap();
    let gateway = Gateway::start(&place);
    write_file(&gateway, 1);
    let directory = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(directory.path(), &gateway);
    until("the steps are scraped", || {
        prometheus.value("stepgate_steps_total").as_deref() == Some("1")
    });
    assert_eq!(prometheus.firing(), BTreeSet::new());

    let policy = place.path().join("policies/99-broken.cedar");
    fs::write(&policy, "permit (").unwrap();
    let fires = |name: &str| prometheus.firing().contains(name);
    until("policies that cannot be loaded are an alert", || fires("StepgatePolicyNotLoaded"));
    fs::remove_file(&policy).unwrap();
    until("the alert ends with the trouble", || !fires("StepgatePolicyNotLoaded"));

    drop(gateway);
    until("a gateway that is gone is an alert", || fires("StepgateDown"));
}
