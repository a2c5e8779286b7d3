use std::fs;

use super::Config;

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
        ("[limits]\njson_depth_max = 121\n", "json_depth_max must be from 2 to 120"),
        ("[limits]\npayload_bytes_max = 0\n", "payload_bytes_max must be from 1"),
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
