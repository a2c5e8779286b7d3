//! The wire, held against the official `openai` package of PyPI (`cargo xtask setup` installs it).

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::stage::{ModelProcess, Stage, ask, calls, hello, outcomes, write_file};

/// A Python that has the package.
fn library_python() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let python = here.ancestors().nth(3).unwrap().join("tools/ecosystem/python-openai/bin/python");
    assert!(python.exists(), "run `cargo xtask setup` once");
    python
}

/// Asks the endpoint as the package does, whole and as a stream, and prints what the package read.
const READER: &str = r#"
import json, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0, _strict_response_validation=True)
asked = dict(model="m", messages=[{"role": "user", "content": "go"}])
whole = client.chat.completions.create(**asked)
message = whole.choices[0].message
read = [[message.content, [[c.id, c.function.name, c.function.arguments] for c in message.tool_calls or []],
         whole.choices[0].finish_reason, whole.usage.completion_tokens]]
with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
    for event in stream:
        pass
    final = stream.get_final_completion()
message = final.choices[0].message
read.append([message.content, [[c.id, c.function.name, c.function.arguments] for c in message.tool_calls or []],
             final.choices[0].finish_reason, final.usage.completion_tokens])
print(json.dumps(read))
"#;

#[test]
fn the_official_library_reads_what_the_endpoint_of_these_tests_sends() {
    let model = ModelProcess::start();
    let line = json!({ "text": "look", "calls": [["c1", "f", "{\"a\":1}"], ["c2", "g", "{}"]] });
    model.says([line.clone(), line]);
    let output = Command::new(library_python())
        .args(["-c", READER, &format!("http://{}/v1", model.address)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!(["look", [["c1", "f", "{\"a\":1}"], ["c2", "g", "{}"]], "tool_calls", 7]);
    assert_eq!(read, json!([expected, expected]), "whole, and as a stream");
}

#[test]
fn what_the_official_library_writes_is_read_by_our_client_whole_and_as_a_stream() {
    for whole in [true, false] {
        let python = library_python();
        let model = ModelProcess::start_with(python.to_str().unwrap(), &["--library"]);
        let stage = Stage::with("", model);
        let mut first = calls(&[
            ("c1", "WRITE_FILE", write_file("a.txt")),
            ("c2", "LIST_FILES", json!({ "path": "/sandbox/" })),
        ]);
        first["text"] = json!("I write.");
        let mut lines = [first, json!({ "text": "done" })];
        for line in &mut lines {
            line["whole"] = json!(whole);
        }
        stage.model.says(lines);
        let gateway = stage.gateway();
        let response = ask(&gateway, "k1", &hello("write")).json();
        assert_eq!(response["primaryOutputText"], "done", "{response}");
        assert_eq!(outcomes(&response), ["SUCCESS", "SUCCESS"]);
        assert_eq!(response["usage"], json!({ "promptTokens": 22, "completionTokens": 14 }));
    }
}

/// Reads our questions with the package's own types of requests.
const JUDGE: &str = r#"
import json, sys
from pydantic import TypeAdapter
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
for line in open(sys.argv[1]):
    body = json.loads(line)["body"]
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(body["messages"])
    TypeAdapter(list[ChatCompletionToolParam]).validate_python(body["tools"])
print("ok")
"#;

#[test]
fn our_questions_are_as_the_official_library_would_ask_them() {
    let stage = Stage::new();
    stage
        .model
        .says([calls(&[("c1", "WRITE_FILE", write_file("a.txt"))]), json!({ "text": "done" })]);
    let gateway = stage.gateway();
    let image = json!({ "mimeType": "image/png", "data": "AA==" });
    let asked = json!({ "instructions": "see", "clipBoardImages": [image] });
    assert_eq!(ask(&gateway, "k1", &asked).status, 200);
    let output = Command::new(library_python())
        .args(["-c", JUDGE, stage.model.file("asked").to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stage.model.asked().len(), 2);
}
