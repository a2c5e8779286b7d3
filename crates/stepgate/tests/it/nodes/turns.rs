//! Turns of the agent that wait for a person, on several nodes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{House, until};
use crate::agent::stage::{ModelProcess, ask, calls, hello, look, outcomes};
use crate::binary::Place;
use crate::http_client::Gateway;
use crate::scene::{approve, kill, python};

/// Nodes with the same model and the same tool server, whose only act needs a person.
struct Scene {
    house: House,
    model: ModelProcess,
    state: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self {
            house: House::new(),
            model: ModelProcess::start(),
            state: TempDir::new().unwrap(),
        };
        scene.model.says([
            calls(&[("c1", "fixture__act", json!({ "value": 7 }))]),
            json!({ "text": "acted" }),
        ]);
        scene
    }

    fn place(&self, node_id: &str) -> Place {
        let place = self.house.alone(node_id);
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tool_server.py");
        let args = [server.to_str().unwrap(), self.state.path().to_str().unwrap(), "--honours-key"];
        let config = format!(
            "[agent]\nbase_url = \"http://{}/v1\"\nmodel = \"test-model\"\n\
             [servers.fixture]\ncommand = {:?}\nargs = {args:?}\nmode = \"read_only\"\nshared = true\n\
             [servers.fixture.tools.act]\nmode = \"execute_gated\"\nhonours_key = true\n",
            self.model.address,
            python()
        );
        let policy = r#"@id("ask") @approval("it acts")
            permit (principal, action == Action::"fixture.act", resource);"#;
        fs::create_dir_all(place.path().join("policies")).unwrap();
        fs::write(place.path().join("policies/all.cedar"), policy).unwrap();
        fs::write(place.path().join("stepgate.toml"), config).unwrap();
        place
    }

    fn effects(&self) -> usize {
        let file: PathBuf = self.state.path().join("effects");
        fs::read_to_string(file).map_or(0, |text| text.lines().count())
    }

    /// The turn has gone on, once.
    fn ended(&self, gateway: &Gateway, turn: &Value) {
        until("the turn does not go on", || look(gateway, turn).json()["state"] == "final");
        let response = look(gateway, turn).json()["response"].clone();
        assert_eq!(response["primaryOutputText"], "acted");
        assert_eq!(outcomes(&response), ["SUCCESS"]);
        assert_eq!((self.effects(), self.model.asked().len()), (1, 2));
    }
}

/// A turn that waits for a person: its id, and the approval.
fn asked(gateway: &Gateway) -> (Value, String) {
    let reply = ask(gateway, "k1", &hello("act"));
    assert_eq!(reply.status, 202, "{}", reply.body);
    let accepted = reply.json();
    (accepted["turnId"].clone(), accepted["approvalId"].as_str().unwrap().to_owned())
}

#[test]
fn a_turn_that_waited_on_a_node_that_is_gone_goes_on_elsewhere_once() {
    let scene = Scene::new();
    let places = ["first", "second", "third"].map(|node_id| scene.place(node_id));
    let [first, second, third] = [0, 1, 2].map(|node| Gateway::start(&places[node]));
    let (turn, approval) = asked(&first);
    kill(first);
    assert_eq!(approve(&second, &approval).status, 200);
    scene.ended(&third, &turn);
    // Whoever went on did so to the end, and everybody has the answer.
    let again = ask(&third, "k1", &hello("act"));
    assert_eq!((again.status, &again.json()["primaryOutputText"]), (200, &json!("acted")));
    assert_eq!((scene.effects(), scene.model.asked().len()), (1, 2));
    drop([second, third]);
    assert_eq!(places[1].stepgate(["verify"], "").code, 0);
}

#[test]
fn a_turn_whose_node_lives_is_left_to_it() {
    let scene = Scene::new();
    let places = ["first", "second"].map(|node_id| scene.place(node_id));
    let [first, second] = [0, 1].map(|node| Gateway::start(&places[node]));
    let (turn, approval) = asked(&first);
    assert_eq!(approve(&second, &approval).status, 200);
    scene.ended(&second, &turn);
}

#[test]
fn a_node_that_comes_back_goes_on_with_its_own_turn() {
    let scene = Scene::new();
    let place = scene.place("first");
    let first = Gateway::start(&place);
    let (turn, approval) = asked(&first);
    kill(first);
    let first = Gateway::start(&place);
    assert_eq!(approve(&first, &approval).status, 200);
    scene.ended(&first, &turn);
}
