//! The examples in `policies/examples`: each loads against the tools that it is for, its cases hold, and no rule is
//! there that its cases do not need.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::binary::{Output, Place};
use crate::docs::root;
use crate::http_client::Gateway;
use crate::mcp_scene::{fixture, installed};
use crate::scene::python;

const EXAMPLES: [&str; 5] = ["browsing", "code", "flow", "mail", "payments"];

/// An example as a user has it: its own files, with the programs that it names found in `PATH`.
struct Example {
    directory: PathBuf,
    place: Place,
    /// The project that the servers for files and code work in.
    project: TempDir,
    _programs: TempDir,
}

impl Example {
    fn new(name: &str) -> Self {
        let directory = root().join("policies/examples").join(name).canonicalize().unwrap();
        let (programs, project) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let init =
            Command::new("git").args(["init", "--quiet"]).arg(project.path()).status().unwrap();
        assert!(init.success());
        install(&directory, programs.path(), project.path());
        let mut path = programs.path().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        // A copy: a secret is written beside it.
        let copy = programs.path().join("example");
        copied(&directory, &copy);
        fs::write(copy.join("bank.token"), "secret").unwrap();
        let config: OsString = copy.join("stepgate.toml").into();
        let place = Place::with(vec![("STEPGATE_CONFIG", config), ("PATH", path)]);
        Self { directory: copy, place, project, _programs: programs }
    }

    fn stepgate(&self, args: &[&str]) -> Output {
        self.place.stepgate(args, "")
    }

    /// What `policy check` says of a directory.
    fn checked(&self, directory: &Path) -> Value {
        let output = self.stepgate(&["policy", "check", directory.to_str().unwrap(), "--json"]);
        serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// What is worse than a note.
    fn findings(&self, directory: &Path) -> Vec<Value> {
        let checked = self.checked(directory);
        let findings = checked["findings"].as_array().unwrap().clone();
        findings.into_iter().filter(|finding| finding["severity"] != "note").collect()
    }
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copied(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Makes the programs that the configuration starts: real servers where the tests have them, and else one that lists the
/// tools of `tools.json`.
fn install(example: &Path, programs: &Path, project: &Path) {
    let config: toml::Table =
        toml::from_str(&fs::read_to_string(example.join("stepgate.toml")).unwrap()).unwrap();
    let tools: Value = fs::read(example.join("tools.json"))
        .map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap());
    let servers = installed();
    let mut branches = String::new();
    let mut commands = Vec::new();
    for (name, server) in config["servers"].as_table().unwrap() {
        let command = server["command"].as_str().unwrap();
        let args = server.get("args").and_then(toml::Value::as_array).into_iter().flatten();
        let line: Vec<&str> =
            [command].into_iter().chain(args.map(|it| it.as_str().unwrap())).collect();
        let line = line.join(" ");
        let started = if line.contains("server-filesystem") {
            let program = servers.join("node/node_modules/.bin/mcp-server-filesystem");
            format!("{} {}", program.display(), project.display())
        } else if line.contains("mcp-server-git") {
            let program = servers.join("python/bin/mcp-server-git");
            format!("{} --repository {}", program.display(), project.display())
        } else {
            let list = programs.join(format!("{name}.json"));
            assert!(tools[name].is_array(), "tools.json has no tools of `{name}`");
            fs::write(&list, tools[name].to_string()).unwrap();
            format!("{} {} {}", python(), fixture("listed_tools.py").display(), list.display())
        };
        branches.push_str(&format!("'{line}') exec {started};;\n"));
        commands.push(command.to_owned());
    }
    for command in commands {
        let program = programs.join(&command);
        let script =
            format!("#!/bin/sh\nset -- {command} \"$@\"\ncase \"$*\" in\n{branches}esac\nexit 1\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn every_example_is_tried() {
    let entries = fs::read_dir(root().join("policies/examples")).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, EXAMPLES);
}

#[test]
fn the_general_rules_are_used_with_the_rules_of_a_first_start_for_the_sandbox() {
    let here = root().join("policies/examples/flow/policies/10-core.cedar");
    let there = root().join("policies/10-core.cedar");
    assert_eq!(fs::read_to_string(here).unwrap(), fs::read_to_string(there).unwrap());
}

#[test]
fn every_example_loads_against_its_tools_without_an_error_or_a_needless_warning() {
    for name in EXAMPLES {
        let example = Example::new(name);
        let policies = example.directory.join("policies");
        let checked = example.checked(&policies);
        let mut findings = example.findings(&policies);
        if name == "flow" {
            // It has a tool of which the configuration says nothing, on purpose.
            let undeclared = findings.pop().unwrap()["message"].to_string();
            assert!(undeclared.contains("not declared: `other.act`"), "{undeclared}");
        }
        assert_eq!(findings, Vec::<Value>::new(), "{name}");
        let count = |what: &str| checked[what].as_u64().unwrap();
        assert!(count("cases") > count("policies"), "{name}: {checked}");
        // Nothing that its configuration names is off: the declarations fit the tools.
        let tools = example.stepgate(&["tools"]);
        assert!(!tools.stdout.contains("off  "), "{name}: {}", tools.stdout);
        assert!(!tools.stdout.contains("unusable"), "{name}: {}", tools.stdout);
    }
}

/// The rules of a text, each with the comments above it.
fn rules(text: &str) -> Vec<&str> {
    let starts: Vec<usize> = text.match_indices("\n@id(").map(|(at, _)| at + 1).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect()
}

/// The rule without its conditions, if it has any.
fn unconditional(rule: &str) -> Option<String> {
    let start = ["\nwhen", "\nunless"].iter().filter_map(|word| rule.find(word)).min()?;
    let end = rule[start..].find("};").unwrap() + start;
    Some(format!("{};{}", &rule[..start], &rule[end + 2..]))
}

/// Changes each rule of a file in turn, and returns how many there are.
fn shown_both_ways(example: &Example, file: &Path) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let all = rules(&text);
    for rule in &all {
        let id = rule.split('"').nth(1).unwrap();
        // A plain permit may have a condition beside a rule that asks: what neither has thought of is then denied.
        let is_plain = !rule.contains("@approval") && !rule.contains("forbid");
        let unconditional = unconditional(rule).filter(|_| !is_plain);
        for changed in [Some(String::new()), unconditional].into_iter().flatten() {
            fs::write(file, text.replacen(rule, &changed, 1)).unwrap();
            let findings = example.findings(file.parent().unwrap());
            let is_case = |it: &Value| it["message"].as_str().unwrap().contains("the case `");
            assert!(findings.iter().any(is_case), "no case needs {id}: {changed}");
        }
    }
    fs::write(file, &text).unwrap();
    all.len()
}

/// Without a rule a case fails, and without its conditions, too: the cases show where it holds and where it does not.
#[test]
fn the_cases_of_every_example_show_each_rule_both_ways() {
    for name in EXAMPLES {
        let example = Example::new(name);
        let gateway = Gateway::start(&example.place);
        let policies = example.directory.join("policies");
        let cedar = fs::read_dir(&policies).unwrap().map(|entry| entry.unwrap().path());
        let cedar: Vec<PathBuf> =
            cedar.filter(|path| path.extension().is_some_and(|it| it == "cedar")).collect();
        let count: usize = cedar.iter().map(|file| shown_both_ways(&example, file)).sum();
        assert!(count >= 7, "{name}: {count}");
        drop(gateway);
    }
}

#[test]
fn the_example_for_code_works_with_the_real_servers() {
    let example = Example::new("code");
    let file = |name: &str| format!("path={}", example.project.path().join(name).display());
    fs::write(example.project.path().join(".env"), "KEY=1").unwrap();
    let write = |name: &str| [file(name), "content=x".to_owned()];
    let run = |tool: &str, args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = example.stepgate(&[&["run", tool], &args[..]].concat());
        (tool.to_owned(), output.code)
    };
    let rows = [
        run("files.write_file", &write("note.txt")),
        run("files.read_text_file", &[file("note.txt")]),
        run("git.git_status", &[format!("repo_path={}", example.project.path().display())]),
        run("files.read_text_file", &[file(".env")]),
        run("files.write_file", &write(".git/hooks/pre-commit")),
        run("files.read_multiple_files", &["paths=[]".to_owned()]),
    ];
    let codes: Vec<i32> = rows.iter().map(|(_, code)| *code).collect();
    assert_eq!(codes, [0, 0, 0, 13, 13, 11], "{rows:?}");
    assert_eq!(fs::read_to_string(example.project.path().join("note.txt")).unwrap(), "x");
}
