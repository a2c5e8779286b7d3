//! Policies as an operator meets them: checked, explained, tried on history, and refused with their
//! place.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::binary::Place;
use crate::gate::proposal;
use crate::unfolded::Unfolded;

/// A directory with the policies of a first start, in which something has happened.
fn used() -> Place {
    let place = Place::new();
    let lines = [
        proposal(1, "WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "x" })),
        proposal(2, "DELETE_FILE", json!({ "path": "/sandbox/a.txt" })),
        proposal(3, "READ_FILE", json!({ "path": "/sandbox/a.exe" })),
        proposal(4, "THINK", json!({})),
    ];
    let output = place.stepgate(["step", "--lines"], lines.join("\n"));
    assert_eq!((output.code, output.stdout.lines().count()), (0, 4), "{}", output.stderr);
    place
}

fn policy_file(place: &Place) -> std::path::PathBuf {
    place.path().join("policies/10-core.cedar")
}

#[test]
fn the_policies_of_a_first_start_hold_their_cases() {
    let place = used();
    let output = place.stepgate(["policy", "check"], "");
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("can be loaded: 3 policies"), "{}", output.stdout);
    let output = place.stepgate(["policy", "check", "--json"], "");
    let checked: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(checked["policies"], 3);
    assert!(checked["cases"].as_u64().unwrap() >= 4);
}

#[test]
fn what_is_wrong_with_policies_is_named_with_file_and_line_and_nothing_is_served() {
    let place = used();
    let good = fs::read_to_string(policy_file(&place)).unwrap();
    let rows = [
        (format!("{good}\npermit (principal"), "10-core.cedar"),
        (format!("{good}\n@aproval(\"x\")\npermit (principal, action, resource);"), "aproval"),
        (format!("{good}\npermit (principal, action == Action::\"FLY\", resource);"), "FLY"),
        (good.replace("permit (", "forbid ("), "cases"),
    ];
    for (text, expected) in rows {
        fs::write(policy_file(&place), text).unwrap();
        let checked = place.stepgate(["policy", "check"], "");
        assert_eq!(checked.code, 1, "{}", checked.stdout);
        assert!(checked.stdout.contains(expected), "{expected}: {}", checked.stdout);
        for args in [vec!["serve", "--bind", "127.0.0.1:0"], vec!["run", "THINK"]] {
            let output = place.stepgate(args, "");
            assert_eq!(output.code, 1, "{}", output.stdout);
            assert!(output.stderr.contains("policies cannot be loaded"), "{}", output.stderr);
            assert!(output.stderr.contains("policies/"), "{}", output.stderr);
        }
    }
}

#[test]
fn explain_names_the_policy_with_its_place_and_records_nothing() {
    let place = used();
    let explain = |args: &[&str]| {
        let args = [&["policy", "explain"], args].concat();
        let output = place.stepgate(args, "");
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stdout
    };
    let allowed = explain(&["DELETE_FILE", "path=/sandbox/a.txt"]);
    assert!(allowed.contains("DELETE_FILE: permit"), "{allowed}");
    assert!(allowed.contains("core/sandbox") && allowed.contains("10-core.cedar:"), "{allowed}");
    let refused = explain(&["READ_FILE", "path=/sandbox/a.exe"]);
    let rule =
        "sandbox: file extension: `sandbox.read_extensions` in stepgate.toml allows .txt, .md";
    assert!(refused.contains("deny") && refused.contains(rule), "{refused}");
    let detail = explain(&["THINK", "--json"]);
    let detail: Value = serde_json::from_str(&detail).unwrap();
    assert_eq!(detail["explanation"]["requests"][0]["policies"][0]["outcome"], "matched");
    let runs = place.stepgate(["runs", "--json"], "");
    assert_eq!(runs.stdout.lines().count(), 4);
}

#[test]
fn replay_shows_every_decision_that_would_change_and_changes_none() {
    let place = used();
    let changed = tempfile::TempDir::new().unwrap();
    let replay = |text: &str| {
        fs::write(changed.path().join("all.cedar"), text).unwrap();
        let output =
            place.stepgate(["policy", "replay", changed.path().to_str().unwrap(), "--json"], "");
        assert_eq!(output.code, 0, "{}", output.stderr);
        let lines = output.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut changes: Vec<_> = lines
            .map(|change| {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                (
                    text(&change["tool"]),
                    text(&change["was"]["verdict"]),
                    text(&change["would_be"]["verdict"]),
                )
            })
            .collect();
        changes.sort();
        changes
    };
    let all = "permit (principal, action in Action::\"core\", resource);\n";
    assert_eq!(replay(all), []);
    let ask = "@approval(\"gone is gone\")\n\
               permit (principal, action == Action::\"DELETE_FILE\", resource);\n";
    let row =
        |tool: &str, would_be: &str| (tool.to_owned(), "permit".to_owned(), would_be.to_owned());
    assert_eq!(replay(&format!("{all}{ask}")), [row("DELETE_FILE", "require_approval")]);
    // What the sandbox refused before any policy was asked is not asked again.
    let only = "permit (principal, action == Action::\"THINK\", resource);\n";
    assert_eq!(replay(only), [row("DELETE_FILE", "deny"), row("WRITE_FILE", "deny")]);
    assert_eq!(place.stepgate(["runs", "--json"], "").stdout.lines().count(), 4);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

#[test]
fn replay_fails_on_request_where_a_decision_would_change_or_a_run_cannot_be_read() {
    let place = used();
    let changed = tempfile::TempDir::new().unwrap();
    let replay = |text: &str, flags: &[&str]| {
        fs::write(changed.path().join("all.cedar"), text).unwrap();
        let args = [&["policy", "replay", changed.path().to_str().unwrap()], flags].concat();
        place.stepgate(args, "").code
    };
    let all = "permit (principal, action in Action::\"core\", resource);\n";
    let only = "permit (principal, action == Action::\"THINK\", resource);\n";
    assert_eq!((replay(all, &[]), replay(only, &[])), (0, 0));
    let rows: [(&str, &[&str], i32); 4] = [
        (all, &["--fail-on-change"], 0),
        (only, &["--fail-on-change"], 15),
        (only, &["--fail-on-change", "--json"], 15),
        // The newest decision is to think, which both permit.
        (only, &["--fail-on-change", "--limit", "1"], 0),
    ];
    for (text, flags, expected) in rows {
        assert_eq!(replay(text, flags), expected, "{text} {flags:?}");
    }
    let connection = Unfolded::open(&place.database());
    let tamper = "DROP TRIGGER chunks_no_delete; UPDATE journal SET artifact = '{}'";
    connection.execute_batch(tamper).unwrap();
    drop(connection);
    assert_eq!((replay(all, &[]), replay(all, &["--fail-on-change"])), (0, 1));
}

#[test]
fn a_delete_that_is_gated_waits_for_a_person_who_says_yes_or_no() {
    let place = used();
    let mut text = fs::read_to_string(policy_file(&place)).unwrap();
    text.push_str(
        "\n@id(\"ask\")\n@approval(\"a file is deleted\")\n\
         permit (principal, action == Action::\"DELETE_FILE\", resource);\n",
    );
    fs::write(policy_file(&place), text).unwrap();
    for (number, word, code) in [(1, "approve", 0), (2, "deny", 0)] {
        let path = format!("path=/sandbox/{number}.txt");
        place.stepgate(["run", "WRITE_FILE", &path, "content=x"], "");
        let asked = place.stepgate(["run", "DELETE_FILE", &path], "");
        assert_eq!(asked.code, 13, "{}", asked.stderr);
        let response: Value = serde_json::from_str(&asked.stdout).unwrap();
        let approval = response["result"]["approval_id"].as_str().unwrap().to_owned();
        let listed = place.stepgate(["approvals"], "");
        assert!(listed.stdout.contains(&approval), "{}", listed.stdout);
        let what = format!("what  DELETE_FILE\n        path = \"/sandbox/{number}.txt\"\n");
        assert!(listed.stdout.contains(&what), "{}", listed.stdout);
        let decided = place.stepgate([word, &approval, "--note", "as agreed"], "");
        assert_eq!(decided.code, code, "{}{}", decided.stdout, decided.stderr);
        let is_there = place.path().join(format!("sandbox/{number}.txt")).exists();
        assert_eq!(is_there, word == "deny");
        let again = place.stepgate([word, &approval], "");
        assert_ne!(again.code, 0);
    }
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

/// The id of the question about this call.
fn question(place: &Place, args: &[&str]) -> String {
    let asked = place.stepgate([&["run"], args].concat(), "");
    assert_eq!(asked.code, 13, "{}", asked.stderr);
    let response: Value = serde_json::from_str(&asked.stdout).unwrap();
    response["result"]["approval_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_grant_is_good_for_the_file_that_was_asked_about_and_for_no_other_at_its_path() {
    let calls: [&[&str]; 2] = [
        &["DELETE_FILE", "path=/sandbox/a.txt"],
        &["RENAME_FILE", "source=/sandbox/a.txt", "destination=/sandbox/b.txt"],
    ];
    type Change = fn(&Path);
    let changes: [(Change, Option<&str>); 5] = [
        (|_| (), None),
        // Another file, with the same content too; the same file with another content.
        (|file| replace(file, "old"), Some("old")),
        (|file| replace(file, "new"), Some("new")),
        (|file| fs::write(file, "new").unwrap(), Some("new")),
        // A file that came after the question.
        (|file| fs::write(file, "late").unwrap(), Some("late")),
    ];
    for args in calls {
        for (row, (change, left)) in changes.into_iter().enumerate() {
            let place = used();
            let policy = fs::read_to_string(policy_file(&place)).unwrap()
                + "\n@id(\"ask\") @approval(\"a person looks\")\npermit (principal, action in \
                   [Action::\"DELETE_FILE\", Action::\"RENAME_FILE\"], resource);\n";
            fs::write(policy_file(&place), policy).unwrap();
            // They say that a renaming is permitted.
            fs::remove_file(place.path().join("policies/defaults.cases.toml")).unwrap();
            let file = place.path().join("sandbox/a.txt");
            match left {
                Some("late") => drop(fs::remove_file(&file)),
                Some(_) | None => fs::write(&file, "old").unwrap(),
            }
            let question = question(&place, args);
            change(&file);
            let decided = place.stepgate(["approve", &question], "");
            let found = fs::read_to_string(&file).ok();
            assert_eq!(found.as_deref(), left, "{args:?} {row}: {decided:?}");
            let shown = place.stepgate(["runs", "show", "last"], "").stdout;
            let is_refused = shown.contains("no longer the one that was approved");
            assert_eq!(is_refused, left.is_some(), "{args:?} {row}: {shown}");
            assert_eq!(place.stepgate(["verify"], "").code, 0);
        }
    }
}

/// A file made elsewhere takes the name.
fn replace(file: &Path, content: &str) {
    let other = file.with_extension("other");
    fs::write(&other, content).unwrap();
    fs::rename(other, file).unwrap();
}

/// The default policies permit what others denied, so they never take the place of others.
#[test]
fn policies_that_are_missing_are_an_error_and_not_replaced() {
    let place = used();
    let policies = place.path().join("policies");
    fs::remove_dir_all(&policies).unwrap();
    let again = place.stepgate(["run", "THINK"], "");
    assert_eq!(again.code, 0, "the default ones were in force: {again:?}");
    fs::write(policy_file(&place), "forbid (principal, action, resource);").unwrap();
    fs::remove_file(policies.join("defaults.cases.toml")).unwrap();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 11);
    let away = place.path().join("away");
    fs::rename(&policies, &away).unwrap();
    let refused = place.stepgate(["run", "THINK"], "");
    assert!(refused.code == 1 && refused.stderr.contains("put them back"), "{refused:?}");
    assert!(!policies.exists());
    std::os::unix::fs::symlink(place.path().join("nowhere"), &policies).unwrap();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 1);
    fs::remove_file(&policies).unwrap();
    fs::rename(&away, &policies).unwrap();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 11);
}

#[test]
fn a_place_for_policies_that_is_not_there_is_an_error() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    let config = place.path().join("stepgate.toml");
    fs::write(&config, "[policy]\ndirectory = \"pol\"\n").unwrap();
    let refused = place.stepgate(["run", "THINK"], "");
    assert!(refused.code == 1 && refused.stderr.contains("it is not there"), "{refused:?}");
    assert!(!place.path().join("pol").exists());
    fs::remove_file(&config).unwrap();
    std::os::unix::fs::symlink(place.path().join("nowhere"), &config).unwrap();
    let refused = place.stepgate(["run", "THINK"], "");
    assert!(refused.code == 1 && refused.stderr.contains("stepgate.toml"), "{refused:?}");
}
