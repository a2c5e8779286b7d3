//! A gateway with a tool server, and a model that says what a test wrote down.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http_client::{Gateway, Reply, exchange, request};
use crate::scene::{Scene, python, until};

/// A model endpoint as a process of its own. It is killed when it goes out of sight.
pub(crate) struct ModelProcess {
    child: Child,
    pub(crate) state: TempDir,
    pub(crate) address: String,
}

impl ModelProcess {
    pub(crate) fn start() -> Self {
        Self::start_with(&python(), &[])
    }

    /// With a Python of its own, and these flags.
    pub(crate) fn start_with(python: &str, flags: &[&str]) -> Self {
        let state = TempDir::new().unwrap();
        let program =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/model_endpoint.py");
        let mut command = Command::new(python);
        command.arg(program).arg(state.path()).args(flags);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let file = state.path().join("address");
        until("the model listens", || file.exists());
        let address = fs::read_to_string(file).unwrap();
        Self { child, state, address }
    }

    /// Adds to what the model will say.
    pub(crate) fn says(&self, lines: impl IntoIterator<Item = Value>) {
        let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
        let file = OpenOptions::new().create(true).append(true).open(self.file("script"));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// Whether it has read a question to its end.
    pub(crate) fn has_been_asked(&self) -> bool {
        fs::read_to_string(self.file("asked")).is_ok_and(|text| text.ends_with('\n'))
    }

    /// The bodies that it was asked with. A line that is not at its end is still being written.
    pub(crate) fn asked(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.file("asked")).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The roles of the messages of the last question.
    pub(crate) fn told(&self) -> Vec<String> {
        let asked = self.asked();
        let messages = asked.last().unwrap()["body"]["messages"].as_array().unwrap().clone();
        messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for ModelProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway's directory, with a model.
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) model: ModelProcess,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with("", ModelProcess::start())
    }

    /// With more keys of `[agent]`.
    pub(crate) fn with(keys: &str, model: ModelProcess) -> Self {
        let scene = Scene::new("honours_key = true");
        let agent = format!(
            "\n[agent]\nbase_url = \"http://{}/v1\"\nmodel = \"test-model\"\n{keys}\n",
            model.address
        );
        let file = scene.place.path().join("stepgate.toml");
        let config = fs::read_to_string(&file).unwrap() + &agent;
        fs::write(file, config).unwrap();
        Self { scene, model }
    }

    pub(crate) fn gateway(&self) -> Gateway {
        Gateway::start(&self.scene.place)
    }

    /// A file of the sandbox.
    pub(crate) fn sandbox(&self, name: &str) -> PathBuf {
        self.scene.place.path().join("sandbox").join(name)
    }
}

/// Asks, as the agent.
pub(crate) fn ask(gateway: &Gateway, key: &str, body: &Value) -> Reply {
    ask_with(gateway, key, &[], body)
}

pub(crate) fn ask_with(
    gateway: &Gateway,
    key: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Reply {
    let mut all = vec![("idempotency-key", key), ("content-type", "application/json")];
    all.extend(headers);
    let text = request("POST", "/v1/agent/turns", &gateway.agent, &all, &body.to_string());
    exchange(gateway.address, text.as_bytes()).unwrap()
}

/// A turn, as the agent sees it.
pub(crate) fn look(gateway: &Gateway, turn_id: &Value) -> Reply {
    let path = format!("/v1/agent/turns/{}", turn_id.as_str().unwrap());
    gateway.send("GET", &path, &gateway.agent, "")
}

pub(crate) fn hello(text: &str) -> Value {
    json!({ "instructions": text })
}

/// A request that follows a response.
pub(crate) fn after(response: &Value, text: &str) -> Value {
    json!({
        "instructions": text,
        "sessionId": response["sessionId"],
        "turnId": response["turnId"],
    })
}

/// A line of the script that asks for calls.
pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Value {
    let calls: Vec<Value> =
        calls.iter().map(|(id, name, args)| json!([id, name, args.to_string()])).collect();
    json!({ "calls": calls })
}

pub(crate) fn write_file(name: &str) -> Value {
    json!({ "path": format!("/sandbox/{name}"), "content": "hello" })
}

/// The outcomes of the calls that the server made.
pub(crate) fn outcomes(response: &Value) -> Vec<String> {
    let results = response["toolResults"].as_array().cloned().unwrap_or_default();
    let outcome = |result: &Value| {
        let text = result["resultJson"].as_str().unwrap();
        let response: Value = serde_json::from_str(text).unwrap();
        response["outcome"].as_str().unwrap().to_owned()
    };
    results.iter().map(outcome).collect()
}

/// The codes of a refusal.
pub(crate) fn codes(reply: &Reply) -> Vec<String> {
    let errors = reply.json()["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().map(|error| error["code"].as_str().unwrap().to_owned()).collect()
}
