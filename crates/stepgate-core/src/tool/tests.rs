use super::*;

#[test]
fn a_name_is_split_at_the_first_dot() {
    for (text, server, tool) in [
        ("sonos.set_volume", "sonos", "set_volume"),
        ("calendar.google.get_agenda", "calendar", "google.get_agenda"),
        ("a-1.x/y", "a-1", "x/y"),
    ] {
        let name = ToolName::parse(text).unwrap();
        assert_eq!((name.server(), name.tool(), name.as_str()), (server, tool, text));
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let long = format!("a.{}", "b".repeat(ToolName::BYTES_MAX));
    let rows =
        ["READ_FILE", "", ".", "a.", ".b", "core.READ_FILE", "A.b", "a.b c", "a.ü", "a.b\n", &long];
    for text in rows {
        assert!(ToolName::parse(text).is_err(), "{text}");
    }
    assert!(ToolName::parse(&long[..ToolName::BYTES_MAX]).is_ok());
}

#[test]
fn no_server_can_offer_to_start_processes() {
    for tool in ["run_command", "RUN_COMMAND", "Spawn_Process"] {
        assert!(ToolName::of("shell", tool).is_err(), "{tool}");
    }
}

#[test]
fn a_redacted_argument_is_written_as_its_digest() {
    let name = ToolName::parse("vault.store").unwrap();
    let tool = Tool { redacted: vec!["secret".into()], ..Tool::gone(name) };
    let args = serde_json::json!({ "secret": "s3", "label": "x" });
    let written = Value::Object(tool.redact(args.as_object().unwrap()));
    let digest = Digest::of("s3");
    assert_eq!(written, serde_json::json!({ "secret": { "sha256": digest }, "label": "x" }));
}
