//! What real servers offer directly and through Stepgate is the same, schema by schema, and so are the
//! results of calls. Both are asked by the same small client over standard input and output, with the
//! same words.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::binary::Place;
use crate::mcp_scene::{installed, loopback_only, place_with};

const POLICIES: &str = r#"permit (principal, action in Action::"draft", resource);"#;

/// A real server: its name at the gate, its program and arguments, its variables.
struct Server {
    name: &'static str,
    program: String,
    args: Vec<String>,
    variables: BTreeMap<&'static str, String>,
}

impl Server {
    fn node(name: &'static str, program: &str, args: &[&str]) -> Self {
        let mut server = Self::new(name, &format!("node/node_modules/.bin/{program}"), args);
        server.variables.insert("NODE_OPTIONS", loopback_only());
        server
    }

    fn new(name: &'static str, program: &str, args: &[&str]) -> Self {
        Self {
            name,
            program: installed().join(program).to_str().unwrap().to_owned(),
            args: args.iter().map(|&argument| argument.to_owned()).collect(),
            variables: BTreeMap::new(),
        }
    }

    fn with(mut self, name: &'static str, value: &Path) -> Self {
        self.variables.insert(name, value.to_str().unwrap().to_owned());
        self
    }

    fn directly(&self) -> Client {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(&self.variables);
        Client::start(command)
    }

    /// Its table in the gate's configuration.
    fn table(&self) -> String {
        let variables: Vec<_> =
            self.variables.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
        format!(
            "[servers.{}]\ncommand = {:?}\nargs = {:?}\nenv = {{ {} }}\n\
             mode = \"draft\"\nin_doubt = \"redispatch\"\n",
            self.name,
            self.program,
            self.args,
            variables.join(", "),
        )
    }
}

/// The six servers, with their state in this directory. The files are the same ones for everybody, and
/// what is remembered is each one's own.
fn servers(files: &Path, state: &Path) -> [Server; 6] {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    fs::create_dir_all(state).unwrap();
    [
        Server::node("files", "mcp-server-filesystem", &[&text(files)]),
        Server::node("memory", "mcp-server-memory", &[])
            .with("MEMORY_FILE_PATH", &state.join("memory.jsonl")),
        Server::node("everything", "mcp-server-everything", &["stdio"]),
        Server::new("git", "python/bin/mcp-server-git", &["--repository", &text(files)]),
        Server::new("time", "python/bin/mcp-server-time", &["--local-timezone", "UTC"]),
        Server::new(
            "sqlite",
            "python-mcp1/bin/mcp-server-sqlite",
            &["--db-path", &text(&state.join("notes.db"))],
        ),
    ]
}

/// A client of whatever speaks MCP over its standard input and output.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, stdin, stdout, last: 0 };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        client.ask("initialize", hello);
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn through_stepgate(place: &Place) -> Self {
        let mut command = place.command(["mcp"]);
        Self::start({
            command.env("PATH", std::env::var_os("PATH").unwrap());
            command
        })
    }

    fn send(&mut self, message: Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "{method}: it is gone");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn tools(&mut self) -> Vec<Value> {
        let mut tools = Vec::new();
        let mut params = json!({});
        loop {
            let page = self.ask("tools/list", params);
            tools.extend(page["tools"].as_array().unwrap().clone());
            match &page["nextCursor"] {
                Value::Null => return tools,
                cursor => params = json!({"cursor": cursor}),
            }
        }
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a tool is to whoever reads a list of them. Its annotations are the configuration's to say.
fn face(tool: &Value) -> Value {
    json!({
        "title": tool["title"],
        "description": tool["description"],
        "inputSchema": tool["inputSchema"],
        "outputSchema": tool["outputSchema"],
    })
}

/// What a result is to whoever called. That nothing failed may be said or left out, and a number is the
/// same however it is written.
fn outcome(result: &Value) -> Value {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(plain).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
            }
            Value::Number(number) => json!(number.as_f64()),
            Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
        }
    }
    json!({
        "content": plain(&result["content"]),
        "structuredContent": result["structuredContent"],
        "isError": result["isError"] == true,
    })
}

/// The name at the gate, in the letters that model APIs take.
fn name_at_gate(server: &str, tool: &str) -> String {
    format!("{server}__{tool}")
}

fn work() -> tempfile::TempDir {
    let work = tempfile::TempDir::new().unwrap();
    fs::write(work.path().join("note.txt"), "one\ntwo\n").unwrap();
    fs::create_dir(work.path().join("folder")).unwrap();
    for args in [
        &["init", "--quiet"][..],
        &["add", "note.txt"],
        &["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "first"],
    ] {
        let git = Command::new("git").arg("-C").arg(work.path()).args(args).status().unwrap();
        assert!(git.success());
    }
    fs::write(work.path().join("note.txt"), "one\nthree\n").unwrap();
    work
}

/// Calls in an order in which each server's state grows the same way on both sides.
fn calls(work: &Path) -> Vec<(&'static str, &'static str, Value)> {
    let note = work.join("note.txt");
    let entity = json!({"name": "gate", "entityType": "thing", "observations": ["it stands"]});
    let relation = json!({"from": "gate", "to": "gate", "relationType": "is"});
    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let no_zone = json!({"timezone": "Nowhere/At_All"});
    vec![
        ("files", "read_text_file", json!({"path": note})),
        ("files", "read_text_file", json!({"path": note, "head": 1})),
        ("files", "read_text_file", json!({"path": "/etc/hostname"})),
        ("files", "read_text_file", json!({"path": work.join("nothing.txt")})),
        ("files", "list_directory", json!({"path": work})),
        ("files", "list_directory_with_sizes", json!({"path": work.join("folder")})),
        ("files", "directory_tree", json!({"path": work.join("folder")})),
        ("files", "search_files", json!({"path": work, "pattern": "*.txt"})),
        ("files", "list_allowed_directories", json!({})),
        ("files", "write_file", json!({"path": work.join("new.txt"), "content": "written\n"})),
        ("memory", "create_entities", json!({"entities": [entity]})),
        ("memory", "create_relations", json!({"relations": [relation]})),
        ("memory", "search_nodes", json!({"query": "gate"})),
        ("memory", "open_nodes", json!({"names": ["nothing"]})),
        ("memory", "read_graph", json!({})),
        ("everything", "echo", json!({"message": "hello"})),
        ("everything", "get-sum", json!({"a": 2, "b": 3.5})),
        ("everything", "get-tiny-image", json!({})),
        ("everything", "get-structured-content", json!({"location": "New York"})),
        (
            "everything",
            "get-annotated-message",
            json!({"messageType": "error", "includeImage": true}),
        ),
        ("everything", "get-resource-links", json!({"count": 2})),
        ("git", "git_status", json!({"repo_path": work})),
        ("git", "git_diff_unstaged", json!({"repo_path": work})),
        ("git", "git_log", json!({"repo_path": work, "max_count": 1})),
        ("git", "git_show", json!({"repo_path": work, "revision": "nothing"})),
        ("time", "convert_time", noon),
        ("time", "get_current_time", no_zone),
        ("sqlite", "create_table", json!({"query": "CREATE TABLE notes (id INTEGER, text TEXT)"})),
        (
            "sqlite",
            "write_query",
            json!({"query": "INSERT INTO notes VALUES (1, 'ünï'), (2, NULL)"}),
        ),
        ("sqlite", "read_query", json!({"query": "SELECT * FROM notes ORDER BY id"})),
        ("sqlite", "list_tables", json!({})),
        ("sqlite", "describe_table", json!({"table_name": "notes"})),
        ("sqlite", "read_query", json!({"query": "DROP TABLE notes"})),
    ]
}

#[test]
fn six_real_servers_are_the_same_directly_and_through_stepgate() {
    let work = work();
    let states = tempfile::TempDir::new().unwrap();
    let direct = servers(work.path(), &states.path().join("direct"));
    let gated = servers(work.path(), &states.path().join("gated"));
    let config: String = gated.iter().map(Server::table).collect();
    let place = place_with(&config, POLICIES);
    let mut gate = Client::through_stepgate(&place);
    let offered: BTreeMap<String, Value> = gate
        .tools()
        .into_iter()
        .map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool))
        .collect();
    let mut clients = BTreeMap::new();
    let mut names = Vec::new();
    for server in &direct {
        let mut client = server.directly();
        let tools = client.tools();
        assert!(!tools.is_empty(), "{}", server.name);
        for tool in tools {
            let name = name_at_gate(server.name, tool["name"].as_str().unwrap());
            let same = offered.get(&name).unwrap_or_else(|| panic!("{name} is not offered"));
            assert_eq!(face(same), face(&tool), "{name}");
            names.push(name);
        }
        clients.insert(server.name, client);
    }
    names.sort();
    // Nothing is offered that no server has; policy permits no core action here.
    assert_eq!(names, offered.into_keys().collect::<Vec<_>>());
    for (server, tool, arguments) in calls(work.path()) {
        let directly = clients.get_mut(server).unwrap().call(tool, &arguments);
        let through = gate.call(&name_at_gate(server, tool), &arguments);
        assert_eq!(outcome(&through), outcome(&directly), "{server} {tool} {arguments}");
    }
    drop(gate);
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    println!(
        "{} tools and {} calls of 6 servers are the same",
        names.len(),
        calls(work.path()).len()
    );
}
