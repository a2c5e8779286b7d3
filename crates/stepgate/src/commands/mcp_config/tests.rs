use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::{Client, Way};

fn over_http() -> Way {
    Way::Http {
        url: "http://127.0.0.1:7420".to_owned(),
        token: "the content of `/srv/gate/agent.token`".to_owned(),
    }
}

fn as_program() -> Way {
    Way::Stdio {
        program: PathBuf::from("/usr/local/bin/stepgate"),
        args: ["--data", "/srv/a \"gate\"", "mcp"].map(str::to_owned).to_vec(),
    }
}

/// The configuration as a client parses it.
fn read(client: Client, way: &Way) -> Value {
    let text = client.snippet(way).text;
    match client {
        Client::Codex => {
            let table: toml::Table = text.parse().unwrap();
            serde_json::to_value(table).unwrap()
        }
        Client::ClaudeCode | Client::ClaudeDesktop | Client::Cursor | Client::Vscode => {
            serde_json::from_str(&text).unwrap()
        }
    }
}

#[test]
fn every_client_is_told_to_start_this_program_with_the_data_directory() {
    let args = json!(["--data", "/srv/a \"gate\"", "mcp"]);
    let started = json!({"command": "/usr/local/bin/stepgate", "args": args});
    let mut with_type = started.clone();
    with_type["type"] = json!("stdio");
    let rows = [
        (Client::ClaudeCode, json!({"mcpServers": {"stepgate": started}})),
        (Client::ClaudeDesktop, json!({"mcpServers": {"stepgate": started}})),
        (Client::Cursor, json!({"mcpServers": {"stepgate": started}})),
        (Client::Vscode, json!({"servers": {"stepgate": with_type}})),
        (Client::Codex, json!({"mcp_servers": {"stepgate": started}})),
    ];
    for (client, expected) in rows {
        assert_eq!(read(client, &as_program()), expected, "{client:?}");
    }
}

#[test]
fn over_http_every_client_sends_a_token_that_is_not_in_the_file() {
    let url = "http://127.0.0.1:7420/mcp";
    let claude = json!({"mcpServers": {"stepgate": {
        "type": "http", "url": url, "headers": {"Authorization": "Bearer ${STEPGATE_TOKEN}"},
    }}});
    let cursor = json!({"mcpServers": {"stepgate": {
        "url": url, "headers": {"Authorization": "Bearer ${env:STEPGATE_TOKEN}"},
    }}});
    let vscode = json!({
        "inputs": [{
            "type": "promptString",
            "id": "stepgate-token",
            "description": "The agent's token of Stepgate",
            "password": true,
        }],
        "servers": {"stepgate": {
            "type": "http",
            "url": url,
            "headers": {"Authorization": "Bearer ${input:stepgate-token}"},
        }},
    });
    let codex = json!({"mcp_servers": {"stepgate": {
        "url": url, "bearer_token_env_var": "STEPGATE_TOKEN",
    }}});
    let rows = [
        (Client::ClaudeCode, claude),
        (Client::Cursor, cursor),
        (Client::Vscode, vscode),
        (Client::Codex, codex),
    ];
    for (client, expected) in rows {
        assert_eq!(read(client, &over_http()), expected, "{client:?}");
        let advice = client.snippet(&over_http()).advice.join("\n");
        assert!(advice.contains("/srv/gate/agent.token"), "{client:?}: {advice}");
    }
}

#[test]
fn claude_desktop_alone_cannot_come_over_http() {
    let without: Vec<_> =
        Client::value_variants().iter().filter(|client| !client.speaks_http()).collect();
    assert_eq!(without, [&Client::ClaudeDesktop]);
}

#[test]
fn a_slash_at_the_end_of_the_address_is_not_doubled() {
    let way = Way::Http { url: "https://gate.example.com/".to_owned(), token: String::new() };
    let value = read(Client::Cursor, &way);
    assert_eq!(value["mcpServers"]["stepgate"]["url"], "https://gate.example.com/mcp");
}
