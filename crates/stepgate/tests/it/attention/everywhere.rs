//! Each kind of thing that needs a person is found wherever a person looks: over HTTP, in the terminal, in the metrics and
//! in the events. On SQLite and on PostgreSQL.

use std::fs;

use serde_json::{Value, json};

use crate::binary::Place;
use crate::gate::proposal;
use crate::gateway_tools::{act, killed_at};
use crate::http_client::Gateway;
use crate::nodes::House;
use crate::scene::{Scene, approve, python, until};

/// Where the store is.
enum Engine {
    Sqlite(Place),
    Postgres(House, Place),
}

impl Engine {
    fn both() -> [Self; 2] {
        let house = House::new();
        let place = house.alone("first");
        [Self::Sqlite(Place::new()), Self::Postgres(house, place)]
    }

    /// The fixture behind the gate, and how to ask the database.
    fn scene(self, delivery: &str) -> (Scene, Database) {
        match self {
            Self::Sqlite(place) => (Scene::at(place, delivery, &[]), Database::Sqlite),
            Self::Postgres(house, place) => {
                (Scene::at(place, delivery, &[]), Database::Postgres(house))
            }
        }
    }
}

enum Database {
    Sqlite,
    Postgres(House),
}

impl Database {
    fn count(&self, place: &Place, condition: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM events WHERE {condition}");
        match self {
            Self::Sqlite => {
                let connection = rusqlite::Connection::open(place.database()).unwrap();
                connection.query_row(&sql, [], |row| row.get(0)).unwrap()
            }
            Self::Postgres(house) => house.sql(&sql).unwrap().parse().unwrap(),
        }
    }

    /// Makes the payload of every run another one, past the triggers that would refuse it.
    fn tamper(&self, scene: &Scene) {
        match self {
            Self::Sqlite => super::quarantine::tamper(scene),
            Self::Postgres(house) => {
                let other = proposal(1, "fixture.act", json!({ "value": 99 }));
                let sql = format!(
                    "ALTER TABLE tool_runs DISABLE TRIGGER USER;
                     UPDATE tool_runs SET payload = convert_to('{other}', 'UTF8')"
                );
                house.sql(&sql).unwrap();
            }
        }
    }
}

/// Everything of a kind, as the gateway lists it.
fn listed(gateway: &Gateway, kind: &str) -> Vec<Value> {
    let reply = gateway.send("GET", "/v1/attention", &gateway.operator, "");
    assert_eq!(reply.status, 200, "{}", reply.body);
    let needs = reply.json()["attention"].as_array().unwrap().clone();
    let since: Vec<&str> = needs.iter().map(|need| need["since"].as_str().unwrap()).collect();
    assert!(since.is_sorted(), "{since:?}");
    let of_kind: Vec<Value> = needs.iter().filter(|need| need["kind"] == kind).cloned().collect();
    assert_eq!(reply.json()["counts"][kind], of_kind.len(), "{}", reply.body);
    of_kind
}

/// Finds it in the list over HTTP, in the terminal and in the metrics. Returns what is said to do about it.
pub(crate) fn is_shown(gateway: &Gateway, place: &Place, kind: &str, subject: &str) -> String {
    until(&format!("{kind} {subject} is listed"), || {
        listed(gateway, kind).iter().any(|need| need["subject"] == subject)
    });
    let needs = listed(gateway, kind);
    let need = needs.iter().find(|need| need["subject"] == subject).unwrap();
    let agents = gateway.send("GET", "/v1/attention", &gateway.agent, "");
    assert_eq!(agents.status, 403, "{}", agents.body);

    let shown = place.stepgate(["attention", "--json", "--kind", kind], "");
    assert_eq!(shown.code, 0, "{shown:?}");
    let lines: Vec<Value> =
        shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["subject"] == subject).unwrap();
    assert_eq!((&line["kind"], &line["way_out"]), (&need["kind"], &need["way_out"]));
    assert_eq!(lines.len(), needs.len(), "{shown:?}");
    let shown = place.stepgate(["attention"], "");
    let way_out = need["way_out"].as_str().unwrap();
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stdout.contains(subject) && shown.stdout.contains(way_out), "{shown:?}");

    let count = u64::try_from(needs.len()).unwrap();
    assert_eq!(gateway.metric(&format!("stepgate_attention{{kind=\"{kind}\"}}")), count);
    way_out.to_owned()
}

/// Waits until the events tell it, and sees that they do so once.
fn is_told(database: &Database, place: &Place, event_type: &str, parts: &[&str]) {
    let like = parts.iter().map(|part| format!(" AND payload_json LIKE '%\"{part}\"%'"));
    let condition = format!("event_type = '{event_type}'{}", like.collect::<String>());
    until(&condition, || database.count(place, &condition) > 0);
    assert_eq!(database.count(place, &condition), 1, "{condition}");
}

fn is_well(gateway: &Gateway, place: &Place) {
    let reply = gateway.send("GET", "/v1/attention", &gateway.operator, "");
    assert_eq!(reply.json()["attention"], json!([]), "{}", reply.body);
    let counts = reply.json()["counts"].as_object().unwrap().clone();
    for (kind, count) in &counts {
        assert_eq!(*count, 0, "{kind}");
        assert_eq!(gateway.metric(&format!("stepgate_attention{{kind=\"{kind}\"}}")), 0);
    }
    assert_eq!(counts.len(), 12);
    let shown = place.stepgate(["attention"], "");
    assert_eq!((shown.code, shown.stdout.as_str()), (0, "nothing needs a person\n"));
}

#[test]
fn an_approval_is_found_everywhere_until_it_is_decided() {
    for engine in Engine::both() {
        let (scene, database) = engine.scene("honours_key = true");
        let gateway = Gateway::start(&scene.place);
        is_well(&gateway, &scene.place);
        assert_eq!(gateway.propose(&act(1)).status, 202);
        let approval = scene.pending();
        let way_out = is_shown(&gateway, &scene.place, "approval", &approval);
        assert!(way_out.contains(&format!("stepgate approve {approval}")), "{way_out}");
        let need = listed(&gateway, "approval").remove(0);
        assert_eq!(need["reason"], "`agent` asks for `fixture.act`: it acts");
        // Who asks, for what, until when.
        let said =
            ["principal_id\":\"agent", "args\":{\"value\":1},\"expires_at", "tool\":\"fixture.act"];
        is_told(&database, &scene.place, "approval_requested", &said);
        assert_eq!(approve(&gateway, &approval).status, 200);
        until("it is done", || scene.effects() == 1);
        is_well(&gateway, &scene.place);
    }
}

#[test]
fn of_very_many_approvals_the_oldest_are_listed_and_all_are_counted() {
    let scene = Scene::new("honours_key = true");
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("[limits]\napprovals_open_max = 200\n{text}")).unwrap();
    let gateway = Gateway::start(&scene.place);
    for number in 1..=103 {
        assert_eq!(gateway.propose(&act(number)).status, 202);
    }
    let reply = gateway.send("GET", "/v1/attention", &gateway.operator, "").json();
    let needs = reply["attention"].as_array().unwrap();
    assert_eq!((needs.len(), &reply["counts"]["approval"]), (100, &json!(103)));
    let newest = gateway.send("GET", "/v1/approvals?limit=103", &gateway.operator, "").json();
    assert_eq!(needs[0]["subject"], newest["approvals"][102]["approval_id"]);
    assert_eq!(needs[99]["subject"], newest["approvals"][3]["approval_id"]);
    assert_eq!(gateway.metric("stepgate_attention{kind=\"approval\"}"), 103);
    let shown = scene.stepgate(&["attention"]);
    let last = shown.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("103 approvals are open, of which these are the 100 oldest"),
        "{last}"
    );
}

#[test]
fn a_call_in_doubt_is_found_everywhere() {
    for engine in Engine::both() {
        let (scene, database) = engine.scene("in_doubt = \"ask\"");
        killed_at(&scene, "hold-after");
        let run = super::run_of_the_call(&scene.place);
        let gateway = Gateway::start(&scene.place);
        let way_out = is_shown(&gateway, &scene.place, "in_doubt", &run);
        assert!(way_out.contains(&format!("stepgate runs resolve {run}")), "{way_out}");
        is_told(&database, &scene.place, "run_needs_person", &["in_doubt", &run]);
    }
}

#[test]
fn a_stuck_run_is_found_everywhere() {
    for engine in Engine::both() {
        let (scene, database) = engine.scene("honours_key = true");
        killed_at(&scene, "hold-after");
        let run = super::run_of_the_call(&scene.place);
        // Its server is gone from the configuration.
        fs::write(scene.place.path().join("stepgate.toml"), "").unwrap();
        let core = r#"@id("core") permit (principal, action in Action::"core", resource);"#;
        fs::write(scene.place.path().join("policies/all.cedar"), core).unwrap();
        let gateway = Gateway::start(&scene.place);
        is_shown(&gateway, &scene.place, "stuck", &run);
        is_told(&database, &scene.place, "run_needs_person", &["stuck", &run]);
    }
}

#[test]
fn a_quarantined_run_is_found_everywhere() {
    for engine in Engine::both() {
        let (scene, database) = engine.scene("honours_key = true");
        let gateway = Gateway::start(&scene.place);
        assert_eq!(gateway.propose(&act(1)).status, 202);
        let approval = scene.pending();
        database.tamper(&scene);
        assert_eq!(approve(&gateway, &approval).status, 409);
        let run = super::run_of_the_call(&scene.place);
        is_shown(&gateway, &scene.place, "quarantined", &run);
        // Its approval cannot be decided, so it is not listed.
        assert_eq!(listed(&gateway, "approval"), Vec::<Value>::new());
        is_told(&database, &scene.place, "run_needs_person", &["quarantined", &run]);
    }
}

#[test]
fn tools_servers_and_policies_are_found_everywhere_until_they_are_well() {
    for engine in Engine::both() {
        let (scene, database) = engine.scene("honours_key = true");
        let place = &scene.place;
        drop(Gateway::start(place));
        // Each tool has another description, `extra` is new, `bad` cannot be used, the other server is away.
        let flags = ["--describe", "another", "--tool", "extra", "--broken"];
        scene.configure("honours_key = true", &flags);
        let config = place.path().join("stepgate.toml");
        let text = fs::read_to_string(&config).unwrap();
        let (fixture, other) = text.split_once("[servers.other]").unwrap();
        let other = other.replace(&format!("{:?}", python()), "\"/nowhere/python3\"");
        fs::write(&config, format!("{fixture}[servers.other]{other}")).unwrap();
        let mut gateway = Gateway::start(place);
        let policies = place.path().join("policies");
        let good = fs::read_to_string(policies.join("all.cedar")).unwrap();
        fs::write(policies.join("all.cedar"), "permit (principle, action, resource);").unwrap();
        gateway.until_it_says("policies not reloaded");

        let directory = policies.to_str().unwrap();
        let found = [
            ("tool_changed", "fixture.act", "`stepgate tools accept fixture.act`"),
            ("tool_new", "fixture.extra", "`stepgate tools diff fixture.extra`"),
            ("tool_unusable", "fixture.bad", "`stepgate tools`"),
            ("server_off", "other", "`stepgate doctor`"),
            ("policy_not_loaded", directory, "`stepgate policy check`"),
        ];
        for (kind, subject, command) in found {
            let way_out = is_shown(&gateway, place, kind, subject);
            assert!(way_out.contains(command), "{way_out}");
            is_told(&database, place, "part_needs_person", &[kind, subject]);
        }
        let since = |kind: &str| listed(&gateway, kind).remove(0)["since"].clone();
        assert_eq!(since("server_off"), since("server_off"));

        fs::write(policies.join("all.cedar"), good).unwrap();
        until("the policies are loaded", || listed(&gateway, "policy_not_loaded").is_empty());
        for tool in ["fixture.act", "fixture.extra"] {
            assert_eq!(place.stepgate(["tools", "accept", tool], "").code, 0);
            for kind in ["tool_changed", "tool_new"] {
                assert!(listed(&gateway, kind).iter().all(|need| need["subject"] != tool));
            }
        }
        drop(gateway);
        scene.verified();
    }
}

#[test]
fn policies_that_everybody_can_write_to_are_told_until_their_permissions_are_right() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let file = scene.place.path().join("policies/all.cedar");
    let set_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&file, mode).unwrap();
    };
    set_mode(0o666);
    until("it is told", || !listed(&gateway, "policy_not_loaded").is_empty());
    set_mode(0o600);
    until("it is well", || listed(&gateway, "policy_not_loaded").is_empty());
}

#[test]
fn in_a_directory_without_data_attention_says_so_and_creates_nothing() {
    let place = Place::new();
    let said = place.stepgate(["attention"], "");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("there is no data directory at"), "{said:?}");
    assert!(!place.path().exists());
    fs::create_dir_all(place.path()).unwrap();
    fs::write(place.path().join("stepgate.toml"), "").unwrap();
    let said = place.stepgate(["attention"], "");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("nothing needs a person"), "{said:?}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}
