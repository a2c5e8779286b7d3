use serde_json::json;

use super::super::spec::{ServerLimits, Transport};
use super::*;

fn spec(server: &[&str], tool: &[&str]) -> ServerSpec {
    let redacted = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let of_tool = ToolSpec { redacted: redacted(tool), ..ToolSpec::default() };
    ServerSpec {
        name: "door".to_owned(),
        executor_id: "door".to_owned(),
        transport: Transport::Http { url: String::new(), headers: BTreeMap::new() },
        tool: ToolSpec {
            mode: Some(Mode::ReadOnly),
            redacted: redacted(server),
            ..ToolSpec::default()
        },
        tools: BTreeMap::from([("open".to_owned(), of_tool)]),
        limits: ServerLimits::default(),
        hidden: vec![],
    }
}

fn list() -> Vec<Value> {
    let auth = json!({ "type": "object", "properties": { "token": { "type": "string" } } });
    let open = json!({ "properties": { "auth": auth, "pin": { "type": "string" } } });
    let look = json!({ "properties": { "key": {} } });
    vec![
        json!({ "name": "open", "inputSchema": open }),
        json!({ "name": "look", "inputSchema": look }),
    ]
}

#[test]
fn only_an_argument_that_there_is_can_be_redacted() {
    let check = |server: &[&str], tool: &[&str], refused: Option<&str>| {
        let read = Catalog::read(&spec(server, tool), &list(), &Pins::default());
        let said = read.err().map(|error| error.to_string());
        assert_eq!(said.as_deref(), refused, "{server:?}, {tool:?}");
    };
    check(&[], &["auth", "pin"], None);
    check(&["key", "pin"], &[], None);
    let tool = |name: &str| {
        format!(
            "`{name}` cannot be redacted for the tool `door.open`: no such argument is in the schema; \
             correct `redacted`, which has names of arguments and not paths into them; it has `auth`, \
             `pin`"
        )
    };
    check(&[], &["auth.token"], Some(&tool("auth.token")));
    // Another tool has it, and this table is not that tool's.
    check(&[], &["pin", "key"], Some(&tool("key")));
    let server = "`nosuch` cannot be redacted for any tool of the server `door`: no such argument is in \
                  the schema; correct `redacted`, which has names of arguments and not paths into them; \
                  they have `auth`, `key`, `pin`";
    check(&["key", "nosuch"], &[], Some(server));
}

#[test]
fn where_others_are_welcome_any_name_can_be_redacted_but_no_path() {
    let welcoming = json!({ "name": "open", "inputSchema": { "additionalProperties": true } });
    let list = [welcoming];
    let read = |name| Catalog::read(&spec(&[], &[name]), &list, &Pins::default());
    assert!(read("token").is_ok());
    assert!(read("auth.token").is_err());
}

#[test]
fn a_tool_whose_schema_costs_too_much_is_unusable_and_its_server_is_not() {
    let defs = (0..30).map(|at| {
        let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
        (format!("d{at}"), json!({ "allOf": [next, next] }))
    });
    let mut defs: stepgate_core::json::Map<String, Value> = defs.collect();
    defs.insert("d30".to_owned(), json!({ "properties": { "a": {} } }));
    let bomb = json!({ "$ref": "#/$defs/d0", "$defs": defs });
    let bombed = [json!({ "name": "open", "inputSchema": bomb }), list().remove(1)];
    let spec = spec(&["key"], &[]);
    let pins = Pins::default();
    let started = Catalog::read(&spec, &bombed, &pins).unwrap();
    let refreshed = Catalog::read(&spec, &list(), &pins).unwrap().refreshed(&spec, &bombed, &pins);
    for catalog in [started, refreshed] {
        let said = |tool: &str, args: Value| {
            let name = ToolName::of("door", tool).unwrap();
            let args = args.as_object().unwrap().clone();
            let checked = catalog.offer(&name).unwrap().tool.contract.check(&args);
            checked.map_err(|broken| broken.to_string())
        };
        let why =
            "args: the tool cannot be used: its schema would judge one value more than 16384 times";
        assert_eq!(said("open", json!({})), Err(why.to_owned()));
        assert_eq!(said("look", json!({ "key": 1 })), Ok(()));
    }
}
