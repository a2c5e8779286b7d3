//! The pages of the clients, held to what `stepgate mcp config` prints.

use super::read;
use super::readme::blocks;
use crate::binary::finish;

/// What the command on a page prints, with the program where the pages have it.
fn printed(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().skip(1).collect();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stepgate"));
    let output = finish(command.env_clear().env("HOME", "/nonexistent").args(words), b"");
    assert_eq!(output.code, 0, "{line}: {}", output.stderr);
    output.stdout.replace(env!("CARGO_BIN_EXE_stepgate"), "/usr/local/bin/stepgate")
}

#[test]
fn every_clients_page_shows_what_the_command_on_it_prints() {
    let rows = [
        ("claude-code", "json", 2),
        ("claude-desktop", "json", 2),
        ("cursor", "json", 2),
        ("vscode", "json", 2),
        ("codex", "toml", 2),
    ];
    for (client, language, count) in rows {
        let page = read(format!("docs/clients/{client}.md"));
        let commands: Vec<_> = blocks(&page, "sh")
            .into_iter()
            .filter(|block| block.contains(&format!("mcp config --client {client}")))
            .collect();
        let shown = blocks(&page, language);
        assert_eq!((commands.len(), shown.len()), (count, count), "{client}");
        for (line, shown) in commands.iter().zip(shown) {
            assert_eq!(printed(line), shown, "docs/clients/{client}.md: {line}");
        }
    }
}
