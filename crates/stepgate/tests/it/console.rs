//! The pages over a real connection: what a browser sees of a gateway, from the question to the end.

use std::fs;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent;
use crate::agent::stage::{Stage, calls};
use crate::attention::run_of_the_call;
use crate::binary::{Output, Place, finish};
use crate::gateway_tools::killed_at;
use crate::http_client::{Gateway, PATIENCE, Reply, exchange, proposal, request};
use crate::mcp_scene::{fixture, installed, node22};
use crate::scene::{Scene, until};

/// A gateway that asks a person before anything in the sandbox is touched.
fn asking() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path().join("policies")).unwrap();
    let policy = r#"@id("ask/first") @approval("it changes <b>something</b>")
        permit (principal, action in Action::"core", resource);"#;
    fs::write(place.path().join("policies/all.cedar"), policy).unwrap();
    place
}

fn form(gateway: &Gateway, path: &str, cookie: &str, body: &str) -> Reply {
    let origin = format!("http://{}", gateway.address);
    let headers = [
        ("cookie", cookie),
        ("origin", origin.as_str()),
        ("sec-fetch-site", "same-origin"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let request = request("POST", path, "", &headers, body);
    exchange(gateway.address, request.as_bytes()).unwrap()
}

pub(crate) fn page(gateway: &Gateway, path: &str, cookie: &str) -> Reply {
    let request = request("GET", path, "", &[("cookie", cookie)], "");
    exchange(gateway.address, request.as_bytes()).unwrap()
}

pub(crate) fn log_in(gateway: &Gateway, token: &str, next: &str) -> (Reply, String) {
    let reply = form(gateway, "/login", "", &format!("token={token}&next={next}"));
    let cookie = reply.headers.get("set-cookie").map(|it| it.split(';').next().unwrap().to_owned());
    (reply, cookie.unwrap_or_default())
}

fn csrf(page: &Reply) -> String {
    let (_, rest) = page.body.split_once("name=\"csrf\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// Proposes a file: the path of the approval's page, and its own address.
fn ask(gateway: &Gateway, content: &str) -> (String, String) {
    let args = json!({ "path": "/sandbox/a.txt", "content": content });
    let reply = gateway.propose(&proposal("WRITE_FILE", args));
    assert_eq!(reply.status, 202, "{}", reply.body);
    let id = reply.json()["result"]["approval_id"].as_str().unwrap().to_owned();
    let listed = gateway.send("GET", "/v1/approvals", &gateway.operator, "").json();
    let url = listed["approvals"][0]["url"].as_str().unwrap().to_owned();
    (format!("/approvals/{id}"), url)
}

#[test]
fn a_person_decides_in_a_browser_and_the_gateway_acts_once() {
    let place = asking();
    let gateway = Gateway::start(&place);
    let content = format!("<script>alert(1)</script>\u{202e}\n{}", "line\n".repeat(2000));
    let (path, url) = ask(&gateway, &content);
    assert_eq!(url, format!("{}{path}", gateway.url()));
    let outside = page(&gateway, &path, "");
    assert_eq!(
        (outside.status, &outside.headers["location"]),
        (303, &format!("/login?next={path}"))
    );
    let (reply, cookie) = log_in(&gateway, &gateway.operator, &path);
    assert_eq!((reply.status, &reply.headers["location"]), (303, &path));
    let open = page(&gateway, &path, &cookie);
    for shown in [
        "WRITE_FILE",
        "/sandbox/a.txt",
        "All 10,027 characters",
        "&#60;script&#62;alert(1)",
        "U+202E",
        "it changes &#60;b&#62;something&#60;/b&#62;",
        "ask/first",
    ] {
        assert!(open.body.contains(shown), "{shown} is not in\n{}", open.body);
    }
    assert!(!open.body.contains("<script>") && !open.body.contains('\u{202e}'));
    let body = format!("csrf={}&decision=approve&note=%3Cimg%20src%3Dx%3E", csrf(&open));
    let decided = form(&gateway, &path, &cookie, &body);
    assert_eq!((decided.status, &decided.headers["location"]), (303, &path));
    assert_eq!(form(&gateway, &path, &cookie, &body).status, 409);
    let begin = Instant::now();
    let mut over = page(&gateway, &path, &cookie);
    while over.body.contains("The call is under way.") {
        assert!(begin.elapsed() < PATIENCE, "{}", over.body);
        over = page(&gateway, &path, &cookie);
    }
    for shown in ["Approved by <b>operator</b>", "&#60;img src=x&#62;", "it succeeded"] {
        assert!(over.body.contains(shown), "{shown} is not in\n{}", over.body);
    }
    assert_eq!(fs::read_to_string(place.path().join("sandbox/a.txt")).unwrap(), content);
    drop(gateway);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

/// Plays the scenes of `browser.cjs` for these members of its argument, and returns what it printed.
pub(crate) fn in_a_browser(gateway: &Gateway, mut scene: Value) -> String {
    scene["base"] = gateway.url().into();
    scene["operator"] = gateway.operator.as_str().into();
    scene["modules"] = installed().join("browser/node_modules").to_str().into();
    let home = tempfile::TempDir::new().unwrap();
    let mut command = node22(fixture("browser.cjs"));
    command.arg(scene.to_string()).env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    let Output { code, stdout, stderr } = finish(&mut command, b"");
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    stdout
}

/// Thirteen scenes, which `browser.cjs` names one after the other.
#[test]
fn a_person_decides_and_looks_in_a_real_browser() {
    let place = Place::new();
    fs::create_dir_all(place.path().join("policies")).unwrap();
    let policy = r#"@id("ask/first") @approval("it changes <b>something</b>")
        permit (principal, action == Action::"WRITE_FILE", resource);"#;
    fs::write(place.path().join("policies/all.cedar"), policy).unwrap();
    // Nothing reads its log, and the many requests of a browser would fill the pipe.
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let token = |name: &str, role: &str| {
        let body = json!({ "name": name, "role": role }).to_string();
        let reply = gateway.send("POST", "/v1/tokens", &gateway.operator, &body);
        reply.json()["token"].as_str().unwrap().to_owned()
    };
    let scene = json!({
        "second": token("second", "operator"),
        "auditor": token("auditor", "auditor"),
        "agent": gateway.agent,
    });
    assert_eq!(in_a_browser(&gateway, scene).matches("ok: ").count(), 13);
    drop(gateway);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}

/// Text that must neither run, nor hide, nor push anything else away.
const HOSTILE: &str = "<script>window.pwned = 1</script> \"><img src=x onerror=window.pwned=1> </textarea></main> \
                       \u{202e}txt.exe\u{202c} zero\u{200b}width\u{200d} \u{feff} javascript:window.pwned=1";

#[test]
fn the_words_of_tool_servers_and_models_change_no_page() {
    let stage = Stage::new();
    drop(stage.gateway());
    let file = stage.scene.place.path().join("stepgate.toml");
    let config = fs::read_to_string(&file).unwrap();
    let long = format!("{HOSTILE}{}", "x".repeat(2000));
    let described = format!("\"--honours-key\", \"--describe\", {}", json!(long));
    fs::write(file, config.replace("\"--honours-key\"", &described)).unwrap();
    let gateway = stage.gateway();
    let args = json!({ "path": "/sandbox/a.txt", "content": long });
    stage.model.says([calls(&[("c1", "WRITE_FILE", args)]), json!({ "text": long })]);
    let turn = agent::stage::ask(&gateway, "k1", &json!({ "instructions": long })).json();
    assert_eq!(turn["primaryOutputText"], json!(long), "{turn}");
    let pages = [
        "/".to_owned(),
        "/tools".to_owned(),
        "/tools/fixture.act".to_owned(),
        format!("/turns/{}", turn["turnId"].as_str().unwrap()),
        format!("/sessions/{}", turn["sessionId"].as_str().unwrap()),
    ];
    let played = in_a_browser(&gateway, json!({ "pages": pages }));
    assert_eq!(played.matches("ok: ").count(), 1, "{played}");
}

#[test]
fn a_call_in_doubt_is_settled_on_its_page_once() {
    let scene = Scene::new("in_doubt = \"ask\"");
    killed_at(&scene, "hold-after");
    let run = run_of_the_call(&scene.place);
    let gateway = Gateway::start(&scene.place);
    let path = format!("/runs/{run}");
    let (_, cookie) = log_in(&gateway, &gateway.operator, &path);
    until("it can be settled", || page(&gateway, &path, &cookie).body.contains("Settle it"));
    let inbox = page(&gateway, "/", &cookie);
    assert!(inbox.body.contains("A call in doubt") && inbox.body.contains(&path), "{}", inbox.body);
    let shown = page(&gateway, &path, &cookie);
    let body = format!("csrf={}&settlement=succeeded", csrf(&shown));
    assert_eq!(form(&gateway, &path, &cookie, "csrf=x&settlement=succeeded").status, 403);
    assert_eq!(form(&gateway, &path, "", &body).status, 401);
    let settled = form(&gateway, &path, &cookie, &body);
    assert_eq!((settled.status, &settled.headers["location"]), (303, &path));
    let over = page(&gateway, &path, &cookie);
    assert!(
        over.body.contains("run_resolved") && !over.body.contains("Settle it"),
        "{}",
        over.body
    );
    let again = form(&gateway, &path, &cookie, &body);
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(page(&gateway, "/", &cookie).body.contains("Nothing waits for a person."));
    drop(gateway);
    scene.verified();
}

#[test]
fn a_changed_tool_is_accepted_on_its_page_as_it_was_shown() {
    let scene = Scene::new("honours_key = true");
    drop(Gateway::start(&scene.place));
    scene.configure("honours_key = true", &["--describe", "<script>another</script>"]);
    let gateway = Gateway::start(&scene.place);
    let path = "/tools/fixture.act";
    let (_, cookie) = log_in(&gateway, &gateway.operator, path);
    let shown = page(&gateway, path, &cookie);
    for text in ["What changed", "&#60;script&#62;another", "data-final"] {
        assert!(shown.body.contains(text), "{text} is not in\n{}", shown.body);
    }
    let (_, rest) = shown.body.split_once("name=\"definition_digest\" value=\"").unwrap();
    let digest = rest.split('"').next().unwrap();
    let csrf = csrf(&shown);
    let accept = |digest: &str| {
        form(&gateway, path, &cookie, &format!("csrf={csrf}&definition_digest={digest}"))
    };
    let other = "0".repeat(64);
    assert_eq!(accept(&other).status, 409);
    assert!(page(&gateway, path, &cookie).body.contains("What changed"));
    assert_eq!(accept(digest).status, 303);
    let over = page(&gateway, path, &cookie);
    assert!(over.body.contains("is the accepted one") && !over.body.contains("definition_digest"));
    drop(gateway);
    scene.verified();
}

#[test]
fn an_agent_gets_nowhere_with_what_it_has() {
    let place = asking();
    let gateway = Gateway::start(&place);
    let (path, _) = ask(&gateway, "a");
    let (reply, cookie) = log_in(&gateway, &gateway.agent, &path);
    assert_eq!((reply.status, cookie.as_str()), (403, ""));
    assert!(!reply.body.contains(&gateway.agent), "{}", reply.body);
    // Its token is none for a page, and an operator's cookie is none for the API.
    assert_eq!(gateway.send("GET", &path, &gateway.agent, "").status, 303);
    assert_eq!(gateway.send("GET", &path, &gateway.operator, "").status, 303);
    let (_, cookie) = log_in(&gateway, &gateway.operator, &path);
    let id = path.rsplit('/').next().unwrap();
    for (method, path) in [
        ("GET", "/v1/approvals".to_owned()),
        ("POST", format!("/v1/approvals/{id}/approve")),
        ("GET", "/metrics".to_owned()),
        ("GET", "/openapi.json".to_owned()),
    ] {
        let request = request(method, &path, "", &[("cookie", &cookie)], "");
        assert_eq!(exchange(gateway.address, request.as_bytes()).unwrap().status, 401, "{path}");
    }
    let open = place.stepgate(["approvals", "--json"], "").stdout;
    let open: Value = serde_json::from_str(open.lines().next().unwrap()).unwrap();
    assert_eq!((&open["status"], &open["approval_id"]), (&json!("pending"), &json!(id)));
}

#[test]
fn a_login_ends_with_the_process_and_neither_it_nor_a_token_is_ever_written() {
    let place = asking();
    let gateway = Gateway::start(&place);
    let (path, _) = ask(&gateway, "a");
    let (_, cookie) = log_in(&gateway, &gateway.operator, &path);
    let open = page(&gateway, &path, &cookie);
    let secrets = [
        gateway.operator.clone(),
        cookie.split('=').nth(1).unwrap().to_owned(),
        csrf(&open),
        "hunter2".to_owned(),
    ];
    let denied =
        form(&gateway, &path, &cookie, &format!("csrf={}&decision=deny&note=hunter2", csrf(&open)));
    assert_eq!(denied.status, 303);
    assert_eq!(page(&gateway, "/login?next=hunter2", "").status, 200);
    gateway.signal(Signal::TERM);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0));
    assert!(log.contains(&format!("POST {path} 303")) && log.contains("ms operator"), "{log}");
    assert!(log.contains("POST /login 303"), "{log}");
    for secret in &secrets {
        assert!(!log.contains(secret), "{log}");
    }
    let database = fs::read(place.database()).unwrap();
    for secret in &secrets[..3] {
        assert!(!database.windows(secret.len()).any(|part| part == secret.as_bytes()));
    }
    let gateway = Gateway::start(&place);
    assert_eq!(page(&gateway, &path, &cookie).status, 303);
}

#[test]
fn behind_a_proxy_with_tls_its_address_counts() {
    let place = asking();
    let config = "[serve]\npublic_url = \"https://gate.example.com\"\n";
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    let gateway = Gateway::start(&place);
    let (path, url) = ask(&gateway, "a");
    assert_eq!(url, format!("https://gate.example.com{path}"));
    let body = format!("token={}", gateway.operator);
    for (origin, status) in [("https://gate.example.com", 303), ("https://evil.example.com", 403)] {
        let headers = [("origin", origin), ("content-type", "application/x-www-form-urlencoded")];
        let request = request("POST", "/login", "", &headers, &body);
        let reply = exchange(gateway.address, request.as_bytes()).unwrap();
        assert_eq!(reply.status, status, "{origin}");
        let cookie = reply.headers.get("set-cookie").cloned().unwrap_or_default();
        let is_secure =
            cookie.starts_with("__Host-stepgate-login=") && cookie.ends_with("; Secure");
        assert_eq!(is_secure, status == 303, "{cookie}");
    }
}
