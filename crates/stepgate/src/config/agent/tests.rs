use std::path::Path;
use std::time::Duration;

use super::AgentConfig;
use crate::config::{Beside, Config, ranges};

fn config(text: &str) -> anyhow::Result<AgentConfig> {
    let config = Config { agent: toml::from_str(text)?, ..Config::default() };
    ranges::check(&config)?;
    config.agent.check()?;
    Ok(config.agent)
}

const MODEL: &str = "base_url = \"http://localhost/v1\"\nmodel = \"m\"\n";

#[test]
fn without_a_url_there_is_no_agent() {
    let settings = config("")
        .unwrap()
        .settings(Beside { base: Path::new("/"), environment: &|_| None })
        .unwrap();
    assert!(settings.is_none());
}

#[test]
fn what_does_not_fit_together_is_refused_with_its_key() {
    let rows = [
        ("base_url = \"http://localhost\"\n".to_owned(), "agent.model"),
        ("model = \"m\"\n".to_owned(), "agent.base_url"),
        (format!("{MODEL}rounds_max = 9\n"), "agent.rounds_max is 9 and must be from 1 to 8"),
        (format!("{MODEL}rounds_max = 0\n"), "agent.rounds_max"),
        (format!("{MODEL}attempts_max = 11\n"), "agent.attempts_max"),
        (format!("{MODEL}timeout_ms = 0\n"), "agent.timeout_ms"),
        (format!("{MODEL}turns_max = 1001\n"), "agent.turns_max"),
        (format!("{MODEL}prompt_bytes_max = 0\n"), "agent.prompt_bytes_max"),
        (format!("{MODEL}request_bytes_max = 67108865\n"), "agent.request_bytes_max"),
        (format!("{MODEL}mode = \" \"\n"), "agent.mode must not be empty"),
        (format!("{MODEL}key = \"sk\"\n"), "unknown field `key`"),
    ];
    for (text, expected) in rows {
        let error = format!("{:#}", config(&text).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_key_comes_from_the_environment_or_a_file_and_never_from_both() {
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::write(directory.path().join("key"), "sk-file\n").unwrap();
    let environment = |name: &str| (name == "KEY").then(|| "sk-env".to_owned());
    let settings = |keys: &str| {
        config(&format!("{MODEL}{keys}"))
            .unwrap()
            .settings(Beside { base: directory.path(), environment: &environment })
    };
    let has_key = |keys: &str| settings(keys).unwrap().unwrap().endpoint.key.is_some();
    assert!(!has_key(""));
    assert!(has_key("key_env = \"KEY\"\n"));
    assert!(has_key("key_file = \"key\"\n"));
    let rows = [
        ("key_env = \"OTHER\"\n", "`OTHER` is not set"),
        ("key_file = \"other\"\n", "agent.key_file: cannot read"),
        ("key_env = \"KEY\"\nkey_file = \"key\"\n", "one of the two"),
    ];
    for (keys, expected) in rows {
        let error = format!("{:#}", settings(keys).unwrap_err());
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("sk-"), "{error}");
    }
}

#[test]
fn every_key_reaches_the_agent() {
    let text = format!(
        "{MODEL}system_prompt = \"p\"\nmode = \"a\"\nmode_display_name = \"A\"\norg = \"o\"\n\
         timeout_ms = 2\nattempts_max = 3\nrounds_max = 4\nturns_max = 5\nprompt_bytes_max = 6\n\
         request_bytes_max = 7\n"
    );
    let settings = config(&text)
        .unwrap()
        .settings(Beside { base: Path::new("/"), environment: &|_| None })
        .unwrap()
        .unwrap();
    let endpoint = &settings.endpoint;
    assert_eq!((endpoint.base_url.as_str(), endpoint.model.as_str()), ("http://localhost/v1", "m"));
    assert_eq!((endpoint.timeout, endpoint.attempts_max), (Duration::from_millis(2), 3));
    let limits = settings.limits;
    assert_eq!((limits.rounds_max, limits.turns_max, limits.prompt_bytes_max), (4, 5, 6));
    let profile = &settings.profile;
    let told = (&*profile.system_prompt, &*profile.mode, &*profile.mode_display_name);
    assert_eq!(told, ("p", "a", "A"));
    assert_eq!((settings.org.as_str(), settings.request_bytes_max), ("o", 7));
}
