//! The whole step: any bytes as proposals, a real directory, a store that is verified afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use stepgate_core::approvers::Groups;
use stepgate_core::consent_cache::Consents;
use stepgate_core::digest::Digest;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Gate, Parked};
use stepgate_core::ids::PrincipalId;
use stepgate_core::limits::Limits;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{NoToolServers, World};
use stepgate_core::run::Payload;
use stepgate_core::step::{self as core, Submission};
use stepgate_core::time::Timestamp;
use stepgate_core::verify::verify;
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::memory::MemoryStore;

/// Most lines that are proposed; a longer input says nothing new.
const STEPS_MAX: usize = 8;
/// Small, so that a fuzzer reaches it.
const PAYLOAD_BYTES_MAX: usize = 2048;

/// Every line is a payload. Each gets exactly one response of five keys and one record; asked again,
/// it is answered alike; the store verifies; and nothing outside the sandbox is read or changed.
pub fn step(bytes: &[u8]) {
    let place = Place::new(bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    let payloads: Vec<_> = bytes.split(|byte| *byte == b'\n').take(STEPS_MAX).collect();
    let responses = runtime.block_on(propose(&place, &payloads));
    for response in responses {
        assert!(!response.contains(&place.secret), "something outside was read: {response}");
    }
    place.check();
}

async fn propose(place: &Place, payloads: &[&[u8]]) -> Vec<String> {
    let gate = place.gate();
    let mut responses = Vec::new();
    for payload in payloads {
        let response = propose_one(&gate, payload).await;
        assert_eq!(propose_one(&gate, payload).await, response, "asked again, answered otherwise");
        responses.push(response);
    }
    let report = verify(&*gate.store, &[], |_| {}).await;
    let problems = report.map(|report| report.problems);
    assert_eq!(problems, Ok(Vec::new()), "the store does not verify");
    responses
}

async fn propose_one(gate: &Gate, payload: &[u8]) -> String {
    let principal = PrincipalId::parse("agent");
    assert_eq!(principal.as_ref().err(), None, "the name of a principal");
    let Ok(principal) = principal else { return String::new() };
    let answer = async {
        let session = gate.default_session(&principal).await?;
        let submission = Submission {
            session_id: session.session_id,
            principal_id: principal,
            payload: Payload::whole(payload),
        };
        core::run(gate, submission).await
    };
    let answer = answer.await;
    assert_eq!(answer.as_ref().err(), None, "no proposal is a fault of ours");
    let Ok(answer) = answer else { return String::new() };
    let response = answer.body();
    check_keys(&response);
    let dossier = gate.store.dossier(answer.run_id).await;
    let record = dossier.ok().flatten().and_then(|dossier| dossier.record);
    assert!(record.is_some(), "answered without a record: {response}");
    response
}

fn check_keys(response: &str) {
    let object = serde_json::from_str::<Value>(response);
    let keys: Option<BTreeSet<&str>> = object
        .as_ref()
        .ok()
        .and_then(Value::as_object)
        .map(|members| members.keys().map(String::as_str).collect());
    let expected = BTreeSet::from(["action", "error", "outcome", "proposal_id", "result"]);
    assert_eq!(keys, Some(expected), "{response}");
}

/// A directory that holds the sandbox, with ways out of it and a secret beside it.
struct Place {
    directory: tempfile::TempDir,
    secret: String,
}

impl Place {
    fn new(bytes: &[u8]) -> Self {
        // No input contains its own digest, so a response that does has read it.
        let secret = Digest::of_bytes(bytes).to_string();
        let made = Self::make(&secret);
        match made {
            Ok(directory) => Self { directory, secret },
            Err(error) => {
                // Without a place nothing can be said about the input.
                eprintln!("no temporary directory: {error}");
                std::process::exit(1)
            }
        }
    }

    fn make(secret: &str) -> std::io::Result<tempfile::TempDir> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        let sandbox = root.join("sandbox");
        fs::create_dir(&sandbox)?;
        fs::write(root.join("secret.txt"), secret)?;
        fs::write(sandbox.join("a.txt"), "a")?;
        fs::create_dir(sandbox.join("d"))?;
        symlink("../secret.txt", sandbox.join("link.txt"))?;
        symlink("..", sandbox.join("out"))?;
        fs::hard_link(root.join("secret.txt"), sandbox.join("twin.txt"))?;
        Ok(directory)
    }

    fn gate(&self) -> Gate {
        let sandbox = self.directory.path().join("sandbox");
        let limits = SandboxLimits { file_bytes_max: 1024, entries_max: 16 };
        let sandbox = match Sandbox::open(&sandbox, "sandbox".into(), limits) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1)
            }
        };
        Gate {
            store: Arc::new(MemoryStore::new()),
            executor: Arc::new(sandbox),
            tools: Arc::new(NoToolServers),
            policy: Arc::new(BuiltInRule),
            world: Arc::new(Counting(AtomicU64::new(0))),
            limits: Limits { payload_bytes_max: PAYLOAD_BYTES_MAX, ..Limits::default() },
            extensions: Extensions::default(),
            parked: Parked::default(),
            doubts: Doubts::default(),
            groups: Groups::default(),
            consents: Consents::default(),
            facts: FactSources::default(),
        }
    }

    fn check(&self) {
        let names = names_in(self.directory.path());
        let expected = BTreeSet::from(["sandbox".to_owned(), "secret.txt".to_owned()]);
        assert_eq!(names.ok(), Some(expected), "something stands beside the sandbox");
        let secret = fs::read_to_string(self.directory.path().join("secret.txt"));
        assert_eq!(secret.ok().as_ref(), Some(&self.secret), "something outside was changed");
    }
}

fn names_in(directory: &Path) -> std::io::Result<BTreeSet<String>> {
    let entries = fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// A clock that moves when it is read, and ids that count.
struct Counting(AtomicU64);

impl Counting {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[async_trait]
impl World for Counting {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(i64::try_from(self.tick()).unwrap_or(i64::MAX))
    }

    fn fresh_uuid(&self) -> uuid::Uuid {
        uuid::Builder::from_unix_timestamp_millis(self.tick(), &[7; 10]).into_uuid()
    }

    async fn pause(&self, _: Duration) {}
}
