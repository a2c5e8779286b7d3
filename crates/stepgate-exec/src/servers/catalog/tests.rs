use serde_json::json;

use super::super::pin::{Beside, Pin};
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
        required: false,
        pin: super::super::spec::Pinning::Definition,
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
        let spec = spec(server, tool);
        let read = Catalog::default().read(&spec, &list(), &Pins::default());
        let said = match read {
            Ok(catalog) => catalog.first_unusable(&spec),
            Err(error) => Some(error),
        };
        let said = said.map(|error| error.to_string());
        assert_eq!(said.as_deref(), refused, "{server:?}, {tool:?}");
    };
    check(&[], &["auth", "pin"], None);
    check(&["key", "pin"], &[], None);
    let tool = |name: &str| {
        format!(
            "`{name}` cannot be redacted for the tool `door.open`: no such argument is in the schema; \
             correct `redacted` or `erasable`, which have names of arguments and not paths into them; it has `auth`, \
             `pin`"
        )
    };
    check(&[], &["auth.token"], Some(&tool("auth.token")));
    // Another tool has it, but this table is not for that tool.
    check(&[], &["pin", "key"], Some(&tool("key")));
    let server = "`nosuch` cannot be redacted for any tool of the server `door`: no such argument is in \
                  the schema; correct `redacted` or `erasable`, which have names of arguments and not paths into them; \
                  they have `auth`, `key`, `pin`";
    check(&["key", "nosuch"], &[], Some(server));
}

#[test]
fn where_others_are_welcome_any_name_can_be_redacted_but_no_path() {
    let welcoming = json!({ "name": "open", "inputSchema": { "additionalProperties": true } });
    let list = [welcoming];
    let unusable = |name| {
        let spec = spec(&[], &[name]);
        let catalog = Catalog::default().read(&spec, &list, &Pins::default()).unwrap();
        catalog.first_unusable(&spec)
    };
    assert_eq!(unusable("token"), None);
    assert!(unusable("auth.token").is_some());
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
    let started = Catalog::default().read(&spec, &bombed, &pins).unwrap();
    let refreshed = Catalog::default().read(&spec, &list(), &pins).unwrap();
    let refreshed = refreshed.read(&spec, &bombed, &pins).unwrap();
    for catalog in [started, refreshed] {
        let offer = |tool: &str| catalog.offer(&ToolName::of("door", tool).unwrap()).cloned();
        assert!(offer("open").is_none());
        let why = catalog.first_unusable(&spec).unwrap().to_string();
        assert!(why.contains("would judge one value more than 16384 times"), "{why}");
        let args = json!({ "key": 1 });
        assert_eq!(offer("look").unwrap().tool.contract.check(args.as_object().unwrap()), Ok(()));
    }
}

#[test]
fn a_tool_that_is_off_is_neither_offered_nor_a_trouble() {
    let mut spec = spec(&[], &[]);
    spec.tools.insert("open".to_owned(), ToolSpec { is_off: true, ..ToolSpec::default() });
    let catalog = Catalog::default().read(&spec, &list(), &Pins::default()).unwrap();
    let offered: Vec<_> = catalog.offers().map(|offer| offer.tool.name.to_string()).collect();
    assert_eq!(offered, ["door.look"]);
    assert_eq!(catalog.first_unusable(&spec), None);
}

#[test]
fn a_table_for_a_tool_that_is_not_there_turns_the_server_off_unless_the_tool_was_known() {
    let mut spec = spec(&[], &[]);
    spec.tools.insert("close".to_owned(), ToolSpec { is_off: true, ..ToolSpec::default() });
    let unknown = Catalog::default().read(&spec, &list(), &Pins::default());
    assert!(matches!(unknown.err(), Some(StartError::UnknownTool { .. })));
    let pins = Pins::default();
    let digest = stepgate_core::digest::Digest::ZERO;
    pins.pin(ToolName::of("door", "close").unwrap(), Pin::new(digest, None, Beside::default()));
    assert!(Catalog::default().read(&spec, &list(), &pins).is_ok());
}

#[test]
fn entries_that_are_no_tools_and_names_that_come_twice_are_named_and_harm_no_other() {
    let mut spec = spec(&[], &[]);
    spec.tools.clear();
    let mut list = list();
    list.push(json!({ "name": "open", "inputSchema": {} }));
    list.push(json!({ "name": "shut", "inputSchema": "none" }));
    list.push(json!(7));
    let catalog = Catalog::default().read(&spec, &list, &Pins::default()).unwrap();
    let offered: Vec<_> = catalog.offers().map(|offer| offer.tool.name.to_string()).collect();
    assert_eq!(offered, ["door.look"]);
    let unread: Vec<_> = catalog.unread.iter().map(|it| it.why.as_str()).collect();
    assert_eq!(unread, ["its inputSchema is not an object", "a tool in the list is not an object"]);
}

#[test]
fn a_call_has_sixty_seconds_unless_the_tool_or_its_server_says_otherwise() {
    let seconds = Duration::from_secs;
    let rows = [
        (None, None, seconds(60)),
        (Some(seconds(7)), None, seconds(7)),
        (Some(seconds(7)), Some(seconds(5)), seconds(5)),
    ];
    for (of_server, of_tool, expected) in rows {
        let mut spec = spec(&[], &[]);
        spec.tool.timeout = of_server;
        spec.tools.insert("open".into(), ToolSpec { timeout: of_tool, ..ToolSpec::default() });
        let catalog = Catalog::default().read(&spec, &list(), &Pins::default()).unwrap();
        let open = catalog.offer(&ToolName::of("door", "open").unwrap()).unwrap();
        assert_eq!(open.timeout, expected);
    }
}
