//! Shadow policies on a gateway that serves: steps go on as before, and what would have been decided otherwise is
//! counted and listed.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::attention::everywhere::is_shown;
use crate::binary::Place;
use crate::gate::proposal;
use crate::http_client::Gateway;
use crate::scene::until;

/// Asks before a file is written, and permits no deletion.
const STRICTER: &str = r#"
@id("candidate/look")
permit (principal, action in [Action::"THINK", Action::"READ_FILE", Action::"LIST_FILES"], resource);

@id("candidate/ask")
@approval("a file is written")
@approvers("ann")
permit (principal, action == Action::"WRITE_FILE", resource);
"#;

const SAME: &str = r#"permit (principal, action in Action::"core", resource);"#;

/// A directory whose configuration names a candidate, and the candidate's file.
fn place(text: &str) -> (Place, PathBuf) {
    let place = Place::new();
    let directory = place.path().join("candidate");
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let config = "[policy]\nshadow = \"candidate\"\nreload_ms = 20\n";
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    let file = directory.join("all.cedar");
    fs::write(&file, text).unwrap();
    (place, file)
}

/// Writes a file, reads it and deletes it.
fn act(gateway: &Gateway, first_id: u8) {
    let path = json!({ "path": "/sandbox/a.txt" });
    let write = json!({ "path": "/sandbox/a.txt", "content": "x" });
    let steps = [("WRITE_FILE", write), ("READ_FILE", path.clone()), ("DELETE_FILE", path)];
    for (id, (action, args)) in (first_id..).zip(steps) {
        let reply = gateway.propose(&proposal(id.into(), action, args));
        assert_eq!(reply.json()["outcome"], "SUCCESS", "{}", reply.body);
    }
}

fn shown(place: &Place, flags: &[&str]) -> Value {
    let output = place.stepgate([&["policy", "shadow", "--json"], flags].concat(), "");
    assert_eq!(output.code, 0, "{output:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

#[test]
fn a_stricter_candidate_changes_nothing_and_its_differences_are_listed() {
    let (place, _) = place(STRICTER);
    let mut gateway = Gateway::start(&place);
    gateway.until_it_says("2 are asked beside those in force");
    act(&gateway, 1);

    let reply = shown(&place, &[]);
    let (candidate, differences) = (&reply["shadow"]["candidate"], &reply["differences"]);
    assert_eq!((&candidate["asked"], &candidate["differing"]), (&json!(3), &json!(2)));
    assert_eq!((&differences["count"], &differences["is_cut"]), (&json!(2), &json!(false)));
    let kinds = json!([
        { "from": "permit", "to": "approval", "count": 1 },
        { "from": "permit", "to": "deny", "count": 1 },
    ]);
    assert_eq!(differences["by_kind"], kinds);
    let newest = differences["newest"].as_array().unwrap();
    assert_eq!(
        (&newest[0]["tool"], &newest[1]["tool"]),
        (&json!("DELETE_FILE"), &json!("WRITE_FILE"))
    );
    assert_eq!(newest[0]["shadow"]["policies"], json!([]));
    let asks = &newest[1]["shadow"];
    assert_eq!(asks["policies"], json!(["candidate/ask"]));
    assert_eq!(asks["reason"], "a file is written");
    assert_eq!(asks["required"], json!([{ "approvers": ["ann"], "quorum": 1 }]));
    assert_eq!(asks["policy_hash"], candidate["policy_hash"]);
    let run = newest[0]["run_id"].as_str().unwrap();
    let dossier = place.stepgate(["runs", "show", run, "--json"], "");
    assert!(dossier.stdout.contains("policy_differs"), "{dossier:?}");
    let timeline = place.stepgate(["runs", "show", run], "").stdout;
    assert!(timeline.contains("policy_differs  shadow: {"), "{timeline}");

    let words = place.stepgate(["policy", "shadow"], "").stdout;
    for expected in [
        "of 3 decisions since then 2 differ",
        "recorded decisions that differ from this candidate: 2",
        "permit → deny: 1",
        "approval, 1 of ann",
        "candidate/ask",
        "no policy",
        run,
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    assert_eq!(
        shown(&place, &["--limit", "1"])["differences"]["newest"].as_array().unwrap().len(),
        1
    );

    let decisions = "stepgate_policy_shadow_decisions_total";
    for (difference, count) in [("permit_to_deny", 1), ("permit_to_approval", 1), ("none", 1)] {
        assert_eq!(gateway.metric(&format!("{decisions}{{difference=\"{difference}\"}}")), count);
    }
    let hash = candidate["policy_hash"].as_str().unwrap();
    assert_eq!(gateway.metric(&format!("stepgate_policy_shadow{{policy_hash=\"{hash}\"}}")), 1);

    let explain = |flags: &[&str]| {
        let args = [&["policy", "explain", "DELETE_FILE", "path=/sandbox/a.txt"], flags].concat();
        place.stepgate(args, "").stdout
    };
    assert!(explain(&[]).contains("DELETE_FILE: permit"));
    assert!(explain(&["--shadow"]).contains("DELETE_FILE: deny"));
    drop(gateway);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
    // Without a gateway the same is read from the store.
    assert_eq!(shown(&place, &[])["differences"], *differences);
}

#[test]
fn another_candidate_is_taken_while_steps_run_and_counted_by_itself() {
    let (place, file) = place(STRICTER);
    let gateway = Gateway::start(&place);
    act(&gateway, 1);
    let hash = |reply: &Value| reply["shadow"]["candidate"]["policy_hash"].clone();
    let first = hash(&shown(&place, &[]));
    fs::write(&file, SAME).unwrap();
    until("the other candidate is asked", || hash(&shown(&place, &[])) != first);
    act(&gateway, 4);
    let reply = shown(&place, &[]);
    assert_eq!(
        (&reply["differences"]["count"], &reply["differences"]["newest"]),
        (&json!(0), &json!([]))
    );
    assert_eq!(reply["shadow"]["candidate"]["asked"], 3);
    assert_eq!(shown(&place, &["--all"])["differences"]["count"], 2);
    fs::write(&file, STRICTER).unwrap();
    until("the first candidate is asked again", || hash(&shown(&place, &[])) == first);
    assert_eq!(shown(&place, &[])["differences"]["count"], 2);
}

#[test]
fn a_candidate_that_cannot_be_loaded_is_told_and_stops_nothing() {
    let (place, file) = place("permit (principle, action, resource);");
    let gateway = Gateway::start(&place);
    act(&gateway, 1);
    let directory = file.parent().unwrap().to_str().unwrap();
    let way_out = is_shown(&gateway, &place, "shadow_not_loaded", directory);
    assert!(way_out.contains(&format!("`stepgate policy check {directory}`")), "{way_out}");
    let reply = shown(&place, &[]);
    assert_eq!(reply["shadow"]["candidate"], json!(null));
    let trouble = reply["shadow"]["trouble"].as_str().unwrap();
    assert!(trouble.contains("all.cedar"), "{trouble}");
    let words = place.stepgate(["policy", "shadow"], "").stdout;
    assert!(words.contains("is not asked") && words.contains("all.cedar"), "{words}");
    assert!(!words.contains("differs"), "{words}");
    let explained = place.stepgate(["policy", "explain", "THINK", "--shadow"], "");
    assert!(explained.code == 1 && explained.stderr.contains("all.cedar"), "{explained:?}");
    let doctor = |place: &Place| {
        let said = place.stepgate(["doctor"], "").stdout;
        said.lines().find(|line| line.contains("shadow policies")).unwrap().to_owned()
    };
    assert!(doctor(&place).starts_with("wrong"), "{}", doctor(&place));

    fs::write(&file, SAME).unwrap();
    until("it is asked", || shown(&place, &[])["shadow"]["trouble"].is_null());
    assert!(doctor(&place).starts_with("ok"), "{}", doctor(&place));
    drop(gateway);
    // A directory that is not there does not stop a start either.
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    let mut gateway = Gateway::start(&place);
    gateway.until_it_says("shadow policies are not asked");
    act(&gateway, 4);
}

#[test]
fn without_shadow_policies_the_command_says_how_to_name_some() {
    let place = Place::new();
    place.stepgate(["run", "THINK"], "");
    let words = place.stepgate(["policy", "shadow"], "");
    assert_eq!(words.code, 0, "{words:?}");
    assert!(words.stdout.contains("`policy.shadow` in stepgate.toml"), "{words:?}");
    let explained = place.stepgate(["policy", "explain", "THINK", "--shadow"], "");
    assert!(explained.code == 1 && explained.stderr.contains("`policy.shadow`"), "{explained:?}");
}
