//! Questions to a person that were open when a backup was made, and are open again after a restore.

use std::fs;

use serde_json::Value;

use super::{Engine, SERVER, Shelf, backed_up, heads, node, restored};
use crate::binary::Place;

/// A data directory in which a person is asked whether a file may be written, and the question.
fn asking(place: &Place) -> String {
    let policies = place.path().join("policies");
    fs::create_dir_all(&policies).unwrap();
    let policy = "@id(\"ask\") @approval(\"a person looks\")
        permit (principal, action in Action::\"core\", resource);";
    fs::write(policies.join("ask.cedar"), policy).unwrap();
    let asked = place.stepgate(["run", "WRITE_FILE", "path=/sandbox/a.txt", "content=new"], "");
    assert_eq!(asked.code, 13, "{asked:?}");
    open_question(place)
}

fn open_question(place: &Place) -> String {
    let listed = place.stepgate(["approvals", "--json"], "");
    let first: Value = serde_json::from_str(listed.stdout.lines().next().unwrap()).unwrap();
    first["approval_id"].as_str().unwrap().to_owned()
}

/// The question can be answered, and then nothing of the restore is needed any more.
fn granted(place: &Place, question: &str, what: &str) {
    // What holds the directory without an answer changes nothing of it.
    assert_eq!(place.stepgate(["recover"], "").code, 0, "{what}");
    assert_eq!(open_question(place), question, "{what}");
    let approved = place.stepgate(["approve", question], "");
    assert_eq!(approved.code, 0, "{what}: {approved:?}");
    let written = fs::read_to_string(place.path().join("sandbox/a.txt"));
    assert_eq!(written.ok().as_deref(), Some("new"), "{what}");
    assert!(place.path().join("restored.json").exists(), "{what}");
    assert_eq!(place.stepgate(["recover"], "").code, 0, "{what}");
    assert!(!place.path().join("restored.json").exists(), "{what}");
    heads(place);
}

fn fresh(name: &str) -> Place {
    node(name, &SERVER.url(&SERVER.database().unwrap()))
}

#[test]
fn a_question_that_was_open_can_be_answered_in_whatever_engine_it_is_restored_into() {
    for source in Engine::ALL {
        let (place, shelf) = (source.place(), Shelf::new());
        let question = asking(&place);
        let path = shelf.path("b");
        backed_up(&place, &path);
        for (target, what) in [(fresh("second"), "PostgreSQL"), (Place::new(), "SQLite")] {
            restored(&target, &path);
            granted(&target, &question, &format!("{source:?} to {what}"));
        }
        // And after the next backup, and the one after that.
        let mut path = path;
        for name in ["second", "third"] {
            let between = fresh(name);
            restored(&between, &path);
            assert_eq!(between.stepgate(["recover"], "").code, 0);
            path = shelf.path(name);
            backed_up(&between, &path);
        }
        let last = fresh("fourth");
        restored(&last, &path);
        granted(&last, &question, &format!("{source:?} over three"));
    }
}
