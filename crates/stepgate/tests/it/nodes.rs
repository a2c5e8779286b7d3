//! Several gateways on one PostgreSQL, seen from outside.

mod back_in_time;
mod pooler;
mod readiness;
mod tools;
mod turns;
mod versions;
mod waiting;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use stepgate_core::recover::{self, Scope};
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::faulty::{Faults, FaultyStore, StopAt};
use stepgate_store::memory::MemoryStore;
use stepgate_test_postgres::{Cluster, Settings};

use crate::binary::{Place, finish};
use crate::gate::{self, CountingWorld, Fixture, submit};
use crate::http_client::{Gateway, Reply, exchange, proposal, request};
use crate::scene::until;

static SERVER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(&Settings::default()).unwrap());

/// How long a node may be silent before the others take its runs over.
const LEASE_MS: u64 = 1500;

/// So much is answered before there is trouble.
const ANSWERS_MIN: usize = 12;

/// A database that nodes share, each with a data directory of its own.
pub(crate) struct House {
    database: String,
    url: String,
}

impl House {
    pub(crate) fn new() -> Self {
        let database = SERVER.database().unwrap();
        Self { url: SERVER.url(&database), database }
    }

    fn place(&self, node_id: &str) -> Place {
        shared_on(&self.url, node_id)
    }

    /// A place whose sandbox is its own.
    pub(crate) fn alone(&self, node_id: &str) -> Place {
        self.alone_with(node_id, Vec::new())
    }

    /// The same, with more variables.
    pub(crate) fn alone_with(&self, node_id: &str, more: Vec<(&'static str, OsString)>) -> Place {
        place_on(&self.url, node_id, more)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn sql(&self, sql: &str) -> anyhow::Result<String> {
        SERVER.sql(&self.database, sql)
    }

    /// Two places whose sandboxes are the same directory.
    pub(crate) fn two(&self) -> [Place; 2] {
        two_on(&self.url)
    }
}

/// The same on the database at this URL.
fn two_on(url: &str) -> [Place; 2] {
    let places = [shared_on(url, "first"), shared_on(url, "second")];
    fs::create_dir(places[0].path().join("sandbox")).unwrap();
    symlink(places[0].path().join("sandbox"), places[1].path().join("sandbox")).unwrap();
    places
}

/// A place of a node that shares its sandbox.
fn shared_on(url: &str, node_id: &str) -> Place {
    let place = place_on(url, node_id, vec![("STEPGATE_SANDBOX_SHARED", "true".into())]);
    fs::create_dir_all(place.path()).unwrap();
    place
}

fn place_on(url: &str, node_id: &str, more: Vec<(&'static str, OsString)>) -> Place {
    let mut variables = vec![
        ("STEPGATE_STORE", url.into()),
        ("STEPGATE_STORE_NODE_ID", node_id.into()),
        ("STEPGATE_STORE_LEASE_MS", LEASE_MS.to_string().into()),
        ("STEPGATE_STORE_DISPATCH_MARGIN_MS", "300".into()),
    ];
    variables.extend(more);
    Place::with(variables)
}

fn write(name: &str, content: &str) -> String {
    proposal("WRITE_FILE", json!({ "path": format!("/sandbox/{name}.txt"), "content": content }))
}

/// Opens the store as this node, which must be refused; what it says.
fn refused(place: &Place) -> String {
    let output = place.stepgate(["run", "THINK"], "");
    assert_eq!(output.code, 1, "{output:?}");
    output.stderr
}

#[test]
fn another_directory_under_the_name_of_a_node_is_refused() {
    let house = House::new();
    let first = house.alone("first");
    assert_eq!(first.stepgate(["run", "THINK"], "").code, 0);
    // Whether the node that had the name is alive or not.
    let namesake = house.alone("first");
    assert!(refused(&namesake).contains("not the one that the store knows as `sandbox@first`"));
    let serving = Gateway::start(&first);
    assert!(refused(&namesake).contains("not the one that the store knows as `sandbox@first`"));
    drop(serving);
    // A node with all of its files, copied.
    let copy = house.alone("first");
    let copied = Command::new("cp").arg("-a").arg(first.path()).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let said = refused(&copy);
    assert!(said.contains("is a copy of another one"), "{said}");
    // The one that stays, and one that is told to take the other's place.
    assert_eq!(first.stepgate(["run", "THINK"], "").code, 0);
    let mark = copy.path().join("sandbox/.stepgate-mark");
    let id = fs::read_to_string(&mark).unwrap().split(' ').next().unwrap().to_owned();
    fs::write(&mark, id).unwrap();
    assert_eq!(copy.stepgate(["run", "THINK"], "").code, 0);
    let listed = copy.stepgate(["run", "LIST_FILES", "path=/sandbox/"], "");
    assert!(listed.code == 0 && !listed.stdout.contains("mark"), "{listed:?}");
}

#[test]
fn nodes_that_say_they_share_a_sandbox_and_do_not_are_refused() {
    let house = House::new();
    let places = [house.place("first"), house.place("second")];
    assert_eq!(places[0].stepgate(["run", "THINK"], "").code, 0);
    let said = refused(&places[1]);
    assert!(said.contains("not the one that the store knows as `sandbox`"), "{said}");
    // The same directory is fine, by whatever path.
    fs::remove_dir_all(places[1].path().join("sandbox")).unwrap();
    symlink(places[0].path().join("sandbox"), places[1].path().join("sandbox")).unwrap();
    assert_eq!(places[1].stepgate(["run", "THINK"], "").code, 0);
}

#[test]
fn what_one_node_has_answered_every_node_answers() {
    let house = House::new();
    let places = house.two();
    let [first, second] = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    let body = write("a", "once");
    let answer = first.propose(&body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let again = second.propose(&body);
    assert_eq!((again.status, &again.body), (200, &answer.body));
    assert_eq!(again.headers["idempotent-replayed"], "true");

    let made = first.send(
        "POST",
        "/v1/tokens",
        &first.operator,
        &json!({ "name": "ci", "role": "auditor" }).to_string(),
    );
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let token = made["token"].as_str().unwrap().to_owned();
    until("the other node does not know the token", || {
        second.send("GET", "/v1/runs", &token, "").status == 200
    });
    let path = format!("/v1/tokens/{}", made["token_id"].as_str().unwrap());
    let revoked = first.send("DELETE", &path, &first.operator, "");
    assert!(revoked.status < 300, "{revoked:?}");
    until("the other node still takes the token", || {
        second.send("GET", "/v1/runs", &token, "").status == 401
    });

    let listed = places[1].stepgate(["--json", "nodes"], "");
    let nodes: Vec<Value> =
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = nodes.iter().map(|node| node["node_id"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second"], "{listed:?}");
    assert_eq!(nodes[0]["policy_hash"], nodes[1]["policy_hash"]);
    // One that stops in an orderly way is gone at once.
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(0));
    let left = places[1].stepgate(["--json", "nodes"], "");
    assert_eq!(left.stdout.lines().count(), 1, "{left:?}");
    assert_eq!(places[1].stepgate(["verify"], "").code, 0);
}

#[test]
fn a_caller_who_names_no_session_joins_the_one_of_the_node() {
    let house = House::new();
    let places = house.two();
    let [first, second] = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    let session = |gateway: &Gateway| {
        let reply = gateway.propose(&proposal("THINK", json!({})));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.headers["stepgate-session"].clone()
    };
    let (one, other) = (session(&first), session(&second));
    assert_ne!(one, other, "two nodes write to the end of one chain");
    assert_eq!((session(&first), session(&second)), (one.clone(), other.clone()));
    // The command line is the same agent, at its own node.
    let local = places[1].stepgate(["--json", "run", "THINK"], "");
    assert_eq!(local.code, 0, "{local:?}");
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(0));
    let first = Gateway::start(&places[0]);
    assert_eq!(session(&first), one, "a node that comes back has another session");
    assert_eq!(places[1].stepgate(["verify"], "").code, 0);
}

#[test]
fn a_grant_on_one_node_wakes_the_caller_on_another() {
    let house = House::new();
    let places = house.two();
    let policies = r#"@id("ask") @approval("it is written")
        permit (principal, action in Action::"core", resource);"#;
    for place in &places {
        fs::create_dir(place.path().join("policies")).unwrap();
        fs::write(place.path().join("policies/all.cedar"), policies).unwrap();
    }
    let [first, second] = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    let (address, agent) = (first.address, first.agent.clone());
    let waiting = std::thread::spawn(move || {
        let prefer = [("prefer", "wait=25")];
        let request = request("POST", "/v1/steps", &agent, &prefer, &write("b", "granted"));
        let start = Instant::now();
        (exchange(address, request.as_bytes()).unwrap(), start.elapsed())
    });
    let mut approval = String::new();
    until("nothing waits for a person", || {
        let listed = second.send("GET", "/v1/approvals", &second.operator, "").json();
        let first = listed["approvals"].as_array().and_then(|all| all.first()).cloned();
        approval =
            first.and_then(|one| Some(one["approval_id"].as_str()?.to_owned())).unwrap_or_default();
        !approval.is_empty()
    });
    let path = format!("/v1/approvals/{approval}/approve");
    let granted = second.send("POST", &path, &second.operator, "");
    assert_eq!(granted.status, 200, "{granted:?}");
    let (answer, waited) = waiting.join().unwrap();
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("SUCCESS")), "{answer:?}");
    assert!(waited < Duration::from_secs(20), "it was not woken: {waited:?}");
    assert_eq!(fs::read_to_string(places[0].path().join("sandbox/b.txt")).unwrap(), "granted");
}

/// Clients of the first node, while something happens to it. Each asks again with the same id, at the
/// second node, whatever the first did not answer.
fn under_load(nodes: &[Gateway; 2], trouble: impl FnOnce(&Gateway)) {
    let (first, second) = (nodes[0].address, nodes[1].address);
    let token = nodes[0].agent.clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let unanswered = Arc::new(Mutex::new(Vec::new()));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let (is_over, unanswered) = (Arc::clone(&is_over), Arc::clone(&unanswered));
            let answered = Arc::clone(&answered);
            let token = token.clone();
            std::thread::spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("{client}-{number}");
                    let body = write(&name, &name);
                    let sent = request("POST", "/v1/steps", &token, &[], &body);
                    match exchange(first, sent.as_bytes()) {
                        Some(Reply { status: 200, .. }) => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Some(_) | None => {
                            unanswered.lock().unwrap().push((name, body));
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    until("nobody is answered", || answered.load(Ordering::Relaxed) >= ANSWERS_MIN);
    trouble(&nodes[0]);
    is_over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let unanswered = std::mem::take(&mut *unanswered.lock().unwrap());
    for (name, body) in unanswered {
        let sent = request("POST", "/v1/steps", &token, &[], &body);
        let mut last = None;
        until(&format!("{name} was never answered"), || {
            last = exchange(second, sent.as_bytes());
            last.as_ref().is_some_and(|reply| reply.status == 200)
        });
    }
}

fn nothing_is_left(place: &Place) {
    until("a run is not over", || {
        let runs = place.stepgate(["--json", "runs", "--limit", "5000"], "");
        let is_open = |status| runs.stdout.contains(&format!("\"status\":\"{status}\""));
        runs.code == 0 && is_open("ok") && !is_open("started") && !is_open("approved")
    });
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn what_a_killed_node_left_is_ended_by_another_within_seconds() {
    let house = House::new();
    let places = house.two();
    let nodes = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    under_load(&nodes, |first| first.signal(Signal::KILL));
    nothing_is_left(&places[1]);
}

#[test]
fn a_node_that_was_paused_longer_than_its_lease_is_fenced_out_and_goes_on_afterwards() {
    let house = House::new();
    let places = house.two();
    let nodes = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    under_load(&nodes, |first| {
        first.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(2 * LEASE_MS + 500));
        first.signal(Signal::CONT);
    });
    until("the node that came back does not work again", || {
        nodes[0].propose(&write("back", "back")).status == 200
    });
    nothing_is_left(&places[1]);
}

#[test]
fn a_sandbox_that_is_not_shared_has_the_name_of_its_node() {
    let house = House::new();
    let (first, second) = (house.alone("first"), house.alone("second"));
    let written = first.stepgate(["run", "WRITE_FILE", "path=/sandbox/a.txt", "content=1"], "");
    assert_eq!(written.code, 0, "{written:?}");
    let read = second.stepgate(["run", "READ_FILE", "path=/sandbox/a.txt"], "");
    assert_eq!(read.code, 12, "{read:?}");
    let shown = second.stepgate(["--json", "runs", "show", "last"], "");
    assert!(shown.stdout.contains("sandbox@second"), "{shown:?}");
    assert_eq!(second.stepgate(["verify"], "").code, 0);
}

/// Only the sandbox that a call was sent to can say what became of it.
#[tokio::test]
async fn a_call_is_sent_again_only_to_the_sandbox_that_it_was_sent_to() {
    let memory = MemoryStore::new();
    // The second commit of the step is the fourth write: two sessions are opened first.
    let faults = Faults::new(StopAt::Before(4));
    let fixture = Fixture::with_store(Arc::new(FaultyStore::new(memory.clone(), faults)));
    submit(&fixture.gate, write("a", "once")).await.unwrap_err();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = gate::gate(Arc::new(memory.reopened()), elsewhere.path());
    let limits = SandboxLimits::default();
    let sandbox = Sandbox::open(elsewhere.path(), "sandbox@other".into(), limits).unwrap();
    other.executor = Arc::new(sandbox);
    let report = recover::recover(&other, Scope::Core).await.unwrap();
    assert_eq!((report.finished.len(), report.stuck.len()), (0, 1), "{report:?}");
    assert!(report.stuck[0].1.contains("`sandbox` is not reached from this node"), "{report:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    let mut own = gate::gate(Arc::new(memory.reopened()), fixture.directory.path());
    own.world = CountingWorld::starting_at(1_000_000);
    let report = recover::recover(&own, Scope::Core).await.unwrap();
    assert_eq!(report.finished.len(), 1, "{report:?}");
}

/// A server with a certificate for `localhost` that nobody has heard of, except in a file.
#[test]
fn a_server_is_trusted_only_with_a_certificate_that_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let (key, certificate) = (directory.path().join("key"), directory.path().join("certificate"));
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    assert_eq!(finish(&mut openssl, b"").code, 0);
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let configure = |setting: &str, file: &std::path::Path| {
        let text = fs::read_to_string(file).unwrap();
        // The server's own user writes it, whoever this process is.
        let copy = format!(
            "COPY (SELECT unnest(string_to_array('{text}', E'\\n'))) TO PROGRAM 'umask 077; cat > {setting}.pem'"
        );
        cluster.sql("postgres", &copy).unwrap();
        cluster.sql("postgres", &format!("ALTER SYSTEM SET {setting} = '{setting}.pem'")).unwrap();
    };
    configure("ssl_key_file", &key);
    configure("ssl_cert_file", &certificate);
    cluster.sql("postgres", "ALTER SYSTEM SET ssl = on").unwrap();
    cluster.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    until("the server does not speak TLS", || {
        cluster.sql("postgres", "SHOW ssl").is_ok_and(|ssl| ssl == "on")
    });

    let database = cluster.database().unwrap();
    let url = cluster.url(&database).replace("127.0.0.1", "localhost");
    let with = |parameters: &str, trusted: bool| {
        let mut variables = vec![("STEPGATE_STORE", format!("{url}{parameters}").into())];
        if trusted {
            variables.push(("SSL_CERT_FILE", certificate.clone().into_os_string()));
        }
        Place::with(variables).stepgate(["run", "THINK"], "")
    };
    for mode in ["require", "verify-full"] {
        let parameters = format!("?sslmode={mode}");
        let known = with(&parameters, true);
        assert_eq!(known.code, 0, "{mode}: {known:?}");
        let unknown = with(&parameters, false);
        assert_eq!(unknown.code, 1, "{mode}: {unknown:?}");
        assert!(unknown.stderr.contains("certificate"), "{mode}: {unknown:?}");
    }
    assert_eq!(with("?sslmode=disable", false).code, 0);
}
