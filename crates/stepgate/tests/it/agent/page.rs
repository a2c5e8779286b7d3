//! The examples of docs/agent.md work as they stand there.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::chains::check;
use super::stage::{Stage, look};
use crate::binary::finish;
use crate::http_client::Gateway;
use crate::scene::Scene;

const PAGE: &str = include_str!("../../../../../docs/agent.md");

/// An id that nothing has.
const UNKNOWN: &str = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";

/// The blocks of this language, in their order.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&*fence).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

#[test]
fn every_block_of_the_page_is_held_to_what_it_shows() {
    let held: usize = ["toml", "sh", "json"].map(|language| blocks(language).len()).iter().sum();
    assert_eq!(PAGE.matches("\n```").count(), 2 * held, "a block of another language");
}

#[test]
fn the_page_s_configuration_is_taken() {
    let [agent] = blocks("toml")[..] else { panic!("one configuration") };
    let scene = Scene::new("honours_key = true");
    let file = scene.place.path().join("stepgate.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, format!("{config}\n{agent}\n")).unwrap();
    let mut command = scene.place.command(["serve", "--bind", "127.0.0.1:0"]);
    let command = command.env("OPENAI_API_KEY", "sk-secret").stderr(Stdio::piped());
    let gateway = Gateway::of(command, &scene.place.path());
    assert_eq!(look(&gateway, &json!(UNKNOWN)).status, 404, "without an agent it were 501");
}

#[test]
fn the_page_s_curl_works_when_it_is_pasted() {
    let [curl] = blocks("sh")[..] else { panic!("one command") };
    let stage = Stage::new();
    stage.model.says([json!({ "text": "none" })]);
    let gateway = stage.gateway();
    let here = TempDir::new().unwrap();
    let data = here.path().join(".local/share");
    std::fs::create_dir_all(&data).unwrap();
    symlink(stage.scene.place.path(), data.join("stepgate")).unwrap();
    let line = curl.replace("127.0.0.1:7420", &gateway.address.to_string());
    let output = finish(Command::new("sh").env("HOME", here.path()).arg("-c").arg(line), b"");
    if output.stderr.contains("curl: not found") {
        return;
    }
    let response: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    assert_eq!(response["primaryOutputText"], "none", "{output:?}");
}

#[test]
fn the_page_s_answers_are_as_the_openapi_document_says() {
    let stage = Stage::new();
    let gateway = stage.gateway();
    let document = gateway.send("GET", "/openapi.json", &gateway.agent, "").json();
    let answers = blocks("json");
    let names = ["TurnResponse", "TurnResponse", "TurnAccepted"];
    assert_eq!(answers.len(), names.len());
    for (answer, name) in answers.into_iter().zip(names) {
        // The page leaves ids out.
        let answer = answer.replace("Id\": \"…\"", &format!("Id\": \"{UNKNOWN}\""));
        check(&document, name, &serde_json::from_str(&answer).unwrap());
    }
}
