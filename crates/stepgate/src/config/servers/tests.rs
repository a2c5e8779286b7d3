use std::time::Duration;

use stepgate_core::tool::Mode;
use stepgate_exec::servers::{DeliverySpec, Pinning, ServerSpec, Transport};

use super::{line_of, specs};
use crate::config::{Beside, Config, ranges};

fn read(text: &str) -> anyhow::Result<Vec<ServerSpec>> {
    read_on(text, Some("first"))
}

fn read_on(text: &str, node_id: Option<&str>) -> anyhow::Result<Vec<ServerSpec>> {
    let config = Config { servers: toml::from_str(text)?, ..Config::default() };
    ranges::check(&config)?;
    let servers = config.servers;
    let environment = |name: &str| (name == "TOKEN").then(|| "s3".to_owned());
    let beside = Beside { base: "/etc".as_ref(), environment: &environment };
    specs(&servers, beside, &["/data".into()], node_id)
}

#[test]
fn a_process_of_one_node_is_another_executor_than_the_same_on_the_next() {
    let text =
        "[a]\ncommand = \"a\"\n[b]\ncommand = \"b\"\nshared = true\n[c]\nurl = \"http://x\"\n";
    for (node_id, expected) in [(Some("first"), ["a@first", "b", "c"]), (None, ["a", "b", "c"])] {
        let servers = read_on(text, node_id).unwrap();
        let named: Vec<_> = servers.iter().map(|server| server.executor_id.as_str()).collect();
        assert_eq!(named, expected);
    }
}

#[test]
fn a_server_is_read_with_its_tools() {
    let servers = read(
        "[sonos]\ncommand = \"sonosd\"\nargs = [\"-v\"]\nmode = \"execute_gated\"\nhonours_key = true\n\
         secret_env = { TOKEN = { env = \"TOKEN\" } }\n\
         [sonos.tools.get_volume]\nmode = \"read_only\"\ntimeout_ms = 500\n",
    );
    let [sonos] = &*servers.unwrap() else { panic!("not one server") };
    assert_eq!((sonos.name.as_str(), sonos.tool.mode), ("sonos", Some(Mode::ExecuteGated)));
    assert_eq!(sonos.tool.delivery, Some(DeliverySpec::HonoursKey));
    let looks = &sonos.tools["get_volume"];
    assert_eq!(
        (looks.mode, looks.timeout),
        (Some(Mode::ReadOnly), Some(Duration::from_millis(500)))
    );
    let Transport::Stdio { command, args, env, .. } = &sonos.transport else {
        panic!("no process")
    };
    assert_eq!((command.as_str(), args.as_slice()), ("sonosd", ["-v".to_owned()].as_slice()));
    assert_eq!(format!("{env:?}"), "{\"TOKEN\": Secret(…)}");
}

#[test]
fn what_contradicts_itself_is_refused_with_its_place() {
    let rows = [
        ("[core]\ncommand = \"a\"\n", "not `core`"),
        ("[\"a.b\"]\ncommand = \"a\"\n", "a server's name"),
        ("[a]\n", "name the `command`"),
        ("[a]\ncommand = \"a\"\nurl = \"http://x\"\n", "name one"),
        ("[a]\nurl = \"http://x\"\nargs = [\"a\"]\n", "for servers with a `command`"),
        ("[a]\nurl = \"http://x\"\nshared = true\n", "for servers with a `command`"),
        ("[a]\ncommand = \"a\"\nheaders = { a = \"b\" }\n", "for servers with a `url`"),
        ("[a]\ncommand = \"a\"\nmode = \"yolo\"\n", "unknown variant `yolo`"),
        ("[a]\ncommand = \"a\"\nmoed = \"draft\"\n", "unknown field `moed`"),
        ("[a]\ncommand = \"a\"\ntimeout_ms = 0\n", "timeout_ms is 0"),
        ("[a]\ncommand = \"a\"\nconcurrency = 0\n", "concurrency is 0"),
        ("[a]\ncommand = \"a\"\nin_doubt = \"query\"\n", "needs `status_tool`"),
        ("[a]\ncommand = \"a\"\nin_doubt = \"ask\"\nstatus_tool = \"b\"\n", "`status_tool` is for"),
        ("[a]\ncommand = \"a\"\nin_doubt = \"ask\"\nhonours_key = true\n", "name one of the two"),
        ("[a]\ncommand = \"a\"\nsecret_env = { A = {} }\n", "name `env` or `file`"),
        ("[a]\ncommand = \"a\"\npin = \"nothing\"\n", "unknown variant `nothing`"),
        ("[a]\ncommand = \"a\"\noutput_bytes_max = 67108865\n", "output_bytes_max is 67108865"),
    ];
    for (text, expected) in rows {
        let error = format!("{:#}", read(text).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_server_is_found_by_its_line() {
    let text = "[limits]\n\n[servers.a]\ncommand = \"x\"\n[servers.\"b\"]\n[servers.b.tools.c]\n";
    assert_eq!(
        [line_of(text, "a"), line_of(text, "b"), line_of(text, "c")],
        [Some(3), Some(5), None]
    );
}

#[test]
fn a_secret_that_is_not_there_turns_its_server_off_and_stops_nothing() {
    let rows = ["{ env = \"NOT_SET\" }", "{ file = \"/nowhere\" }"];
    for secret in rows {
        let text = format!("[a]\ncommand = \"a\"\nsecret_env = {{ A = {secret} }}\n");
        assert_eq!(read(&text).unwrap().len(), 1, "{secret}");
    }
}

#[test]
fn a_server_that_is_off_is_checked_and_not_started() {
    let text = "[a]\ncommand = \"a\"\nmode = \"off\"\n[b]\ncommand = \"b\"\nmode = \"read_only\"\n\
                [b.tools.c]\nmode = \"off\"\n";
    let servers = read(text).unwrap();
    let [b] = &*servers else { panic!("not one server") };
    assert_eq!(b.name, "b");
    assert_eq!((b.tools["c"].mode, b.tools["c"].is_off), (None, true));
    assert!(read("[a]\nmode = \"off\"\n").is_err());
}

#[test]
fn a_message_is_never_too_long_for_the_longest_result() {
    for (said, output) in
        [("", 10 << 20), ("output_bytes_max = 1\n", 1), ("output_bytes_max = 67108864\n", 64 << 20)]
    {
        let servers = read(&format!("[a]\ncommand = \"a\"\n{said}")).unwrap();
        let limits = &servers[0].limits;
        assert_eq!(limits.output_bytes_max, output);
        assert!(limits.message_bytes_max > output && limits.message_bytes_max >= 4 << 20);
    }
}

#[test]
fn what_is_pinned_is_the_definition_unless_names_and_types_are_enough() {
    let rows = [
        ("", Pinning::Definition),
        ("pin = \"definition\"\n", Pinning::Definition),
        ("pin = \"names-and-types\"\n", Pinning::NamesAndTypes),
    ];
    for (said, pin) in rows {
        let servers = read(&format!("[a]\ncommand = \"a\"\n{said}")).unwrap();
        assert_eq!(servers[0].pin, pin, "{said}");
    }
}
