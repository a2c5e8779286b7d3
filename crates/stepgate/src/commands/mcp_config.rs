//! `stepgate mcp config`: the configuration with which a client connects to this gate.
//!
//! Never prints a token: clients that use HTTP read it from the environment or ask for it. Clients that start a program
//! need none, because a user who can start it in the data directory acts as the directory's agent.

use std::path::{self, Path, PathBuf};

use anyhow::bail;
use serde_json::{Value, json};

use crate::cli::McpClient as Client;
use crate::data_dir::DataDir;
use crate::show;

/// The name of this server in a client's configuration.
const SERVER: &str = "stepgate";

/// The environment variable from which clients read the token.
const TOKEN_VARIABLE: &str = "STEPGATE_TOKEN";

/// Prints the configuration to standard output, and what to do with it to standard error.
pub(super) fn config(data: &DataDir, client: Client, stdio: bool) -> anyhow::Result<()> {
    let way = if client.speaks_http() && !stdio { over_http(data)? } else { as_program(data)? };
    let snippet = client.snippet(&way);
    snippet.advice.into_iter().for_each(show::note);
    show::plain(snippet.text)
}

/// For the gateway at `--url`, or the one of this data directory.
fn over_http(data: &DataDir) -> anyhow::Result<Way> {
    let in_file =
        |file: &Path| anyhow::Ok(format!("the content of `{}`", path::absolute(file)?.display()));
    let (url, token) = match (&data.global.url, &data.global.token_file) {
        (Some(url), Some(file)) => (url.clone(), in_file(file)?),
        (Some(url), None) => {
            (url.clone(), "a token of that gateway with the role `agent`".to_owned())
        }
        (None, file) => {
            let own = data.root().join("agent.token");
            let token = in_file(file.as_deref().unwrap_or(&own))?;
            (data.load_config()?.serve.configured_url()?.to_string(), token)
        }
    };
    Ok(Way::Http { url, token })
}

fn as_program(data: &DataDir) -> anyhow::Result<Way> {
    let rooted = |path: &Path| anyhow::Ok(path::absolute(path)?.to_string_lossy().into_owned());
    let mut args = match (&data.global.url, &data.global.token_file) {
        (Some(url), Some(file)) => {
            vec!["--url".to_owned(), url.clone(), "--token-file".to_owned(), rooted(file)?]
        }
        (Some(_), None) => bail!(
            "a program that a client starts finds the token in a file alone: name it with --token-file"
        ),
        (None, _) => vec!["--data".to_owned(), rooted(data.root())?],
    };
    if let (None, Some(file)) = (&data.global.url, &data.global.config) {
        args.extend(["--config".to_owned(), rooted(file)?]);
    }
    args.push("mcp".to_owned());
    Ok(Way::Stdio { program: std::env::current_exe()?, args })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Http {
        /// The gateway's address, such as `http://127.0.0.1:7420`.
        url: String,
        /// Where the token is, in words for a person.
        token: String,
    },
    Stdio {
        program: PathBuf,
        /// Its arguments, with absolute paths: a client starts programs in any directory.
        args: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Snippet {
    text: String,
    /// What a person does with it, line by line.
    advice: Vec<String>,
}

impl Client {
    fn speaks_http(self) -> bool {
        match self {
            Self::ClaudeDesktop => false,
            Self::ClaudeCode | Self::Cursor | Self::Vscode | Self::Codex => true,
        }
    }

    fn snippet(self, way: &Way) -> Snippet {
        let text = match self {
            Self::Codex => codex(way),
            Self::Vscode => pretty(&vscode(way)),
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => pretty(&self.servers(way)),
        };
        let mut advice = vec![format!("write this into {}", self.file())];
        if let (Way::Http { token, .. }, Some(where_to)) = (way, self.where_token_goes()) {
            advice.push(format!("{where_to} {token}"));
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

    /// The format that most clients share.
    fn servers(self, way: &Way) -> Value {
        let server = match way {
            Way::Stdio { program, args } => stdio(program, args),
            // Cursor recognises the transport by the URL.
            Way::Http { url, .. } if self == Self::Cursor => json!({
                "url": endpoint(url),
                "headers": authorization(&format!("${{env:{TOKEN_VARIABLE}}}")),
            }),
            Way::Http { url, .. } => http(url, &format!("${{{TOKEN_VARIABLE}}}")),
        };
        json!({ "mcpServers": { SERVER: server } })
    }
}

/// Visual Studio Code keeps secrets out of the file: it asks once and stores the answer.
fn vscode(way: &Way) -> Value {
    match way {
        Way::Stdio { program, args } => {
            let mut server = stdio(program, args);
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

/// Codex reads TOML, and takes a token only from the environment.
fn codex(way: &Way) -> String {
    let lines = match way {
        Way::Stdio { program, args } => {
            let args: Vec<_> = args.iter().map(|argument| toml_text(argument)).collect();
            vec![
                format!("command = {}", toml_text(&program.to_string_lossy())),
                format!("args = [{}]", args.join(", ")),
            ]
        }
        Way::Http { url, .. } => vec![
            format!("url = {}", toml_text(&endpoint(url))),
            format!("bearer_token_env_var = {}", toml_text(TOKEN_VARIABLE)),
        ],
    };
    format!("[mcp_servers.{SERVER}]\n{}", lines.join("\n"))
}

fn stdio(program: &Path, args: &[String]) -> Value {
    json!({ "command": program.to_string_lossy(), "args": args })
}

fn http(url: &str, token: &str) -> Value {
    json!({ "type": "http", "url": endpoint(url), "headers": authorization(token) })
}

fn authorization(token: &str) -> Value {
    json!({ "Authorization": format!("Bearer {token}") })
}

fn endpoint(url: &str) -> String {
    format!("{}/mcp", url.trim_end_matches('/'))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

/// A TOML string. Every JSON string is also a valid basic string of TOML.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
