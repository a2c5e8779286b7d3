use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

use stepgate_core::limits::Limits;
use stepgate_http::Scheme;
use stepgate_http::server::PairFiles;

use super::{Config, refuse_unknown_variables, sample};

fn load(text: &str, variables: &[(&str, &str)]) -> anyhow::Result<Config> {
    let directory = tempfile::TempDir::new()?;
    let file = directory.path().join("stepgate.toml");
    fs::write(&file, text)?;
    Config::load(Some(&file), |name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn a_file_is_laid_over_the_defaults_and_the_environment_over_the_file() {
    let text = "[limits]\npayload_bytes_max = 10\njson_depth_max = 20\n";
    let config = load(text, &[("STEPGATE_LIMITS_JSON_DEPTH_MAX", "30")]).unwrap();
    let limits = config.limits();
    assert_eq!((limits.payload_bytes_max, limits.json_depth_max), (10, 30));
    assert_eq!(limits.record_attempts_max, 5);
}

#[test]
fn a_list_in_the_environment_is_split_at_commas() {
    let config = load("", &[("STEPGATE_SANDBOX_READ_EXTENSIONS", ".csv, .txt")]).unwrap();
    assert_eq!(config.extensions().read, ["csv", "txt"]);
}

#[test]
fn bad_configuration_is_refused_with_its_place() {
    let rows = [
        ("[limits]\npayload = 1\n", "unknown field `payload`"),
        ("[nonsense]\n", "unknown field `nonsense`"),
        ("[limits]\njson_depth_max = 1\njson_depth_max = 2\n", "duplicate key"),
        ("[sandbox]\nread_extensions = [\"txt\"]\n", "write it like `.txt`"),
        ("[limits]\njson_depth_max = \"a\"\n", "line 2"),
    ];
    for (text, expected) in rows {
        let error = format!("{:#}", load(text, &[]).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    let error = load("", &[("STEPGATE_LIMITS_JSON_DEPTH_MAX", "deep")]).unwrap_err();
    assert!(format!("{error:#}").contains("STEPGATE_LIMITS_JSON_DEPTH_MAX"));
}

/// Every limit, its place, and the least and most that may be set.
const RANGES: [(&str, &str, u64, u64); 28] = [
    ("otlp", "sample_percent", 0, 100),
    ("otlp", "metrics_interval_ms", 100, 3_600_000),
    ("otlp", "queue_max", 1, 1_000_000),
    ("otlp", "timeout_ms", 1, 60_000),
    ("limits", "payload_bytes_max", 1, Limits::PAYLOAD_BYTES_CEILING as u64),
    ("limits", "json_depth_max", 2, Limits::JSON_DEPTH_CEILING as u64),
    ("limits", "summary_string_bytes_max", 0, Limits::PAYLOAD_BYTES_CEILING as u64),
    ("limits", "record_attempts_max", 1, 1000),
    ("limits", "record_retry_pause_ms", 0, 60_000),
    ("limits", "approval_ttl_ms", 1, 31_536_000_000),
    ("limits", "approvals_open_max", 1, 100_000),
    ("limits", "approvals_open_total_max", 1, 100_000),
    ("limits", "grant_life_max_ms", 1, 365 * 24 * 60 * 60 * 1000),
    ("sandbox", "file_bytes_max", 1, Limits::PAYLOAD_BYTES_CEILING as u64),
    ("sandbox", "entries_max", 1, 1_000_000),
    ("serve", "connections_max", 1, 100_000),
    ("serve", "head_timeout_ms", 1, 3_600_000),
    ("serve", "body_timeout_ms", 1, 3_600_000),
    ("serve", "body_bytes_max", 1, 134_217_728),
    ("serve", "wait_max_ms", 0, 3_600_000),
    ("serve", "drain_ms", 0, 3_600_000),
    ("serve", "shutdown_ms", 0, 3_600_000),
    ("serve", "servers_wait_ms", 0, 3_600_000),
    ("serve", "requests_per_second_max", 1, 1_000_000),
    ("serve", "requests_burst_max", 1, 1_000_000),
    ("serve", "failed_auth_per_minute_max", 1, 1_000_000),
    ("policy", "reload_ms", 10, 3_600_000),
    ("policy", "solver_timeout_ms", 10, 3_600_000),
];

#[test]
fn every_limit_has_limits_of_its_own() {
    for (section, key, least, most) in RANGES {
        let set = |value: i128| load(&format!("[{section}]\n{key} = {value}\n"), &[]);
        let (least, most) = (i128::from(least), i128::from(most));
        for allowed in [least, least + 1, most - 1, most] {
            set(allowed).unwrap();
        }
        for refused in [least - 1, most + 1] {
            let error = format!("{:#}", set(refused).unwrap_err());
            assert!(refused < 0 || error.contains(&format!("from {least} to {most}")), "{error}");
            assert!(error.contains(key) || error.contains("line 2"), "{error}");
        }
    }
}

#[test]
fn every_limit_reaches_the_gate() {
    let text = "[limits]\npayload_bytes_max = 3\njson_depth_max = 4\nsummary_string_bytes_max = 5\n\
                record_attempts_max = 6\nrecord_retry_pause_ms = 7\napproval_ttl_ms = 8\n\
                approvals_open_max = 11\napprovals_open_total_max = 13\ngrant_life_max_ms = 12\n[sandbox]\nfile_bytes_max = 9\nentries_max = 10\n";
    let config = load(text, &[]).unwrap();
    let expected = Limits {
        payload_bytes_max: 3,
        json_depth_max: 4,
        summary_string_bytes_max: 5,
        record_attempts_max: 6,
        record_retry_pause: std::time::Duration::from_millis(7),
        approval_ttl_ms: 8,
        approvals_open_max: 11,
        approvals_open_total_max: 13,
        grant_life_max_ms: 12,
    };
    assert_eq!(config.limits(), expected);
    let sandbox = config.sandbox_limits();
    assert_eq!((sandbox.file_bytes_max, sandbox.entries_max), (9, 10));
}

#[test]
fn every_limit_of_listening_reaches_the_listener() {
    let ms = std::time::Duration::from_millis;
    let text = "[serve]\nbind = \"127.0.0.1:1\"\nconnections_max = 2\nconnections_reserved = 15\nconnections_per_address_max = 16\n\
                body_memory_bytes_max = 17\nagent_bytes_per_hour_max = 18\nhead_timeout_ms = 3\n\
                body_timeout_ms = 4\nbody_bytes_max = 5\nwait_max_ms = 6\nshutdown_ms = 7\ndrain_ms = 13\n\
                requests_per_second_max = 8\nrequests_burst_max = 9\n\
                failed_auth_per_minute_max = 10\nlogin_idle_max_ms = 11\nlogin_life_max_ms = 12\n\
                public_url = \"https://gate.example.com/\"\nservers_wait_ms = 14\n";
    let config = load(text, &[]).unwrap();
    assert_eq!(config.serve.servers_wait, ms(14));
    let expected = stepgate_http::ServeConfig {
        bind: "127.0.0.1:1".into(),
        public_url: "https://gate.example.com/".into(),
        servers_wait: ms(14),
        connections_max: 2,
        connections_reserved: 15,
        connections_per_address_max: 16,
        body_memory_bytes_max: 17,
        agent_bytes_per_hour_max: 18,
        head_timeout: ms(3),
        body_timeout: ms(4),
        body_bytes_max: 5,
        wait_max: ms(6),
        shutdown: ms(7),
        drain: ms(13),
        requests_per_second_max: 8,
        requests_burst_max: 9,
        failed_auth_per_minute_max: 10,
        login_idle_max: ms(11),
        login_life_max: ms(12),
        ..stepgate_http::ServeConfig::default()
    };
    assert_eq!((config.serve.bind.as_str(), &config.serve), ("127.0.0.1:1", &expected));
    let public_url = config.serve.public_url("127.0.0.1:2", Scheme::Http).unwrap().to_string();
    assert_eq!(public_url, "https://gate.example.com");
}

#[test]
fn browsers_come_to_where_it_listens_unless_another_address_is_named() {
    let config = load("", &[]).unwrap();
    assert_eq!(
        config.serve.public_url("127.0.0.1:2", Scheme::Http).unwrap().to_string(),
        "http://127.0.0.1:2"
    );
    let named = [("STEPGATE_SERVE_PUBLIC_URL", "http://gate")];
    let config = load("", &named).unwrap();
    assert_eq!(
        config.serve.public_url("127.0.0.1:2", Scheme::Http).unwrap().to_string(),
        "http://gate"
    );
    for wrong in ["gate", "https://gate/path", "ftp://gate"] {
        let error = load(&format!("[serve]\npublic_url = \"{wrong}\"\n"), &[]).unwrap_err();
        assert!(format!("{error:#}").contains("serve.public_url is not valid"), "{error:#}");
    }
}

#[test]
fn a_certificate_is_beside_the_configuration_and_makes_the_address_https() {
    let text = "[serve]\ntls_certificate = \"gate.pem\"\n";
    let config = load(text, &[("STEPGATE_SERVE_TLS_KEY", "/keys/gate")]).unwrap();
    let files = PairFiles { certificate: "/base/gate.pem".into(), key: "/keys/gate".into() };
    assert_eq!(config.serve.tls("/base".as_ref()).unwrap(), Some(files));
    let scheme = config.serve.scheme().unwrap();
    assert_eq!(config.serve.public_url("gate:443", scheme).unwrap().to_string(), "https://gate");
    assert_eq!(load("", &[]).unwrap().serve.tls("/base".as_ref()).unwrap(), None);
}

#[test]
fn the_defaults_are_those_of_the_gate() {
    let config = Config::load(None, |_| None).unwrap();
    assert_eq!(config.limits(), Limits::default());
    assert_eq!(config.serve, stepgate_http::ServeConfig::default());
    assert_eq!(config.extensions(), stepgate_core::gate::Extensions::default());
    assert_eq!(config.sandbox_limits(), stepgate_exec::SandboxLimits::default());
}

#[test]
fn a_variable_that_is_not_known_is_refused_with_those_that_are() {
    let refuse = |names: &[&str]| refuse_unknown_variables(names.iter().map(OsString::from));
    refuse(&["PATH", "STEPGATE", "STEPGATE_DATA", "STEPGATE_CONFIG"]).unwrap();
    refuse(&["STEPGATE_LIMITS_APPROVAL_TTL_MS", "STEPGATE_SANDBOX_READ_EXTENSIONS"]).unwrap();
    let error = refuse(&["STEPGATE_DATA", "STEPGATE_LIMITS_PAYLOAD_MAX"]).unwrap_err().to_string();
    for name in ["STEPGATE_LIMITS_PAYLOAD_MAX", "STEPGATE_DATA", "STEPGATE_SANDBOX_ENTRIES_MAX"] {
        assert!(error.contains(name), "{error}");
    }
    refuse(&["stepgate_data", "STEPGATE_BLESS"]).unwrap_err();
    refuse_unknown_variables([OsString::from_vec(b"STEPGATE_\xff".to_vec())]).unwrap_err();
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_are_not_ours() {
    let refuse = |names: &[&str]| refuse_unknown_variables(names.iter().map(OsString::from));
    let of_service = |name: &str| {
        let links = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT"];
        let ports = ["", "_PROTO", "_PORT", "_ADDR"].map(|end| format!("PORT_7420_TCP{end}"));
        let links = links.map(str::to_owned).into_iter().chain(ports);
        links.map(|link| format!("{name}_{link}")).collect::<Vec<_>>()
    };
    for service in ["STEPGATE", "STEPGATE_MAIN"] {
        let names = of_service(service);
        refuse(&names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }
    // Without the host it is no service's.
    refuse(&["STEPGATE_PORT"]).unwrap_err();
    refuse(&["STEPGATE_SERVICE_HOST", "STEPGATE_MAIN_PORT"]).unwrap_err();
}

#[test]
fn a_misspelled_variable_is_answered_with_the_likely_one() {
    let refuse = |name: &str| refuse_unknown_variables([OsString::from(name)]).unwrap_err();
    for (name, likely) in [
        ("STEPGATE_SERVE_BIN", "STEPGATE_SERVE_BIND"),
        ("STEPGATE_DTAA", "STEPGATE_DATA"),
        ("STEPGATE_LIMITS_JSON_DEPTHS_MAX", "STEPGATE_LIMITS_JSON_DEPTH_MAX"),
    ] {
        let error = refuse(name).to_string();
        assert!(error.contains(&format!("did you mean `{likely}`")), "{error}");
    }
    assert!(!refuse("STEPGATE_SOMETHING_ELSE").to_string().contains("did you mean"));
}

#[test]
fn the_published_schema_is_the_configurations_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/stepgate.schema.json");
    let schema = schemars::schema_for!(Config);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("STEPGATE_BLESS").is_some() {
        fs::write(path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), text, "run again with STEPGATE_BLESS=1");
}

#[test]
fn the_page_of_the_configuration_is_made_from_the_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let text = format!(
        "# Configuration\n\nEvery key of `stepgate.toml`, made from the program's own schema. It is what `stepgate config \
         sample` prints and\nwhat packages install as `deploy/stepgate.toml`. [Limits](limits.md) says what happens beyond each limit.\n\n\
         ```toml\n{}```\n",
        sample().unwrap()
    );
    if std::env::var_os("STEPGATE_BLESS").is_some() {
        fs::write(path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), text, "run again with STEPGATE_BLESS=1");
}

/// The sample with every key and section set.
fn set_all(sample: &str) -> String {
    let set = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key.to_owned(),
        Some(_) | None => line.to_owned(),
    };
    sample.lines().map(|line| set(line) + "\n").collect()
}

#[test]
fn the_sample_is_made_from_the_schema_and_changes_nothing_until_a_key_is_set() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/stepgate.toml");
    let text = sample().unwrap();
    if std::env::var_os("STEPGATE_BLESS").is_some() {
        fs::write(path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), text, "run again with STEPGATE_BLESS=1");
    assert_eq!(load(&text, &[]).unwrap(), Config::default());
}

#[test]
fn every_key_of_the_sample_has_its_default_and_can_be_set() {
    // A label cannot be empty.
    let text = set_all(&sample().unwrap()).replace("adds = \"\"", "adds = \"secret\"");
    let set: toml::Table = toml::from_str(&text).unwrap();
    toml::from_str::<Config>(&text).unwrap();
    for (name, section) in toml::Table::try_from(Config::default()).unwrap() {
        // What the operator names has no default; one of each is in the sample.
        match name.as_str() {
            "servers" | "schedule" | "detect" | "directory" => {
                assert_eq!(set[&name].as_table().unwrap().len(), 1);
            }
            "notify" | "audit" => assert_eq!(set[&name].as_array().unwrap().len(), 1),
            "otlp" => {
                let mut set = set[&name].as_table().unwrap().clone();
                let headers = set.insert("headers".to_owned(), toml::Table::new().into());
                assert_eq!(headers.unwrap().as_table().unwrap().len(), 1);
                assert_eq!(toml::Value::from(set), section);
            }
            _ => assert_eq!(set[&name], section, "{name}"),
        }
    }
    let server = set["servers"]["NAME"].as_table().unwrap();
    let tool = server["tools"]["NAME"].as_table().unwrap();
    assert!(server.contains_key("timeout_ms") && tool.contains_key("redacted"), "{server:?}");
}

#[test]
fn every_range_and_every_choice_stands_above_its_key() {
    let text = sample().unwrap();
    for (section, key, least, most) in RANGES {
        let section = text.split(&format!("\n[{section}]\n")).nth(1).unwrap();
        let above = section.split(&format!("\n#{key} = ")).next().unwrap();
        let above = above.lines().last().unwrap();
        assert_eq!(above, format!("# From {least} to {most}."), "{key}");
    }
    let choice = "#   \"json\": One JSON object a line, for machines.\n#format = \"text\"\n";
    assert!(text.contains(choice), "{text}");
}
