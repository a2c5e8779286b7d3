//! The programs of `examples/python-sdk` and `examples/typescript-sdk`, as their pages tell to run them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::driver::Sdk;
use super::{Scene, meta, value_of};
use crate::binary::{Output, finish};
use crate::docs::root;
use crate::http_client::Gateway;
use crate::mcp_scene::{installed, node22, python_with_sdk};
use crate::scene::{kill, until};

/// An example, with what its page tells to install.
struct Example {
    sdk: Sdk,
    folder: TempDir,
}

impl Example {
    fn new(sdk: Sdk) -> Self {
        let (name, files) = match sdk {
            Sdk::Python => ("python-sdk", ["call.py", "tasks.py", "requirements.txt"]),
            Sdk::TypeScript => ("typescript-sdk", ["call.ts", "tasks.ts", "package.json"]),
        };
        let folder = TempDir::new().unwrap();
        for file in files {
            let from = root().join("examples").join(name).join(file);
            fs::copy(from, folder.path().join(file)).unwrap();
        }
        let packages = installed().join("clients/node_modules");
        symlink(packages, folder.path().join("node_modules")).unwrap();
        Self { sdk, folder }
    }

    fn command(&self, gateway: &Gateway, args: &[&str]) -> Command {
        let mut command = match self.sdk {
            Sdk::Python => python_with_sdk(self.folder.path().join("call.py")),
            Sdk::TypeScript => node22(self.folder.path().join("call.ts")),
        };
        command.env("STEPGATE_URL", gateway.url()).env("STEPGATE_TOKEN", &gateway.agent);
        command.args(args);
        command
    }

    fn run(&self, gateway: &Gateway, args: &[&str]) -> Output {
        finish(&mut self.command(gateway, args), b"")
    }

    /// Started, and left alone.
    fn start(&self, gateway: &Gateway, args: &[&str]) -> Child {
        let mut command = self.command(gateway, args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn result_of(mut child: Child) -> Value {
    let (mut said, mut told) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    child.wait().unwrap();
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}{told}"))
}

const BOTH: [Sdk; 2] = [Sdk::Python, Sdk::TypeScript];

#[test]
fn the_examples_do_what_their_pages_say() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for sdk in BOTH {
        let example = Example::new(sdk);
        let listed = example.run(&gateway, &[]);
        assert!(listed.stdout.contains("fixture__act\t"), "{}{}", listed.stdout, listed.stderr);
        let note = json!({"path": "/sandbox/hello.txt", "content": "hi"}).to_string();
        let written = example.run(&gateway, &["WRITE_FILE", &note]);
        assert_eq!(written.code, 0, "{sdk:?}: {}{}", written.stdout, written.stderr);
        let read = example.run(&gateway, &["READ_FILE", r#"{"path": "/sandbox/hello.txt"}"#]);
        let result: Value = serde_json::from_str(&read.stdout).unwrap();
        assert_eq!(result["structuredContent"], json!({"content": "hi"}), "{sdk:?}");
        let run = scene.stepgate(&["runs", "export", meta(&result, "run-id")]).stdout;
        assert!(run.contains("the example was tried"), "{sdk:?}: {run}");
        let refused = example.run(&gateway, &["fixture__act", r#"{"value": 99}"#]);
        assert_eq!(refused.code, 1, "{sdk:?}: {}{}", refused.stdout, refused.stderr);
        assert!(refused.stdout.contains("POLICY_VIOLATION"), "{sdk:?}: {}", refused.stdout);
        let unknown = example.run(&gateway, &["fixture__nothing"]);
        assert_ne!(unknown.code, 0, "{sdk:?}");
        assert!(unknown.stderr.contains("there is no tool"), "{sdk:?}: {}", unknown.stderr);
    }
    drop(gateway);
    scene.verified();
}

#[test]
fn the_examples_wait_for_a_person_as_a_call_as_a_notice_and_as_a_task() {
    // Too short for anybody: the notice comes, and the example asks again.
    let scene = Scene::waiting(100);
    let gateway = scene.serve();
    let mut effects = 0;
    for sdk in BOTH {
        for tasks in [&[][..], &["--tasks"]] {
            let example = Example::new(sdk);
            let call = [tasks, &["fixture__act", r#"{"value": 20}"#]].concat();
            let child = example.start(&gateway, &call);
            scene.approve();
            let result = result_of(child);
            assert_eq!(value_of(&result), 20, "{sdk:?} {tasks:?}: {result}");
            effects += 1;
            assert_eq!(scene.effects(), effects, "{sdk:?} {tasks:?}");
        }
    }
    drop(gateway);
    scene.verified();
}

#[test]
fn the_examples_come_through_a_kill_of_the_gateway_with_one_effect() {
    for sdk in BOTH {
        let scene = Scene::new();
        fs::write(scene.file("hold-after"), "").unwrap();
        let gateway = scene.serve();
        let example = Example::new(sdk);
        let child = example.start(&gateway, &["fixture__act", r#"{"value": 5}"#]);
        until("the tool has acted", || scene.file("hold-after.reached").exists());
        let address = gateway.address.to_string();
        kill(gateway);
        fs::remove_file(scene.file("hold-after")).unwrap();
        let gateway = Gateway::start_at(&scene.place, &address, &["--quiet"]);
        let result = result_of(child);
        assert_eq!(value_of(&result), 5, "{sdk:?}: {result}");
        assert_eq!(scene.effects(), 1, "{sdk:?}");
        drop(gateway);
        scene.verified();
    }
}
