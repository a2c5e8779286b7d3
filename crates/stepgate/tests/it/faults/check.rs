//! What must hold after every fault.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::load::{HANGS, Harvest, Kind, Told, waited_in_vain};
use super::stage::{Front, Tools};
use crate::binary::Output;
use crate::http_client::{Reply, exchange_within, request};
use crate::scene::until_within;

/// How long a node may take for a question when the fault is over.
const ANSWER: Duration = Duration::from_secs(20);

/// How many ask at the same time.
const ASKING: usize = 8;

/// How many actions of a fault may be refused because another run kept the lock of their paths. Nodes that wait for each
/// other would have many.
const IN_VAIN_MAX: usize = 2;

/// What became of the steps of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) steps: usize,
    /// Acknowledged, and not there any more, or otherwise.
    pub(super) lost: usize,
    /// Done more often than the record says.
    pub(super) repeated: usize,
    /// Done more often than once, where the record says that this can be.
    pub(super) sent_again: usize,
}

/// Waits until every node answers, and no run is left open.
pub(super) fn settle(front: &Front) {
    for address in &front.addresses {
        until("a node does not serve again", || {
            ask(*address, "GET", "/readyz", "", "").is_some_and(|reply| reply.status == 200)
        });
    }
    until("a run is not over", || {
        let open = ask(front.addresses[0], "GET", "/v1/runs?status=started", &front.operator, "");
        open.is_some_and(|reply| {
            reply.status == 200 && reply.json()["runs"] == Value::Array(vec![])
        })
    });
}

/// Compares what clients were told with what nodes, tools and files say now.
pub(super) fn compare(front: &Front, tools: &Tools, harvest: &Harvest) -> Found {
    let mut found = Found { steps: harvest.told.len(), ..Found::default() };
    found.lost += harvest.told.len() - of_one_answer(front, &harvest.told);
    found.lost += files_that_differ(front, &harvest.told);
    for (server, kind) in [("once", Kind::Once), ("asked", Kind::Asked), ("again", Kind::Again)] {
        let effects = tools.effects(server);
        for told in harvest.told.iter().filter(|told| told.kind == kind) {
            match (effects.get(&told.id).copied().unwrap_or(0), kind) {
                (0, _) => found.lost += 1,
                (1, _) => {}
                (_, Kind::Again) if guarantee(front, told) == "at_least_once" => {
                    found.sent_again += 1;
                }
                (_, _) => found.repeated += 1,
            }
        }
    }
    let samples = [
        (Kind::Once, "exactly_once"),
        (Kind::Asked, "exactly_once"),
        (Kind::Again, "at_least_once"),
    ];
    for (kind, expected) in samples {
        if let Some(told) = harvest.told.iter().rfind(|told| told.kind == kind) {
            assert_eq!(guarantee(front, told), expected, "{kind:?}");
        }
    }
    let refused = harvest.told.iter().filter(|told| !told.is_done);
    let in_vain = refused.filter(|told| waited_in_vain(&told.reply.json())).count();
    assert!(in_vain <= IN_VAIN_MAX, "{in_vain} writes waited for their paths in vain");
    let indexes: HashSet<_> = harvest.told.iter().map(|told| index_of(&told.reply)).collect();
    assert_eq!(indexes.len(), harvest.told.len(), "a step index was given twice");
    found
}

/// Compares the files of the sandbox with everything that was ever answered.
fn files_that_differ(front: &Front, told: &[Told]) -> usize {
    let mut expected = BTreeMap::new();
    for told in told.iter().filter(|told| told.is_done) {
        match told.kind {
            Kind::Write => drop(expected.insert(format!("{}.txt", told.name), told.name.clone())),
            Kind::Rename => {
                expected.remove(&format!("{}.txt", told.name));
                expected.insert(format!("{}.md", told.name), told.name.clone());
            }
            Kind::Read | Kind::Once | Kind::Again | Kind::Asked => {}
        }
    }
    let names: HashSet<_> = told.iter().map(|told| told.name.as_str()).collect();
    let mut there = BTreeMap::new();
    for entry in fs::read_dir(&front.sandbox).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let is_ours = name.rsplit_once('.').is_some_and(|(stem, _)| names.contains(stem));
        if is_ours {
            there.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
    let differing = expected.iter().filter(|(name, text)| there.get(*name) != Some(text)).count();
    differing + there.keys().filter(|name| !expected.contains_key(*name)).count()
}

/// How many of the answers are the same at every node, byte for byte.
fn of_one_answer(front: &Front, told: &[Told]) -> usize {
    let is_same_at = |address: SocketAddr, told: &Told| {
        let again = ask(address, "POST", "/v1/steps", &front.agent, &told.body);
        again.is_some_and(|again| {
            again.status == 200
                && again.body == told.reply.body
                && index_of(&again) == index_of(&told.reply)
                && again.headers.get("idempotent-replayed").is_some_and(|word| word == "true")
        })
    };
    // One node after the other, because nodes that write to one session wait for each other.
    let mut same: Vec<&Told> = told.iter().collect();
    for &address in &front.addresses {
        let share = same.len().div_ceil(ASKING).max(1);
        same = thread::scope(|scope| {
            let asking: Vec<_> = same
                .chunks(share)
                .map(|told| {
                    let is_same = |told: &&&Told| is_same_at(address, told);
                    scope.spawn(move || told.iter().filter(is_same).copied().collect::<Vec<_>>())
                })
                .collect();
            asking.into_iter().flat_map(|share| share.join().unwrap()).collect()
        });
    }
    same.len()
}

/// A step's session, and its place there.
fn index_of(reply: &Reply) -> (String, String) {
    let header = |name: &str| reply.headers.get(name).cloned().unwrap_or_default();
    (header("stepgate-session"), header("stepgate-step-index"))
}

/// What the record of a step promises.
fn guarantee(front: &Front, told: &Told) -> String {
    let path = format!("/v1/runs/{}/export", told.reply.headers["stepgate-run"]);
    let bundle = ask(front.addresses[0], "GET", &path, &front.operator, "").unwrap().json();
    bundle["record"]["body"]["guarantee"].as_str().unwrap_or_default().to_owned()
}

/// The whole store, from its first entry.
pub(super) fn verify(verified: &Output) {
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
}

fn ask(address: SocketAddr, method: &str, path: &str, token: &str, body: &str) -> Option<Reply> {
    exchange_within(address, request(method, path, token, &[], body).as_bytes(), ANSWER)
}

pub(super) fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(HANGS, what, is_so);
}
