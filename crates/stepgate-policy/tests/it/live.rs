//! The set in force changes only for a good one.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use stepgate_core::ports::Policy;
use stepgate_policy::Verdict::{Deny, Permit};
use stepgate_policy::{LivePolicy, PolicySet};

use crate::world::{brief, call, decide, directory, principal, tools};

const OPEN: &str = "@id(\"open\") permit (principal, action, resource);";
const CLOSED: &str = "@id(\"closed\") forbid (principal, action, resource);";

#[test]
fn a_bad_set_never_replaces_a_good_one() {
    let directory = directory(&[("p.cedar", OPEN)]);
    let live = LivePolicy::new(PolicySet::load(directory.path(), &tools()).unwrap(), true).unwrap();
    let think = call("THINK", json!({}));
    let before = live.current().digest();
    let failing =
        "[[case]]\nname = \"x\"\nprincipal = \"a\"\naction = \"THINK\"\nexpect = \"approval\"\n";
    for (name, text) in [("p.cedar", "permit ("), ("p.cedar", CLOSED), ("x.cases.toml", failing)] {
        fs::write(directory.path().join("x.cases.toml"), failing).unwrap();
        fs::write(directory.path().join(name), text).unwrap();
        assert!(live.reload(directory.path(), &tools(), || true).is_err());
        assert_eq!(live.current().digest(), before);
        assert_eq!(brief(&decide(&*live.current(), &think)), (Permit, vec!["open"]));
    }
    fs::remove_file(directory.path().join("x.cases.toml")).unwrap();
    let reloaded = live.reload(directory.path(), &tools(), || true).unwrap().unwrap();
    assert!(reloaded.changed);
    assert_eq!((reloaded.policies, reloaded.cases), (1, 0));
    assert_eq!(reloaded.policy_hash, live.current().digest());
    assert_eq!(brief(&decide(&*live.current(), &think)), (Deny, vec!["closed"]));
    assert!(!live.reload(directory.path(), &tools(), || true).unwrap().unwrap().changed);
}

#[test]
fn files_that_change_while_they_are_read_are_not_put_in_force() {
    let directory = directory(&[("p.cedar", OPEN)]);
    let live = LivePolicy::new(PolicySet::load(directory.path(), &tools()).unwrap(), true).unwrap();
    let before = live.current().digest();
    // Neither a set nor an error of it counts.
    for text in [CLOSED, "permit ("] {
        fs::write(directory.path().join("p.cedar"), text).unwrap();
        assert_eq!(live.reload(directory.path(), &tools(), || false).unwrap(), None);
        assert_eq!(live.current().digest(), before);
    }
}

#[test]
fn decisions_go_on_while_the_set_is_replaced() {
    let directory = directory(&[("p.cedar", OPEN)]);
    let set = PolicySet::load(directory.path(), &[]).unwrap();
    let live = Arc::new(LivePolicy::new(set, true).unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let deciders: Vec<_> = (0..2)
        .map(|_| {
            let (live, over) = (Arc::clone(&live), Arc::clone(&over));
            std::thread::spawn(move || {
                let think = call("THINK", json!({}));
                while !over.load(Ordering::Relaxed) {
                    let decision = decide(&*live.current(), &think);
                    let told = brief(&decision);
                    assert!(told == (Permit, vec!["open"]) || told == (Deny, vec!["closed"]));
                }
            })
        })
        .collect();
    for index in 0..20 {
        let text = if index % 2 == 0 { CLOSED } else { OPEN };
        fs::write(directory.path().join("p.cedar"), text).unwrap();
        live.reload(directory.path(), &[], || true).unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for decider in deciders {
        decider.join().unwrap();
    }
}

#[test]
fn a_set_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<PolicySet>();
    shared::<LivePolicy>();
}

/// Prints what a decision costs; see it with `--nocapture`.
#[test]
fn ten_thousand_decisions_are_taken() {
    let extra: String = (0..100)
        .map(|index| format!("forbid (principal == Principal::\"p{index}\", action in Action::\"draft\", resource);\n"))
        .collect();
    let directory = directory(&[("a.cedar", OPEN), ("b.cedar", &extra)]);
    let begun = Instant::now();
    let set = PolicySet::load(directory.path(), &tools()).unwrap();
    println!("load of 101 policies: {:?}", begun.elapsed());
    let calls = [
        call("READ_FILE", json!({ "path": "/sandbox/reports/2026/a.txt" })),
        call("sonos.set_volume", json!({ "volume": 20, "room": "kitchen" })),
    ];
    for call in &calls {
        let begun = Instant::now();
        for _ in 0..5_000 {
            assert_eq!(decide(&set, call).policies, ["open"]);
        }
        println!("{}: {:?} a decision", call.name(), begun.elapsed() / 5_000);
    }
}

#[test]
fn what_can_be_offered_follows_the_set_in_force() {
    let directory = directory(&[("p.cedar", OPEN)]);
    let live = LivePolicy::new(PolicySet::load(directory.path(), &tools()).unwrap(), true).unwrap();
    let could =
        || live.current().prospect(&principal("agent"), &BTreeSet::new(), "THINK").could_permit;
    assert!(could());
    fs::write(directory.path().join("p.cedar"), CLOSED).unwrap();
    live.reload(directory.path(), &tools(), || true).unwrap();
    assert!(!could());
}
