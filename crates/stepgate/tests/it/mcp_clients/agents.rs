//! Agents as people use them, with a model of the tests: what their model is told of a call is the words, and
//! not only the JSON. Claude Code and Codex are the programs of their makers; Pydantic AI is the library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Scene;
use crate::binary::finish;
use crate::docs::read;
use crate::docs::readme::blocks;
use crate::http_client::Gateway;
use crate::mcp_scene::{fixture, installed, place_with};
use crate::scene::{python, until};

/// Whose model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    ClaudeCode,
    Codex,
    PydanticAi,
}

const AGENTS: [Agent; 3] = [Agent::ClaudeCode, Agent::Codex, Agent::PydanticAi];

/// A model that calls this tool once. It is killed when it goes out of sight.
struct Model {
    child: Child,
    state: TempDir,
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Model {
    fn calling(tool: &str, arguments: &Value) -> Self {
        let state = TempDir::new().unwrap();
        let mut command = Command::new(python());
        command.env_clear().arg(fixture("agent_models.py")).arg(state.path()).arg(tool);
        let child = command.arg(arguments.to_string()).stdin(Stdio::null()).spawn().unwrap();
        let model = Self { child, state };
        until("the model listens", || model.state.path().join("address").exists());
        model
    }

    fn address(&self) -> String {
        fs::read_to_string(self.state.path().join("address")).unwrap()
    }

    /// What it was told of the call.
    fn told(&self) -> String {
        let told = fs::read_to_string(self.state.path().join("told")).unwrap_or_default();
        let told: Vec<Value> =
            told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // A text within a text keeps its quotes; only the words matter here.
        told.iter().map(Value::to_string).collect::<String>()
    }
}

/// The program of this name, wherever the package has it for this machine.
fn program(package: &str, name: &str) -> PathBuf {
    fn find(folder: &Path, name: &str, depth: usize) -> Option<PathBuf> {
        let entries: Vec<_> =
            fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
        let is_program = |path: &&PathBuf| path.ends_with(name) && path.is_file();
        let found = entries.iter().find(is_program).cloned();
        found.or_else(|| {
            entries.iter().filter(|_| depth > 0).find_map(|path| find(path, name, depth - 1))
        })
    }
    let folder = installed().join("agents/node_modules").join(package);
    find(&folder, name, 4).unwrap_or_else(|| panic!("there is no {name} in {}", folder.display()))
}

/// A program with nothing of our environment, that reaches this machine alone: everything else would go
/// through a proxy that is not there.
fn confined(program: impl AsRef<Path>, home: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env(name, "http://127.0.0.1:9");
    }
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    command
}

/// What the agent's model is told when it calls this tool.
fn told(agent: Agent, gateway: &Gateway, tool: &str, arguments: &Value) -> String {
    let home = TempDir::new().unwrap();
    let url = format!("{}/mcp", gateway.url());
    match agent {
        Agent::ClaudeCode => {
            let model = Model::calling(tool, arguments);
            let servers = json!({ "mcpServers": { "stepgate": {
                "type": "http",
                "url": url,
                "headers": { "Authorization": format!("Bearer {}", gateway.agent) },
            } } });
            fs::write(home.path().join("mcp.json"), servers.to_string()).unwrap();
            let mut claude = confined(program("@anthropic-ai", "claude"), home.path());
            claude.env("ANTHROPIC_BASE_URL", model.address()).env("ANTHROPIC_API_KEY", "test");
            for name in [
                "DISABLE_AUTOUPDATER",
                "DISABLE_TELEMETRY",
                "DISABLE_ERROR_REPORTING",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            ] {
                claude.env(name, "1");
            }
            // Its tools are in the first request, and not found by a search.
            claude.env("ENABLE_TOOL_SEARCH", "false");
            claude.args([
                "-p",
                "call the tool",
                "--model",
                "claude-test",
                "--mcp-config",
                "mcp.json",
            ]);
            claude.args(["--strict-mcp-config", "--allowedTools", "mcp__stepgate"]);
            let output = finish(&mut claude, b"");
            assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
            model.told()
        }
        Agent::Codex => {
            let model = Model::calling(tool, arguments);
            let config = format!(
                "model = \"gpt-test\"\nmodel_provider = \"test\"\napproval_policy = \"never\"\n\
                 sandbox_mode = \"danger-full-access\"\ncheck_for_update_on_startup = false\n\
                 [model_providers.test]\nname = \"test\"\nbase_url = \"{}/v1\"\nenv_key = \"TEST_KEY\"\n\
                 wire_api = \"responses\"\nrequest_max_retries = 0\nstream_max_retries = 0\n\
                 supports_websockets = false\n\
                 [mcp_servers.stepgate]\nurl = \"{url}\"\nbearer_token_env_var = \"STEPGATE_AGENT_TOKEN\"\n\
                 tool_timeout_sec = 120\n[analytics]\nenabled = false\n",
                model.address()
            );
            fs::write(home.path().join("config.toml"), config).unwrap();
            let mut codex = confined(program("@openai", "codex"), home.path());
            codex.env("CODEX_HOME", home.path()).env("TEST_KEY", "test");
            codex.env("STEPGATE_AGENT_TOKEN", &gateway.agent);
            codex.args(["exec", "--skip-git-repo-check", "--json", "call the tool"]);
            let output = finish(&mut codex, b"");
            assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
            model.told()
        }
        Agent::PydanticAi => {
            let python = installed().join("python-pydantic/bin/python3");
            let mut library = confined(python, home.path());
            library.arg(fixture("pydantic_ai_client.py")).args([&url, &gateway.agent, tool]);
            let output = finish(library.arg(arguments.to_string()), b"");
            assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
            output.stdout
        }
    }
}

#[test]
fn the_model_of_an_agent_is_told_the_words_of_a_refusal_a_denial_and_a_notice() {
    let scene = Scene::waiting(100);
    let gateway = scene.serve();
    let rows: [(&str, Value, &[&str]); 4] = [
        (
            "fixture__act",
            json!({ "value": 101 }),
            &["value is greater than the maximum of 100", "correct the arguments and call again"],
        ),
        ("fixture__act", json!({ "value": 99 }), &["Do not try again"]),
        ("fixture__crash", json!({}), &["UPSTREAM_ERROR", "It may have been done all the same"]),
        ("fixture__act", json!({ "value": 30 }), &["make the same call again later"]),
    ];
    for agent in AGENTS {
        for (tool, arguments, words) in &rows {
            let told = told(agent, &gateway, tool, arguments);
            for word in *words {
                assert!(told.contains(word), "{agent:?} {tool} {arguments}: {told:?}");
            }
        }
    }
    assert_eq!(scene.effects(), 0);
    drop(gateway);
    scene.verified();
}

/// The notice of a tool without an output schema is no error, and clients show structured content instead of
/// the text where there is some.
#[test]
fn the_model_of_an_agent_is_told_the_words_of_a_notice_also_where_the_tool_promises_no_form() {
    let scene = Scene::waiting(100);
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(", \"--output-schema\"", "")).unwrap();
    let gateway = scene.serve();
    for agent in AGENTS {
        let told = told(agent, &gateway, "fixture__act", &json!({ "value": 30 }));
        assert!(told.contains("make the same call again later"), "{agent:?}: {told:?}");
    }
    assert_eq!(scene.effects(), 0);
}

/// Codex declares that it opens pages, and declines each one: it waits all the same.
#[test]
fn codex_declines_the_page_and_still_gets_the_result_when_a_person_approves() {
    let scene = Scene::new();
    let gateway = scene.serve();
    let told = std::thread::scope(|scope| {
        let (gateway, arguments) = (&gateway, json!({ "value": 20 }));
        let agent = scope.spawn(move || told(Agent::Codex, gateway, "fixture__act", &arguments));
        scene.approve();
        agent.join().unwrap()
    });
    assert!(told.contains("value") && told.contains("20"), "{told:?}");
    assert_eq!(scene.effects(), 1);
}

/// As it stands there, but for the model.
#[test]
fn the_program_on_the_page_of_pydantic_ai_acts_through_the_gate_and_its_model_is_told_a_refusal() {
    // Offered, and denied.
    let policies = r#"@id("most") permit (principal, action in Action::"core", resource)
        unless { action == Action::"DELETE_FILE" };"#;
    let place = place_with("", policies);
    let gateway = Gateway::start(&place);
    let home = TempDir::new().unwrap();
    let program = home.path().join("agent.py");
    let page = read("docs/clients/pydantic-ai.md");
    fs::write(&program, blocks(&page, "python").concat()).unwrap();
    let python = installed().join("python-pydantic/bin/python3");
    let mut library = confined(python, home.path());
    library.env("STEPGATE_URL", gateway.url()).env("STEPGATE_TOKEN", &gateway.agent);
    let output = finish(library.arg(fixture("pydantic_ai_page.py")).arg(&program), b"");
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let told: Vec<String> = serde_json::from_str(output.stdout.trim()).unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[1].contains("POLICY_VIOLATION") && told[1].contains("Do not try again"),
        "{told:?}"
    );
    assert_eq!(fs::read_to_string(place.path().join("sandbox/note.txt")).unwrap(), "hello");
    let shown = place.stepgate(["--json", "runs", "show", "last"], "").stdout;
    assert!(shown.contains("Write a note that says hello."), "{shown}");
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}
