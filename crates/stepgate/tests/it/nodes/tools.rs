//! A tool that changes is accepted once, for all nodes.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{House, until};
use crate::binary::Place;
use crate::http_client::{Gateway, proposal};
use crate::scene::{approve, python};

/// Two nodes with the same tool server, whose tools describe themselves like this.
fn configure(places: &[Place; 2], state: &Path, description: &str) {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tool_server.py");
    let args = [server.to_str().unwrap(), state.to_str().unwrap(), "--describe", description];
    let config = format!(
        "[servers.fixture]\ncommand = {:?}\nargs = {args:?}\nmode = \"read_only\"\n",
        python()
    );
    let policy = r#"@id("look") permit (principal, action in Action::"read_only", resource);"#;
    for place in places {
        fs::write(place.path().join("stepgate.toml"), &config).unwrap();
        fs::create_dir_all(place.path().join("policies")).unwrap();
        fs::write(place.path().join("policies/all.cedar"), policy).unwrap();
    }
}

fn started(places: &[Place; 2]) -> [Gateway; 2] {
    [Gateway::start(&places[0]), Gateway::start(&places[1])]
}

fn look(gateway: &Gateway, tool: &str) -> u16 {
    gateway.propose(&proposal(&format!("fixture.{tool}"), json!({}))).status
}

fn standing(gateway: &Gateway, tool: &str) -> Value {
    let listed = gateway.send("GET", "/v1/tools", &gateway.operator, "").json();
    let tools = listed["tools"].as_array().unwrap().clone();
    let name = json!(format!("fixture.{tool}"));
    tools.into_iter().find(|listed| listed["name"] == name).unwrap()["standing"].clone()
}

#[test]
fn a_change_that_is_accepted_on_one_node_is_in_force_on_the_others() {
    let house = House::new();
    let places = house.two();
    let state = tempfile::TempDir::new().unwrap();
    configure(&places, state.path(), "a tool");
    for gateway in started(&places) {
        assert_eq!(look(&gateway, "look"), 200);
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.end().0, Some(0));
    }
    configure(&places, state.path(), "another tool");
    let [first, second] = started(&places);
    for gateway in [&first, &second] {
        assert_eq!((look(gateway, "look"), standing(gateway, "look")), (403, json!("changed")));
    }
    for (at, other, tool) in [(&first, &second, "look"), (&second, &first, "refuse")] {
        let path = format!("/v1/tools/fixture.{tool}/accept");
        let accepted = at.send("POST", &path, &at.operator, "");
        assert_eq!(accepted.status, 200, "{accepted:?}");
        assert_eq!((look(at, tool), standing(at, tool)), (200, json!("accepted")));
        until("the other node still denies it", || look(other, tool) == 200);
        assert_eq!(standing(other, tool), json!("accepted"));
    }
    // Only what was accepted.
    for gateway in [&first, &second] {
        assert_eq!((look(gateway, "hang"), standing(gateway, "hang")), (403, json!("changed")));
    }
    drop([first, second]);
    assert_eq!(places[0].stepgate(["verify"], "").code, 0);
}

#[test]
fn a_node_whose_server_still_has_the_old_definition_denies_what_was_accepted_elsewhere() {
    let house = House::new();
    let places = house.two();
    let state = tempfile::TempDir::new().unwrap();
    configure(&places, state.path(), "a tool");
    let [first, second] = started(&places);
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(0));
    configure(&places, state.path(), "another tool");
    let first = Gateway::start(&places[0]);
    assert_eq!((look(&first, "look"), look(&second, "look")), (403, 200));
    let accepted = first.send("POST", "/v1/tools/fixture.look/accept", &first.operator, "");
    assert_eq!(accepted.status, 200, "{accepted:?}");
    until("nobody told the other node", || look(&second, "look") == 403);
    assert_eq!(standing(&second, "look"), json!("changed"));
    assert_eq!(look(&first, "look"), 200);
}

#[test]
fn a_grant_on_a_node_without_the_tool_server_decides_nothing() {
    let house = House::new();
    let places = house.two();
    let state = tempfile::TempDir::new().unwrap();
    configure(&places, state.path(), "a tool");
    let policy = r#"@id("ask") @approval("it looks")
        permit (principal, action in Action::"read_only", resource);"#;
    fs::write(places[0].path().join("policies/all.cedar"), policy).unwrap();
    fs::write(places[1].path().join("stepgate.toml"), "").unwrap();
    let [first, second] = started(&places);
    let body = proposal("fixture.look", json!({}));
    let asked = first.propose(&body);
    assert_eq!(asked.status, 202, "{asked:?}");
    let approval = asked.json()["result"]["approval_id"].as_str().unwrap().to_owned();
    let refused = approve(&second, &approval);
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body.contains("does not reach the call's executor"), "{refused:?}");
    assert_eq!(first.propose(&body).status, 202, "it is decided");
    assert_eq!(approve(&first, &approval).status, 200);
    until("it does not go on", || first.propose(&body).status == 200);
    // To say no, nobody has to reach anything.
    let asked = first.propose(&proposal("fixture.look", json!({})));
    let path =
        format!("/v1/approvals/{}/deny", asked.json()["result"]["approval_id"].as_str().unwrap());
    assert_eq!(second.send("POST", &path, &second.operator, "").status, 200);
}
