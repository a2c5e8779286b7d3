//! A good tool server beside one that is away, one with a tool that cannot be used, and one whose definitions
//! differ at each start: the good one serves, and the others are named wherever an operator looks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::binary::Place;
use crate::gate::proposal;
use crate::http_client::Gateway;
use crate::scene::{python, until};

const POLICIES: &str = r#"
    @id("look") permit (principal, action in Action::"read_only", resource);
    @id("away") permit (principal, action == Action::"away.look", resource);
    @id("all-of-away") forbid (principal, action, resource in Server::"away")
    when { context.mode == "draft" };
    @id("bad") forbid (principal, action == Action::"broken.bad", resource);
    @id("unwanted") forbid (principal, action == Action::"unwanted.look", resource);
"#;

struct Scene {
    place: Place,
    state: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::at(Place::new())
    }

    fn at(place: Place) -> Self {
        let scene = Self { place, state: tempfile::TempDir::new().unwrap() };
        fs::create_dir_all(scene.place.path().join("policies")).unwrap();
        fs::write(scene.place.path().join("policies/all.cedar"), POLICIES).unwrap();
        scene.configure(&[]);
        scene
    }

    /// The servers, the good one with these flags more.
    fn configure(&self, flags: &[&str]) {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tool_server.py");
        let server = |name: &str, command: &Path, flags: &[&str], more: &str| {
            let mut args = vec![program.to_str().unwrap(), self.state.path().to_str().unwrap()];
            args.extend(flags);
            format!(
                "[servers.{name}]\ncommand = {command:?}\nargs = {args:?}\nmode = \"read_only\"\n{more}"
            )
        };
        let python = python();
        let python = Path::new(&python);
        let config = [
            "[policy]\nreload_ms = 20\n".to_owned(),
            server("good", python, flags, ""),
            server("away", &self.away(), &[], ""),
            server("broken", python, &["--broken"], ""),
            server("varying", python, &["--varying"], ""),
            server("unwanted", python, &[], "").replace("read_only", "off"),
        ];
        fs::write(self.place.path().join("stepgate.toml"), config.concat()).unwrap();
    }

    /// Puts the program of the server that is away where it is looked for, whole at once.
    fn bring(&self) {
        let unfinished = self.state.path().join("unfinished");
        fs::write(&unfinished, format!("#!/bin/sh\nexec {} \"$@\"\n", python())).unwrap();
        fs::set_permissions(&unfinished, PermissionsExt::from_mode(0o755)).unwrap();
        fs::rename(&unfinished, self.away()).unwrap();
    }

    /// Where the program of the server that is away will be.
    fn away(&self) -> std::path::PathBuf {
        self.state.path().join("interpreter")
    }
}

fn look(gateway: &Gateway, tool: &str) -> u16 {
    let mut payload: Value = serde_json::from_str(&proposal(1, tool, json!({}))).unwrap();
    payload["id"] = json!(uuid::Uuid::new_v4());
    gateway.propose(&payload.to_string()).status
}

/// Every part that is off, as this reply says.
fn parts(reply: &Value) -> Vec<String> {
    let off = reply["off"].as_array().unwrap_or_else(|| panic!("{reply}"));
    let name = |off: &Value| match off["tool"].as_str() {
        Some(tool) => format!("{}.{tool}", off["server"].as_str().unwrap()),
        None => off["server"].as_str().unwrap().to_owned(),
    };
    off.iter().map(name).collect()
}

#[test]
fn the_good_server_serves_and_what_is_off_is_named_wherever_an_operator_looks() {
    let scene = Scene::new();
    // The first use of the servers that are there.
    let gateway = Gateway::start(&scene.place);
    assert_eq!(look(&gateway, "varying.look"), 200);
    drop(gateway);

    let varying: Vec<String> =
        ["act", "crash", "flood", "garbage", "hang", "look", "refuse", "status"]
            .map(|tool| format!("varying.{tool}"))
            .to_vec();
    let mut expected = vec!["away".to_owned(), "broken.bad".to_owned()];
    expected.extend(varying);

    // Without a gateway the doctor asks the servers, and accepts nothing.
    let doctor = scene.place.stepgate(["doctor"], "");
    assert_eq!(doctor.code, 1, "{doctor:?}");
    for name in &expected {
        assert!(doctor.stdout.contains(&format!("`{name}`")), "{name}: {doctor:?}");
    }

    let mut gateway = Gateway::start(&scene.place);
    gateway.until_it_says("the tool server `away` is off: ");
    gateway.until_it_says("the tool `broken.bad` is off: ");
    gateway.until_it_says("the tool `varying.look` has changed since it was accepted");
    for (tool, status) in
        [("good.look", 200), ("broken.look", 200), ("varying.look", 403), ("unwanted.look", 403)]
    {
        assert_eq!(look(&gateway, tool), status, "{tool}");
    }

    let ready = |token: &str| gateway.send("GET", "/readyz", token, "");
    let all = ready(&gateway.operator);
    assert_eq!((all.status, parts(&all.json())), (200, expected.clone()));
    for token in ["", "stale", &gateway.agent] {
        let counts = json!({ "status": "ready", "servers_off": 1, "tools_off": 9 });
        assert_eq!(ready(token).json(), counts, "{token}");
    }
    let listed = gateway.send("GET", "/v1/tools", &gateway.operator, "").json();
    assert_eq!(parts(&listed), expected);
    let seen = gateway.send("GET", "/v1/tools", &gateway.agent, "").json();
    assert_eq!((&seen["off"], &seen["servers"]), (&Value::Null, &Value::Null));
    assert!(!seen.to_string().contains("broken.bad"));
    let tools = scene.place.stepgate(["tools"], "");
    let as_json = scene.place.stepgate(["tools", "--json"], "");
    let doctor = scene.place.stepgate(["doctor"], "");
    for name in &expected {
        for output in [&tools, &doctor] {
            assert!(output.stdout.contains(&format!("`{name}`")), "{name}: {output:?}");
        }
    }
    assert!(tools.stdout.contains("the configuration turns `unwanted` off"), "{tools:?}");
    assert!(as_json.stdout.contains(r#"{"off":{"server":"away","tool":null,"#), "{as_json:?}");
    let checked = scene.place.stepgate(["policy", "check"], "");
    assert_eq!(checked.code, 0, "{checked:?}");

    // What has changed can be seen, and accepted.
    let diff = scene.place.stepgate(["tools", "diff", "varying.look"], "");
    for sign in ["- ", "+ "] {
        let line = format!("{sign}/description: \"a tool of the tests (");
        assert!(diff.stdout.contains(&line), "{diff:?}");
    }
    assert_eq!(scene.place.stepgate(["tools", "accept", "varying.look"], "").code, 0);
    assert_eq!(look(&gateway, "varying.look"), 200);
    let diff = scene.place.stepgate(["tools", "diff", "varying.look"], "");
    assert!(diff.stdout.contains("is as it was accepted"), "{diff:?}");
    drop(gateway);
    assert_eq!(scene.place.stepgate(["verify"], "").code, 0);
}

#[test]
fn a_server_that_was_away_at_the_start_serves_when_it_comes() {
    let scene = Scene::new();
    let mut gateway = Gateway::start(&scene.place);
    assert_eq!(look(&gateway, "away.look"), 403);
    scene.bring();
    gateway.until_it_says("the tool server `away` is up");
    // Its tools are accepted on their first use, and the policies about them are loaded.
    until("the tool", || look(&gateway, "away.look") == 200);
    drop(gateway);
    assert_eq!(scene.place.stepgate(["verify"], "").code, 0);
}

#[test]
fn the_gateway_listens_without_a_server_that_does_not_answer_which_comes_up_later() {
    let wait = ("STEPGATE_SERVE_SERVERS_WAIT_MS", "3000".into());
    let scene = Scene::at(Place::with(vec![wait]));
    let silent = scene.state.path().join("silent");
    let go = scene.state.path().join("go");
    let wait = format!("while [ ! -e '{}' ]; do sleep 0.02; done", go.display());
    fs::write(&silent, format!("#!/bin/sh\n{wait}\nexec {} \"$@\"\n", python())).unwrap();
    fs::set_permissions(&silent, PermissionsExt::from_mode(0o755)).unwrap();
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace(scene.away().to_str().unwrap(), silent.to_str().unwrap());
    fs::write(&config, text).unwrap();
    let begin = Instant::now();
    let mut gateway = Gateway::start(&scene.place);
    // The start of a server may take 30 s.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    gateway.until_it_says("the tool server `away` is off: it is still starting");
    let ready = gateway.send("GET", "/readyz", &gateway.operator, "").json();
    assert!(parts(&ready).contains(&"away".to_owned()), "{ready}");
    assert_eq!((look(&gateway, "good.look"), look(&gateway, "away.look")), (200, 403));
    fs::write(&go, "").unwrap();
    gateway.until_it_says("the tool server `away` is up");
    until("the tool", || look(&gateway, "away.look") == 200);
    drop(gateway);
    assert_eq!(scene.place.stepgate(["verify"], "").code, 0);
}

#[test]
fn a_command_without_a_gateway_says_what_is_off_only_where_its_own_tool_is() {
    let scene = Scene::new();
    for (args, told) in [
        (&["run", "good.look"][..], false),
        (&["run", "READ_FILE", "path=/sandbox/a.txt"], false),
        (&["runs"], false),
        (&["approvals"], false),
        (&["run", "broken.look"], false),
        (&["run", "broken.bad"], true),
        (&["run", "away.look"], true),
    ] {
        let output = scene.place.stepgate(args, "");
        assert_eq!(output.stderr.contains("tool servers:"), told, "{args:?}: {output:?}");
    }
    let run = scene.place.stepgate(["run", "away.look"], "");
    assert_eq!(run.stderr.matches("tool servers:").count(), 1, "{run:?}");
}

#[test]
fn a_new_tool_of_a_known_server_is_denied_and_told_until_accepted() {
    let scene = Scene::new();
    drop(Gateway::start(&scene.place));
    scene.configure(&["--tool", "exfiltrate"]);
    let mut gateway = Gateway::start(&scene.place);
    gateway.until_it_says("the tool `good.exfiltrate` is new");
    assert_eq!(look(&gateway, "good.look"), 200);
    assert_eq!(look(&gateway, "good.exfiltrate"), 403);
    for args in [["tools"], ["doctor"]] {
        let output = scene.place.stepgate(args, "");
        assert!(output.stdout.contains("`good.exfiltrate` is new"), "{output:?}");
    }
    let accepted = scene.place.stepgate(["tools", "accept", "good.exfiltrate"], "");
    assert_eq!(accepted.code, 0, "{accepted:?}");
    until("the policies", || look(&gateway, "good.exfiltrate") == 200);
    drop(gateway);
    // It stays accepted, and by whom is written down.
    let gateway = Gateway::start(&scene.place);
    assert_eq!(look(&gateway, "good.exfiltrate"), 200);
    drop(gateway);
    assert_eq!(scene.place.stepgate(["verify"], "").code, 0);
}

#[test]
fn a_new_tool_that_the_policies_do_not_fit_stops_no_start() {
    let scene = Scene::new();
    let far = r#"@id("far") forbid (principal, action in Action::"read_only", resource)
        when { context.args has region && context.args.region > 5 };"#;
    fs::write(scene.place.path().join("policies/all.cedar"), format!("{POLICIES}{far}")).unwrap();
    drop(Gateway::start(&scene.place));
    // Its region is a text.
    scene.configure(&["--header-of", "exfiltrate"]);
    let mut gateway = Gateway::start(&scene.place);
    gateway.until_it_says("the tool `good.exfiltrate` is new");
    assert_eq!(look(&gateway, "good.look"), 200);
    assert_eq!(look(&gateway, "good.exfiltrate"), 403);
    // Accepted, it would leave the policies without a meaning: they stay as they are.
    assert_eq!(scene.place.stepgate(["tools", "accept", "good.exfiltrate"], "").code, 0);
    gateway.until_it_says("policies not reloaded");
    assert_eq!(look(&gateway, "good.look"), 200);
}

#[test]
fn a_line_break_in_the_name_of_a_tool_makes_no_line_of_its_own() {
    let scene = Scene::new();
    scene.configure(&["--tool", "x\nok     forged"]);
    let is_forged = |text: &str| text.lines().any(|line| line.starts_with("ok     forged"));
    for args in [["tools"], ["doctor"]] {
        let output = scene.place.stepgate(args, "");
        assert!(output.stdout.contains("x<U+000A>ok     forged"), "{output:?}");
        assert!(!is_forged(&output.stdout) && !is_forged(&output.stderr), "{output:?}");
    }
    let gateway = Gateway::start(&scene.place);
    let listed = scene.place.stepgate(["tools"], "");
    assert!(listed.stdout.contains("forged") && !is_forged(&listed.stdout), "{listed:?}");
    gateway.signal(rustix::process::Signal::TERM);
    let (_, log) = gateway.end();
    assert!(log.contains("x<U+000A>ok     forged") && !is_forged(&log), "{log}");
}
