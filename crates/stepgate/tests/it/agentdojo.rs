//! Attacks of our own before the flow rules of `policies/examples/flow`: `dev/agentdojo/cases`, through the real gateway.
//! `cargo xtask agentdojo` measures AgentDojo itself, which must be installed for it.

use std::fs;
use std::process::Command;

use crate::binary::{Output, Place, finish};
use crate::docs::{read, root, rows};
use crate::scene::python;

fn cases(policies: &[&str]) -> Output {
    let directory = root().join("dev/agentdojo");
    let mut command = Command::new(python());
    command.arg(directory.join("cases.py")).args(["--binary", env!("CARGO_BIN_EXE_stepgate")]);
    for file in policies {
        command.arg("--policies").arg(directory.join(file));
    }
    finish(command.env("PYTHONDONTWRITEBYTECODE", "1"), b"")
}

/// How many calls of the cases a person must be asked about.
fn asked() -> usize {
    let count = |file: &str| read(file).matches("asks = [").count();
    count("dev/agentdojo/cases/injected.toml") + count("dev/agentdojo/cases/adaptive.toml")
}

#[test]
fn every_attack_is_decided_as_its_case_says_and_no_benign_twin_is_asked_about() {
    let output = cases(&[]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains(" 0 decisions are not as expected"), "{}", output.stdout);
}

#[test]
fn the_cases_notice_a_gate_that_asks_nobody() {
    let output = cases(&["policies/no-gate/no-gate.cedar"]);
    assert_eq!(output.code, 1, "{}{}", output.stdout, output.stderr);
    let noticed = format!(" {} decisions are not as expected", asked());
    assert!(output.stdout.contains(&noticed), "{noticed}\n{}", output.stdout);
}

#[test]
fn the_flow_rules_load_before_any_tool_is_configured() {
    let place = Place::new();
    let policies = place.path().join("policies");
    fs::create_dir_all(&policies).unwrap();
    for file in ["10-core.cedar", "examples/flow/policies/30-flow.cedar"] {
        let file = root().join("policies").join(file);
        fs::copy(&file, policies.join(file.file_name().unwrap())).unwrap();
    }
    let output = place.stepgate(["policy", "check"], "");
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
}

/// The page is made by `cargo xtask agentdojo`, which takes minutes: a case that is not measured yet shows here.
#[test]
fn the_page_has_every_attack_that_knows_the_rules() {
    let cases: toml::Table = read("dev/agentdojo/cases/adaptive.toml").parse().unwrap();
    let cases = cases["case"].as_array().unwrap();
    let named: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    let page = read("docs/agentdojo.md");
    let shown: Vec<String> = rows(&page, 5)
        .into_iter()
        .map(|row| row[0].clone())
        .filter(|name| named.contains(&name.as_str()))
        .collect();
    assert_eq!(shown, named, "run `cargo xtask agentdojo`");
}
