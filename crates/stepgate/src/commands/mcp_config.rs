//! `stepgate mcp config`: what to write into a client's configuration so that it comes to this gate.
//!
//! No token is ever printed: clients that come over HTTP read it from the environment or ask for it.
//! Those that start a program need none, because whoever may start it in the data directory acts as
//! the directory's agent.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Value, json};

/// The name of this server in a client's configuration.
const SERVER: &str = "stepgate";

/// The variable that clients read the token from.
const TOKEN_VARIABLE: &str = "STEPGATE_TOKEN";

/// A client whose configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Claude Desktop; it always starts a program.
    ClaudeDesktop,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    Vscode,
    /// Codex: command line, editor and app.
    Codex,
}

/// How a client comes to the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To a gateway that serves.
    Http {
        /// The gateway's address, such as `http://127.0.0.1:7420`.
        url: String,
        /// The file with the agent's token.
        token_file: PathBuf,
    },
    /// By starting a program.
    Stdio {
        /// This program.
        program: PathBuf,
        /// The data directory, from the root: a client starts programs anywhere.
        data: PathBuf,
    },
}

/// What to write, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snippet {
    /// The configuration, to be written or merged.
    pub(crate) text: String,
    /// What a person does with it, in lines.
    pub(crate) advice: Vec<String>,
}

impl Client {
    /// Whether this client can come over HTTP with a token.
    pub(crate) fn speaks_http(self) -> bool {
        match self {
            Self::ClaudeDesktop => false,
            Self::ClaudeCode | Self::Cursor | Self::Vscode | Self::Codex => true,
        }
    }

    /// The configuration for this client.
    pub(crate) fn snippet(self, way: &Way) -> Snippet {
        let text = match self {
            Self::Codex => codex(way),
            Self::Vscode => pretty(&vscode(way)),
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => pretty(&self.servers(way)),
        };
        let mut advice = vec![format!("write this into {}", self.file())];
        if let (Way::Http { token_file, .. }, Some(where_to)) = (way, self.where_token_goes()) {
            advice.push(format!("{where_to} the content of {}", quoted(token_file)));
        }
        advice.push(self.last_step().to_owned());
        Snippet { text, advice }
    }

    fn file(self) -> &'static str {
        match self {
            Self::ClaudeCode => "`.mcp.json` in the project",
            Self::ClaudeDesktop => {
                "`claude_desktop_config.json` (Settings, Developer, Edit Config opens it)"
            }
            Self::Cursor => "`.cursor/mcp.json` in the project, or `~/.cursor/mcp.json`",
            Self::Vscode => "`.vscode/mcp.json` in the workspace",
            Self::Codex => "`~/.codex/config.toml`",
        }
    }

    fn where_token_goes(self) -> Option<String> {
        let in_environment =
            format!("before you start the client, set the variable `{TOKEN_VARIABLE}` to");
        match self {
            Self::ClaudeCode | Self::Cursor | Self::Codex => Some(in_environment),
            Self::Vscode => Some("when the editor asks for the token, give it".to_owned()),
            Self::ClaudeDesktop => None,
        }
    }

    fn last_step(self) -> &'static str {
        match self {
            Self::ClaudeCode => "start `claude` there; `/mcp` shows the connection",
            Self::ClaudeDesktop => "quit the app and start it again",
            Self::Cursor => "turn the server on under Customize",
            Self::Vscode => "start the server from the file, or with `MCP: List Servers`",
            Self::Codex => "start `codex`; `/mcp` shows the connection",
        }
    }

    /// The form that most clients share.
    fn servers(self, way: &Way) -> Value {
        let server = match way {
            Way::Stdio { program, data } => stdio(program, data),
            Way::Http { url, .. } => {
                let token = match self {
                    Self::Cursor => format!("${{env:{TOKEN_VARIABLE}}}"),
                    Self::ClaudeCode | Self::ClaudeDesktop | Self::Vscode | Self::Codex => {
                        format!("${{{TOKEN_VARIABLE}}}")
                    }
                };
                let mut server = http(url, &token);
                if self == Self::Cursor {
                    // It knows the kind by the address.
                    server.as_object_mut().map(|fields| fields.remove("type"));
                }
                server
            }
        };
        json!({ "mcpServers": { SERVER: server } })
    }
}

/// Visual Studio Code keeps secrets out of the file: it asks once, and stores the answer.
fn vscode(way: &Way) -> Value {
    match way {
        Way::Stdio { program, data } => {
            let mut server = stdio(program, data);
            if let Some(fields) = server.as_object_mut() {
                fields.insert("type".to_owned(), json!("stdio"));
            }
            json!({ "servers": { SERVER: server } })
        }
        Way::Http { url, .. } => json!({
            "inputs": [{
                "type": "promptString",
                "id": "stepgate-token",
                "description": "The agent's token of Stepgate",
                "password": true,
            }],
            "servers": { SERVER: http(url, "${input:stepgate-token}") },
        }),
    }
}

/// Codex reads TOML, and takes a token from the environment alone.
fn codex(way: &Way) -> String {
    let lines = match way {
        Way::Stdio { program, data } => {
            let args = arguments(data).map(|argument| toml_text(&argument)).join(", ");
            vec![
                format!("command = {}", toml_text(&program.to_string_lossy())),
                format!("args = [{args}]"),
            ]
        }
        Way::Http { url, .. } => vec![
            format!("url = {}", toml_text(&endpoint(url))),
            format!("bearer_token_env_var = {}", toml_text(TOKEN_VARIABLE)),
        ],
    };
    format!("[mcp_servers.{SERVER}]\n{}", lines.join("\n"))
}

fn stdio(program: &Path, data: &Path) -> Value {
    json!({ "command": program.to_string_lossy(), "args": arguments(data) })
}

fn arguments(data: &Path) -> [String; 3] {
    ["--data".to_owned(), data.to_string_lossy().into_owned(), "mcp".to_owned()]
}

fn http(url: &str, token: &str) -> Value {
    let authorization = format!("Bearer {token}");
    json!({ "type": "http", "url": endpoint(url), "headers": { "Authorization": authorization } })
}

fn endpoint(url: &str) -> String {
    format!("{}/mcp", url.trim_end_matches('/'))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

fn quoted(path: &Path) -> String {
    format!("`{}`", path.display())
}

/// As TOML writes it; a basic string of TOML takes everything that a string of JSON takes, in the same
/// form.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
