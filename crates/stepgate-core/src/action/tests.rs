use serde_json::{Value, json};

use super::{Action, CORE_SERVER, CoreCall, Touch};
use crate::call::Call;
use crate::journal::artifact::{Resource, RiskLevel, ToolClass};
use crate::path::{COMPONENT_BYTES_MAX, COMPONENTS_MAX, PATH_BYTES_MAX, SandboxPath};

fn call(action: &str, args: Value) -> Result<CoreCall, String> {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    let action = Action::parse(action).expect("a registered action");
    action.call(&args).map_err(|invalid| invalid.to_string())
}

fn accepted(action: &str, args: Value, expected: CoreCall) {
    assert_eq!(call(action, args), Ok(expected));
}

fn refused(action: &str, args: Value, expected: &str) {
    assert_eq!(call(action, args.clone()), Err(expected.to_owned()), "{action} {args}");
}

fn file(text: &str) -> SandboxPath {
    SandboxPath::file(text).unwrap()
}

fn directory(text: &str) -> SandboxPath {
    SandboxPath::directory(text).unwrap()
}

/// Every action with arguments that keep its contract.
fn valid() -> [(&'static str, Value); 8] {
    [
        ("THINK", json!({})),
        ("FINISH", json!({"response": "done"})),
        ("READ_FILE", json!({"path": "/sandbox/a.txt"})),
        ("LIST_FILES", json!({"path": "/sandbox/"})),
        ("WRITE_FILE", json!({"path": "/sandbox/a.txt", "content": "x"})),
        ("CREATE_DIRECTORY", json!({"path": "/sandbox/d"})),
        ("DELETE_FILE", json!({"path": "/sandbox/a.txt"})),
        ("RENAME_FILE", json!({"source": "/sandbox/a.txt", "destination": "/sandbox/b.txt"})),
    ]
}

#[test]
fn every_action_takes_its_arguments() {
    accepted("THINK", json!({}), CoreCall::Think);
    let response = String::new();
    accepted("FINISH", json!({"response": ""}), CoreCall::Finish { response });
    let path = file("/sandbox/a.txt");
    accepted(
        "READ_FILE",
        json!({"path": "/sandbox/a.txt"}),
        CoreCall::ReadFile { path: path.clone() },
    );
    accepted(
        "DELETE_FILE",
        json!({"path": "/sandbox/a.txt"}),
        CoreCall::DeleteFile { path: path.clone() },
    );
    accepted(
        "WRITE_FILE",
        json!({"path": "/sandbox/a.txt", "content": "é\u{0}"}),
        CoreCall::WriteFile { path: path.clone(), content: "é\u{0}".into() },
    );
    accepted(
        "RENAME_FILE",
        json!({"destination": "/sandbox/d/b", "source": "/sandbox/a.txt"}),
        CoreCall::RenameFile { source: path, destination: file("/sandbox/d/b") },
    );
    for text in ["/sandbox/", "/sandbox/d", "/sandbox/d/"] {
        let path = directory(text);
        accepted("LIST_FILES", json!({"path": text}), CoreCall::ListFiles { path });
    }
    for text in ["/sandbox/d", "/sandbox/d/", "/sandbox/d/e/f"] {
        let path = directory(text);
        accepted("CREATE_DIRECTORY", json!({"path": text}), CoreCall::CreateDirectory { path });
    }
}

#[test]
fn an_argument_that_is_missing_is_refused_by_name() {
    for (action, args) in valid() {
        let Value::Object(args) = args else { unreachable!() };
        for name in args.keys() {
            let mut fewer = args.clone();
            fewer.remove(name);
            refused(action, Value::Object(fewer), &format!("{name}: missing"));
        }
    }
}

#[test]
fn an_argument_that_is_not_a_string_is_refused_by_name() {
    for (action, args) in valid() {
        let Value::Object(args) = args else { unreachable!() };
        for name in args.keys() {
            for wrong in [json!(null), json!(true), json!(1), json!(["/sandbox/a"]), json!({})] {
                let mut other = args.clone();
                other.insert(name.clone(), wrong);
                refused(action, Value::Object(other), &format!("{name}: not a string"));
            }
        }
    }
}

#[test]
fn an_argument_that_the_contract_does_not_name_is_refused() {
    for (action, args) in valid() {
        for name in ["extra", "Path", "path ", "recursive", "", "reasoning", "__proto__"] {
            let Value::Object(mut more) = args.clone() else { unreachable!() };
            more.insert(name.into(), Value::Null);
            refused(action, Value::Object(more), &format!("{name}: unknown argument"));
        }
    }
    refused("THINK", json!({"path": "/sandbox/a"}), "path: unknown argument");
    refused(
        "READ_FILE",
        json!({"path": "/sandbox/a", "content": "x"}),
        "content: unknown argument",
    );
}

#[test]
fn a_long_name_of_an_argument_is_repeated_only_in_part() {
    let name = "é".repeat(100_000);
    let why = call("THINK", json!({ name: 1 })).unwrap_err();
    assert!(why.len() <= 64 * 2 + ": unknown argument".len(), "{}", why.len());
}

#[test]
fn every_path_of_every_action_keeps_every_rule() {
    let too_long = format!("/sandbox/{}", "n/".repeat(PATH_BYTES_MAX));
    let wide = format!("/sandbox/{}", "n".repeat(COMPONENT_BYTES_MAX + 1));
    let deep = format!("/sandbox/{}n", "n/".repeat(COMPONENTS_MAX));
    let broken = [
        ("", "must start with /sandbox/"),
        ("a.txt", "must start with /sandbox/"),
        ("/tmp/a.txt", "must start with /sandbox/"),
        ("/sandbox", "must start with /sandbox/"),
        ("/sandbox/../a", "a component that is . or .."),
        ("/sandbox/./a", "a component that is . or .."),
        ("/sandbox//a", "an empty component"),
        ("/sandbox/a\0", "a control character"),
        ("/sandbox/a\nb", "a control character"),
        (too_long.as_str(), "longer than 4096 bytes"),
        (wide.as_str(), "a component longer than 255 bytes"),
        (deep.as_str(), "deeper than 64 components"),
    ];
    let file_only = [("/sandbox/a/", "a trailing slash"), ("/sandbox/", "the sandbox itself")];
    for (action, args) in valid() {
        let Value::Object(args) = args else { unreachable!() };
        let takes_files = !matches!(action, "LIST_FILES" | "CREATE_DIRECTORY");
        for name in ["path", "source", "destination"] {
            if !args.contains_key(name) {
                continue;
            }
            let more = if takes_files { &file_only[..] } else { &[] };
            for (text, rule) in broken.iter().chain(more) {
                let mut other = args.clone();
                other.insert(name.into(), json!(text));
                refused(action, Value::Object(other), &format!("{name}: {rule}"));
            }
        }
    }
    refused("CREATE_DIRECTORY", json!({"path": "/sandbox/"}), "path: the sandbox itself");
}

#[test]
fn paths_at_the_limits_are_accepted() {
    let wide = format!("/sandbox/{}", "n".repeat(COMPONENT_BYTES_MAX));
    let deep = format!("/sandbox/{}n", "n/".repeat(COMPONENTS_MAX - 1));
    let mut long = format!("/sandbox/{}", format!("{}/", "n".repeat(250)).repeat(16));
    long.push_str(&"n".repeat(PATH_BYTES_MAX - long.len()));
    for text in [&wide, &deep, &long] {
        let path = file(text);
        accepted("READ_FILE", json!({ "path": text }), CoreCall::ReadFile { path });
    }
}

#[test]
fn content_has_at_least_one_character() {
    let write = |content: &str| json!({"path": "/sandbox/a.txt", "content": content});
    refused("WRITE_FILE", write(""), "content: empty");
    for content in ["x", "\u{0}", " ", "é", "two"] {
        let path = file("/sandbox/a.txt");
        let expected = CoreCall::WriteFile { path, content: content.into() };
        accepted("WRITE_FILE", write(content), expected);
    }
}

#[test]
fn names_are_exact_and_nothing_is_folded() {
    for action in Action::ALL {
        assert_eq!(Action::parse(action.name()), Some(action));
        assert_eq!(Action::parse(&action.name().to_lowercase()), None);
        assert_eq!(Action::parse(&format!(" {}", action.name())), None);
    }
    for name in [
        "",
        "CURL",
        "NETWORK_CONNECT",
        "EXECUTE_CODE",
        "run_command",
        "spawn_process",
        "RUN_COMMAND",
        "READ_FILE\0",
        "ＲEAD_FILE",
        "core.READ_FILE",
    ] {
        assert_eq!(Action::parse(name), None, "{name}");
    }
    assert_eq!(CORE_SERVER, "core");
}

#[test]
fn what_a_call_touches_follows_from_its_action() {
    use {RiskLevel as Risk, ToolClass as Class};
    let rows = [
        (Touch::Nothing, Risk::Read, Class::Read, 0, 0),
        (Touch::Nothing, Risk::Read, Class::Read, 0, 0),
        (Touch::Reads, Risk::Read, Class::Read, 1, 1),
        (Touch::Reads, Risk::Read, Class::Read, 1, 0),
        (Touch::Writes, Risk::Write, Class::Write, 1, 1),
        (Touch::Writes, Risk::Write, Class::Write, 1, 0),
        (Touch::Writes, Risk::Write, Class::Write, 1, 1),
        (Touch::Writes, Risk::Write, Class::Write, 2, 2),
    ];
    for ((name, args), row) in valid().into_iter().zip(rows) {
        let call = call(name, args).unwrap();
        assert_eq!(call.action().name(), name);
        let found = (
            call.touch(),
            Call::Core(call.clone()).risk_level(),
            Call::Core(call.clone()).tool_class(),
            call.paths().len(),
            call.file_paths().len(),
        );
        assert_eq!(found, row, "{name}");
        let resources: Vec<_> = call.resources();
        let paths = call
            .paths()
            .into_iter()
            .map(|path| Resource { id: path.to_string(), kind: "path".into() });
        assert_eq!(resources, paths.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn every_action_has_an_intent_of_its_own() {
    for (at, action) in Action::ALL.into_iter().enumerate() {
        assert!(!action.intent().is_empty());
        let same = |other: &Action| other.intent() == action.intent();
        assert_eq!(Action::ALL.iter().position(same), Some(at));
    }
}
