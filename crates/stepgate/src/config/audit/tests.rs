use super::*;
use crate::config::Config;

fn read(text: &str) -> anyhow::Result<Vec<StreamSettings>> {
    let config = Config::of_text(text, |_| None)?;
    let environment = |name: &str| (name == "HOOK").then(|| "https://siem.example/in".to_owned());
    settings(&config.audit, Beside { base: Path::new("/etc/gate"), environment: &environment })
}

fn stream(name: &str, kind: &str, more: &str) -> String {
    format!("[[audit]]\nname = {name:?}\nkind = {kind:?}\n{more}\n")
}

#[test]
fn streams_are_read_with_what_they_do_not_name() {
    let text = stream("siem", "webhook", "secret_url = { env = \"HOOK\" }\nformat = \"ocsf\"")
        + &stream("log", "syslog", "host = \"log.example\"")
        + &stream("plain", "syslog", "host = \"log.example\"\ntls = false\nbegin = \"now\"")
        + &stream("file", "file", "path = \"events.jsonl\"\nevents = [\"login_refused\"]");
    let streams = read(&text).unwrap();
    let [siem, log, plain, file] = streams.as_slice() else { panic!("{streams:?}") };
    assert_eq!((siem.format, siem.beginning), (Format::Ocsf, Beginning::Start));
    assert_eq!((log.format, plain.beginning), (Format::Json, Beginning::Now));
    let port = |stream: &StreamSettings| {
        let ReceiverSettings::Syslog { port, tls, .. } = stream.receiver else { panic!() };
        (port, tls)
    };
    assert_eq!((port(log), port(plain)), ((6514, true), (601, false)));
    let ReceiverSettings::File { path, rotate_bytes, keep } = &file.receiver else { panic!() };
    assert_eq!(path, Path::new("/etc/gate/events.jsonl"));
    assert_eq!((*rotate_bytes, *keep), (FILE_BYTES, FILES));
    assert_eq!(
        (file.events.as_slice(), siem.events.len()),
        ([EventType::LoginRefused].as_slice(), 0)
    );
}

#[test]
fn what_contradicts_itself_is_refused_with_its_place() {
    let file = |name: &str| stream(name, "file", "path = \"a\"");
    let rows = [
        (stream("A b", "file", "path = \"a\""), "`A b` is no name of a [[audit]]"),
        (file("a") + &file("a"), "two [[audit]] have the name `a`"),
        (file("a") + &file("b"), "[[audit]] `b`: another [[audit]] has its `path`"),
        (stream("a", "file", ""), "a file needs `path`"),
        (stream("a", "syslog", ""), "syslog needs `host`"),
        (stream("a", "otlp", ""), "name its `url`"),
        (stream("a", "otlp", "url = \"ftp://x\""), "`url` must begin with https:// or http://"),
        (stream("a", "file", "path = \"a\"\nurl = \"https://x\""), "`url` is not for kind `file`"),
        (
            stream("a", "file", "path = \"a\"\nrotate_bytes = 5"),
            "rotate_bytes is 5 and must be from",
        ),
        (stream("a", "file", "path = \"a\"\nevents = [\"no_such\"]"), "unknown variant `no_such`"),
        (stream("a", "udp", ""), "unknown variant `udp`"),
    ];
    for (text, expected) in rows {
        let error = format!("{:#}", read(&text).unwrap_err());
        assert!(error.contains(expected), "{error}\nfor {text}");
    }
}
