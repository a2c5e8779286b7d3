//! The tutorial's commands, run as they stand, one after the other, and what it says that they print.

use std::process::Command;

use tempfile::TempDir;

use super::read;
use crate::home::path;
use crate::terminal::at_a_terminal;

/// The fenced blocks of a page: language and text, in order.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn the_commands_of_the_tutorial_print_what_it_says() {
    let page = read("docs/policy-tutorial.md");
    let blocks = blocks(&page);
    let (_, setup) = blocks[0];
    let data = setup.lines().find(|line| line.starts_with("export STEPGATE_DATA=")).unwrap();
    let home = TempDir::new().unwrap();
    let mut run = 0;
    for (index, (language, text)) in blocks.iter().enumerate().skip(1) {
        if *language != "sh" {
            continue;
        }
        let mut shell = Command::new("sh");
        shell.env_clear().env("PATH", path()).env("HOME", home.path()).current_dir(home.path());
        shell.args(["-u", "-c", &format!("{data}\n{text}")]);
        let answers = if text.contains("policy init") { "\n\ny\n" } else { "y\ny\n" };
        let printed = at_a_terminal(&shell, answers).stdout;
        let ("text", expected) = blocks[index + 1] else {
            panic!("nothing says what this prints:\n{text}")
        };
        let mut rest = printed.as_str();
        for line in expected.lines() {
            let at = rest.find(line.trim());
            let at = at.unwrap_or_else(|| panic!("`{line}` is not in\n{rest}\nof\n{printed}"));
            rest = &rest[at + line.trim().len()..];
        }
        run += 1;
    }
    assert!(run >= 10, "{run}");
    // Two mails went out, and neither to the stranger.
    let outbox = std::fs::read_to_string(home.path().join("stepgate-outbox/sent")).unwrap();
    assert_eq!(outbox.lines().count(), 2, "{outbox}");
    assert!(!outbox.contains("evil"), "{outbox}");
}

#[test]
fn the_rule_of_the_tutorial_is_the_one_that_is_shipped() {
    let page = read("docs/policy-tutorial.md");
    let shipped = read("policies/examples/flow/policies/30-flow.cedar");
    let shown: Vec<_> =
        blocks(&page).into_iter().filter(|(language, _)| *language == "cedar").collect();
    assert_eq!(shown.len(), 1);
    assert!(shipped.contains(shown[0].1.trim()), "{}", shown[0].1);
}
