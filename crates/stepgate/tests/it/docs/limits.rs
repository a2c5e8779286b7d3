//! Every row of `docs/limits.md` against the code: a key of the configuration with its default, or a constant.

use serde_json::Value;

use super::{quoted, read, rows};

/// The rows without a key of the configuration: the row, the file that has the limit, and the names of its
/// constants (or of the fields of its defaults) in the order of the row's numbers.
const CONSTANTS: [(&str, &str, &[&str]); 77] = [
    (
        "runs and bytes of one archive",
        "stepgate-core/src/archive/select.rs",
        &["RUNS_MAX", "BYTES_MAX"],
    ),
    (
        "text of an attribute of a span or a line",
        "stepgate/src/otlp/fields.rs",
        &["TEXT_BYTES_MAX"],
    ),
    (
        "`tracestate` that is passed on",
        "stepgate-core/src/trace_context.rs",
        &["TRACESTATE_BYTES_MAX"],
    ),
    (
        "actions and tools with figures of their own in `/metrics`",
        "stepgate-gateway/src/meters.rs",
        &["LABELS_MAX"],
    ),
    ("integers in a proposal", "stepgate-core/src/json/strict.rs", &["EXACT_MAX"]),
    ("version numbers", "stepgate-core/src/step/p3_validate_schema.rs", &["VERSION_DIGITS_MAX"]),
    ("name of an action", "stepgate-core/src/limits.rs", &["ACTION_BYTES_MAX"]),
    ("calls that one grant permits", "stepgate-core/src/limits.rs", &["GRANT_USES_MAX"]),
    (
        "path, component, depth",
        "stepgate-core/src/path.rs",
        &["PATH_BYTES_MAX", "COMPONENT_BYTES_MAX", "COMPONENTS_MAX"],
    ),
    (
        "time between two looks whether they have changed",
        "stepgate-http/src/server/tls.rs",
        &["LOOK_PAUSE"],
    ),
    (
        "time for the TLS handshake of the command line with `--url https://`",
        "stepgate-gateway/src/tls.rs",
        &["HANDSHAKE_MAX"],
    ),
    (
        "addresses whose failed authentications in a minute are events of their own",
        "stepgate-http/src/failed_logins.rs",
        &["NETWORKS_MAX"],
    ),
    (
        "events, and bytes, that an audit stream sends at once",
        "stepgate-gateway/src/audit.rs",
        &["PAGE", "BATCH_BYTES_MAX"],
    ),
    (
        "bytes of one who speaks no TLS that are read after the answer",
        "stepgate-http/src/server/tls.rs",
        &["PLAIN_BYTES_MAX"],
    ),
    (
        "logins at one time",
        "stepgate-http/src/console/logins.rs",
        &["LOGINS_MAX", "LOGINS_PER_TOKEN_MAX"],
    ),
    ("form of a page", "stepgate-http/src/console/form.rs", &["FORM_BYTES_MAX"]),
    ("path that a login leads back to", "stepgate-http/src/console/destination.rs", &["BYTES_MAX"]),
    ("text on a page", "stepgate-http/src/console/text.rs", &["SHORT_CHARS", "SHORT_LINES"]),
    ("result on a page", "stepgate-http/src/console/approval/view.rs", &["RESULT_CHARS_MAX"]),
    (
        "wait of a decision on a page for the end of its step",
        "stepgate-http/src/console/approval.rs",
        &["LINGER"],
    ),
    (
        "time that an answer of an MCP session is kept for a client whose stream broke",
        "stepgate-mcp/src/sessions.rs",
        &["RESUME_MAX"],
    ),
    (
        "`_meta` of a tool that MCP clients are told",
        "stepgate-mcp/src/catalog.rs",
        &["META_BYTES_MAX"],
    ),
    (
        "instructions of a tool server that MCP clients are told, and of all servers together",
        "stepgate-mcp/src/instructions.rs",
        &["SERVER_CHARS_MAX", "SUM_CHARS_MAX"],
    ),
    ("MCP calls that are known to be lost", "stepgate-mcp/src/unanswered.rs", &["CALLS_MAX"]),
    (
        "open questions of MCP calls without a key that equal calls join",
        "stepgate-mcp/src/questions.rs",
        &["PARTS", "QUESTIONS_PER_PART_MAX"],
    ),
    (
        "detail of a refusal that the words for the model repeat",
        "stepgate-core/src/words.rs",
        &["DETAIL_CHARS_MAX"],
    ),
    ("depth of an MCP message", "stepgate-mcp/src/envelope.rs", &["DEPTH_MAX"]),
    ("line of `stepgate mcp`", "stepgate-mcp/src/bridge/lines.rs", &["LINE_BYTES_MAX"]),
    ("requests of `stepgate mcp` at one time", "stepgate-mcp/src/bridge.rs", &["REQUESTS_MAX"]),
    ("key of an MCP call", "stepgate-mcp/src/call.rs", &["KEY_BYTES_MAX"]),
    ("name of a tool over MCP", "stepgate-gateway/src/control/mcp_names.rs", &["NAME_BYTES_MAX"]),
    (
        "answer of the model on the wire; one event of a stream; its text; its calls",
        "stepgate-agent/src",
        &[
            "openai.rs:BODY_BYTES_MAX",
            "openai/stream.rs:EVENT_BYTES_MAX",
            "limits.rs:ANSWER_BYTES_MAX",
            "limits.rs:CALLS_MAX",
        ],
    ),
    (
        "id of a call, as the model gives it",
        "stepgate-agent/src/limits.rs",
        &["TOOL_CALL_ID_BYTES_MAX"],
    ),
    (
        "pause between two tries of the model",
        "stepgate-agent/src/openai.rs",
        &["BACK_OFF", "BACK_OFF_MAX"],
    ),
    (
        "tools that a request declares; a tool's name; an idempotency key",
        "stepgate-agent/src/limits.rs",
        &["CLIENT_TOOLS_MAX", "TOOL_NAME_BYTES_MAX", "CORRELATION_ID_BYTES_MAX"],
    ),
    (
        "artifacts of a request; an artifact's name",
        "stepgate-agent/src/limits.rs",
        &["ARTIFACTS_MAX", "ARTIFACT_NAME_BYTES_MAX"],
    ),
    (
        "images of a request; an image, decoded",
        "stepgate-agent/src/limits.rs",
        &["IMAGES_MAX", "IMAGE_BYTES_MAX"],
    ),
    (
        "depth of the result of a caller's tool",
        "stepgate-agent/src/limits.rs",
        &["RESULT_DEPTH_MAX"],
    ),
    ("turns under way at one time", "stepgate-gateway/src/turns.rs", &["TURNS_LIVE_MAX"]),
    (
        "silence of PostgreSQL itself, and time in the queue of writes",
        "stepgate-store/src/postgres/open.rs",
        &["answer_wait"],
    ),
    (
        "files and directories of a sandbox in a backup",
        "stepgate-exec/src/sandbox/copy.rs",
        &["COPY_ENTRIES_MAX"],
    ),
    (
        "walks through a sandbox that changes while it is copied",
        "stepgate-exec/src/sandbox/copy.rs",
        &["COPY_WALKS_MAX"],
    ),
    ("manifest of a backup", "stepgate/src/backup/manifest.rs", &["BYTES_MAX"]),
    (
        "silence of PostgreSQL during a backup",
        "stepgate-store/src/postgres/open.rs",
        &["answer_wait"],
    ),
    (
        "file with a secret for a tool server",
        "stepgate-exec/src/servers/spec.rs",
        &["SECRET_BYTES_MAX"],
    ),
    ("event that `runs --follow` reads", "stepgate-http/src/sse.rs", &["EVENT_BYTES_MAX"]),
    ("head of a request", "stepgate-http/src/server.rs", &["HEAD_BYTES_MAX", "HEADERS_MAX"]),
    (
        "body of anything but a proposal",
        "stepgate-http/src/body.rs",
        &["JSON_BYTES_MAX", "JSON_DEPTH_MAX"],
    ),
    (
        "connections over the data directory's socket at one time; how many of them agents leave free",
        "stepgate-http/src/lib.rs",
        &["LOCAL_CONNECTIONS_MAX", "LOCAL_CONNECTIONS_RESERVED"],
    ),
    (
        "time for which an answer of the file system about its free space is used",
        "stepgate-gateway/src/disk.rs",
        &["GOOD_FOR"],
    ),
    ("note of a decision", "stepgate-http/src/approvals.rs", &["NOTE_BYTES_MAX"]),
    ("note that is written in `top`", "stepgate/src/commands/top/view.rs", &["NOTE_CHARS_MAX"]),
    ("shortest beginning of an id", "stepgate-core/src/ids.rs", &["CHARS_MIN"]),
    (
        "objects that are listed for a beginning that several ids have",
        "stepgate/src/commands/find.rs",
        &["CANDIDATES_MAX"],
    ),
    ("approvals that one request decides", "stepgate-http/src/approvals.rs", &["BATCH_MAX"]),
    ("tokens that are good at one time", "stepgate-gateway/src/tokens.rs", &["TOKENS_MAX"]),
    ("how long a token with an end is good", "stepgate-gateway/src/tokens.rs", &["LIFE_S_MAX"]),
    (
        "ancestors of a process at the socket that are looked at",
        "stepgate-http/src/local.rs",
        &["ANCESTORS_MAX"],
    ),
    (
        "small write that `/readyz` tries",
        "stepgate-gateway/src/service/readiness.rs",
        &["PROBE_BYTES", "PROBE_WAIT"],
    ),
    ("runs that one check of `doctor` names", "stepgate/src/commands/doctor.rs", &["NAMED_MAX"]),
    (
        "time between two looks whether PostgreSQL has gone back in time",
        "stepgate-gateway/src/service/rolled_back.rs",
        &["LOOK_EVERY"],
    ),
    (
        "runs and approvals in one answer",
        "stepgate-http/src/page.rs",
        &["ROWS", "ROWS_MAX", "BYTES_MAX"],
    ),
    (
        "differences of shadow policies in one answer",
        "stepgate-http/src/policy.rs",
        &["LISTED", "LISTED_MAX"],
    ),
    (
        "differences of shadow policies that are counted for it",
        "stepgate-gateway/src/differences.rs",
        &["READ_MAX"],
    ),
    (
        "examples that the solver is asked for, where the engine does not confirm one",
        "stepgate-prove/src/lib.rs",
        &["EXAMPLES_MAX"],
    ),
    (
        "a user's request; all of a session",
        "stepgate-core/src/requests.rs",
        &["REQUEST_BYTES_MAX", "REQUESTS_MAX", "SESSION_BYTES_MAX"],
    ),
    ("entries of a directory of values", "stepgate-core/src/origin.rs", &["ENTRIES_MAX"]),
    (
        "trusted values of a session",
        "stepgate-core/src/session_values.rs",
        &["VALUES_MAX", "VALUE_BYTES_MAX"],
    ),
    (
        "trusted values in memory",
        "stepgate-core/src/session_cache.rs",
        &["VALUES_MAX", "SESSIONS_MAX"],
    ),
    (
        "values of a call whose origin is looked up; text of its arguments that is searched for addresses",
        "stepgate-core/src/origins.rs",
        &["LEAVES_MAX", "TEXT_BYTES_MAX"],
    ),
    (
        "value that is looked for in a request",
        "stepgate-core/src/origin/spelling.rs",
        &["VALUE_BYTES_MAX", "PLACES_MAX"],
    ),
    ("detectors", "stepgate/src/config/detect.rs", &["DETECTORS_MAX"]),
    ("compiled pattern of a detector", "stepgate-core/src/detect.rs", &["PATTERN_SIZE_MAX"]),
    ("result that detectors search", "stepgate-core/src/detect.rs", &["TEXT_BYTES_MAX"]),
    ("wait for a trace's lock", "stepgate-store/src/locks.rs", &["LOCK_WAIT_DEFAULT"]),
    ("writes that wait for the writer", "stepgate-store/src/sqlite/open.rs", &["queue_jobs_max"]),
    ("writes in one commit", "stepgate-store/src/sqlite/open.rs", &["batch_jobs_max"]),
];

/// A flag of the command line, which has its limits in its declaration.
const FLAGS: [(&str, &str); 1] = [(
    "runs that `runs` lists at once",
    "default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000)",
)];

#[test]
fn every_row_of_the_limits_stands_in_the_code_with_its_name_and_its_value() {
    let documented = rows(&read("docs/limits.md"), 4);
    for row in &documented {
        let (name, key, value) = (row[0].as_str(), row[1].as_str(), row[2].as_str());
        // Held to the configuration's own schema by the test of the keys.
        if quoted(key).iter().any(|key| key.contains('.')) {
            continue;
        }
        if let Some((_, declared)) = FLAGS.iter().find(|(row, _)| *row == name) {
            assert!(read("crates/stepgate/src/cli/lists.rs").contains(declared), "{name}");
            continue;
        }
        let known = CONSTANTS.iter().find(|(row, _, _)| *row == name);
        let (_, file, constants) =
            known.unwrap_or_else(|| panic!("`{name}` has no key and no constant in the code"));
        let mut rest = value.to_owned();
        for constant in *constants {
            let spelled = spellings(&value_of(file, constant));
            let found = spelled.iter().find_map(|spelled| after(&rest, spelled));
            rest =
                found.unwrap_or_else(|| panic!("{name}: {constant} is {spelled:?}, not `{value}`"));
        }
    }
    let stale = CONSTANTS.iter().map(|(row, _, _)| row).chain(FLAGS.iter().map(|(row, _)| row));
    for row in stale {
        assert!(documented.iter().any(|it| it[0] == *row), "there is no row `{row}`");
    }
}

/// A key without a range says its default in words.
#[test]
fn every_key_without_a_range_has_its_default_in_its_row() {
    let documented = rows(&read("docs/limits.md"), 4);
    let schema: Value = serde_json::from_str(&read("schemas/stepgate.schema.json")).unwrap();
    for (section, properties) in [
        ("sandbox", "SandboxConfig"),
        ("serve", "ServeConfig"),
        ("mcp", "McpConfig"),
        ("agent", "AgentConfig"),
        ("policy", "PolicyConfig"),
        ("store", "StoreConfig"),
    ] {
        for (key, property) in schema["$defs"][properties]["properties"].as_object().unwrap() {
            let key = format!("{section}.{key}");
            let row =
                documented.iter().find(|row| quoted(&row[1]).contains(&key.as_str())).unwrap();
            let shown = row[2].as_str();
            let is_told = shown.contains("schemas/stepgate.schema.json")
                || match &property["default"] {
                    Value::Bool(default) => shown == if *default { "yes" } else { "no" },
                    Value::Array(items) if items.is_empty() => shown.starts_with("none"),
                    Value::Array(items) => {
                        items.iter().all(|item| quoted(shown).contains(&item.as_str().unwrap()))
                    }
                    // What is put in the place of an empty one is told in words.
                    Value::String(text) if text.is_empty() => !shown.is_empty(),
                    Value::String(text) => quoted(shown).contains(&text.as_str()),
                    Value::Null => !shown.is_empty(),
                    // Held to its range by the test of the keys.
                    Value::Number(_) => property["maximum"].is_number(),
                    Value::Object(_) => false,
                };
            assert!(is_told, "{key}: {} is not in `{shown}`", property["default"]);
        }
    }
}

/// A limit as the code has it.
#[derive(Debug)]
enum Limit {
    Count(u64),
    Milliseconds(u64),
}

/// The value of a constant, or of a field of the defaults, in the text of a file.
fn value_of(file: &str, name: &str) -> Limit {
    let (file, name) = match name.split_once(':') {
        Some((below, name)) => (format!("{file}/{below}"), name),
        None => (file.to_owned(), name),
    };
    let text = read(format!("crates/{file}"));
    let expression = text.lines().find_map(|line| {
        let line = line.trim_start().trim_start_matches("pub").trim_start();
        let line = line.strip_prefix("(crate) ").or(line.strip_prefix("(super) ")).unwrap_or(line);
        let constant = line.strip_prefix("const ").and_then(|rest| rest.strip_prefix(name));
        let constant = constant.filter(|rest| rest.starts_with(':'));
        let constant = constant.and_then(|rest| rest.split_once(" = ")?.1.strip_suffix(';'));
        let field = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        constant.or(field
            .and_then(|rest| rest.strip_suffix(','))
            .filter(|it| it.contains(char::is_numeric)))
    });
    let expression = expression.unwrap_or_else(|| panic!("there is no {name} in {file}"));
    let inner = |unit: &str| expression.strip_prefix(unit).and_then(|rest| rest.strip_suffix(')'));
    match (inner("Duration::from_secs("), inner("Duration::from_millis(")) {
        (Some(seconds), _) => Limit::Milliseconds(number(seconds) * 1000),
        (_, Some(milliseconds)) => Limit::Milliseconds(number(milliseconds)),
        (None, None) => Limit::Count(number(expression)),
    }
}

/// A product of numbers, or the largest integer that a double holds exactly.
fn number(expression: &str) -> u64 {
    if expression == "(1 << 53) - 1" {
        return (1 << 53) - 1;
    }
    let factor = |text: &str| text.trim().replace('_', "").parse::<u64>();
    let factors = expression.split('*').map(factor).collect::<Result<Vec<_>, _>>();
    factors.unwrap_or_else(|_| panic!("`{expression}` is no product of numbers")).iter().product()
}

/// How a limit may be written for people.
fn spellings(limit: &Limit) -> Vec<String> {
    match *limit {
        Limit::Milliseconds(ms) => match ms.is_multiple_of(1000) {
            true => vec![format!("{} s", ms / 1000)],
            false => vec![format!("{ms} ms"), format!("0.{} s", ms / 100)],
        },
        Limit::Count(2) => vec!["half".to_owned(), "2".to_owned()],
        Limit::Count(count) if count == (1 << 53) - 1 => vec!["2^53 − 1".to_owned()],
        Limit::Count(count) => {
            let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
            let whole = units.iter().filter(|(unit, _)| count.is_multiple_of(*unit));
            let mut spelled: Vec<_> =
                whole.map(|(unit, name)| format!("{} {name}", count / unit)).collect();
            spelled.extend([grouped(count), count.to_string()]);
            spelled
        }
    }
}

fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let mut groups: Vec<&str> = if head.is_empty() { vec![] } else { vec![head] };
    groups.extend((0..tail.len()).step_by(3).map(|at| &tail[at..at + 3]));
    groups.join(",")
}

/// What follows a number that stands in a text by itself, with no other unit.
fn after(text: &str, spelled: &str) -> Option<String> {
    let at = text.find(spelled)?;
    let (before, rest) = (&text[..at], &text[at + spelled.len()..]);
    let joins = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let is_apart = !before.ends_with(joins) && !rest.starts_with(|c: char| c.is_ascii_digit());
    let has_own_unit = spelled.ends_with(|c: char| c.is_ascii_digit())
        && [" KiB", " MiB", " GiB", " s", " ms"].iter().any(|unit| {
            rest.strip_prefix(unit).is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
        });
    (is_apart && !has_own_unit).then(|| rest.to_owned())
}

#[test]
fn a_limit_that_the_documentation_does_not_have_is_found() {
    assert_eq!(spellings(&Limit::Count(64 * 1024)), ["64 KiB", "65,536", "65536"]);
    assert_eq!(spellings(&Limit::Count(1_000_000)), ["1,000,000", "1000000"]);
    assert_eq!(spellings(&Limit::Milliseconds(500)), ["500 ms", "0.5 s"]);
    assert_eq!(after("64 KiB, 100 headers", "64"), None);
    assert_eq!(after("128 levels", "28"), None);
    assert_eq!(after("64 KiB, 100 headers", "64 KiB").as_deref(), Some(", 100 headers"));
}
