use super::*;
use crate::config::Config;

fn read(text: &str) -> anyhow::Result<NotifySettings> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("stepgate.toml");
    std::fs::write(&file, text)?;
    std::fs::write(directory.path().join("key"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")?;
    let config = Config::load(Some(&file), |_| None)?;
    let environment = |name: &str| (name == "HOOK").then(|| "https://hooks.example/T".to_owned());
    let beside = Beside { base: directory.path(), environment: &environment };
    settings(&config.notify, None, beside)
}

fn slack(name: &str, more: &str) -> String {
    format!(
        "[[notify]]\nname = {name:?}\nkind = \"slack\"\nsecret_url = {{ env = \"HOOK\" }}\n{more}\n"
    )
}

const MAIL: &str = "[[notify]]\nname = \"m\"\nkind = \"mail\"\nhost = \"mail.example\"\n\
                    from = \"gate@example.com\"\nto = [\"ann@example.com\"]\n";

#[test]
fn receivers_are_read_with_their_escalations() {
    let more = "escalate_after_ms = 60000\nescalate_to = [\"boss\"]\nremind_before_ms = 5000";
    let NotifySettings { receivers, .. } =
        read(&(slack("team", more) + &slack("boss", "events = []"))).unwrap();
    let [team, boss] = receivers.as_slice() else { panic!("{receivers:?}") };
    let default = notify::notifiable().filter(|it| it.is_default).map(|it| it.event_type);
    assert_eq!((team.events.clone(), team.escalations.len()), (default.collect(), 0));
    assert_eq!(team.remind_before, Some(Duration::from_secs(5)));
    let escalation = Escalation { from: "team".into(), after: Duration::from_secs(60) };
    assert_eq!((boss.events.len(), boss.escalations.clone()), (0, vec![escalation]));
    let webhook = "[[notify]]\nname = \"w\"\nkind = \"webhook\"\nurl = \"http://10.0.0.1\"\n\
                   secret = { file = \"key\" }\nevents = [\"token_created\"]";
    assert_eq!(read(webhook).unwrap().receivers[0].events, [EventType::TokenCreated]);
    // A secret that is missing may come later: it is told, and stops nothing.
    let missing = "[[notify]]\nname = \"a\"\nkind = \"slack\"\nsecret_url = { env = \"NO\" }";
    assert_eq!(read(missing).unwrap().receivers.len(), 1);
    let ChannelSettings::Mail(mail) = &read(MAIL).unwrap().receivers[0].channel else { panic!() };
    assert_eq!((mail.port, mail.encryption), (465, Encryption::Tls));
}

#[test]
fn what_contradicts_itself_is_refused_with_its_place() {
    let two = slack("a", "") + &slack("a", "");
    let rows = [
        (slack("A b", ""), "`A b` is no name of a [[notify]]"),
        (two, "two [[notify]] have the name `a`"),
        (slack("a", "events = [\"tool_called\"]"), "there is no event `tool_called` to be told of"),
        (slack("a", "escalate_to = [\"b\"]"), "escalate_to needs escalate_after_ms"),
        (slack("a", "escalate_after_ms = 5000"), "escalate_after_ms needs escalate_to"),
        (
            slack("a", "escalate_after_ms = 5000\nescalate_to = [\"b\"]"),
            "there is no [[notify]] with the name `b`",
        ),
        (
            slack("a", "escalate_after_ms = 5000\nescalate_to = [\"a\"]"),
            "names the receiver itself",
        ),
        (slack("a", "timeout_ms = 1"), "notify.timeout_ms is 1 and must be from 100 to 300000"),
        (slack("a", "host = \"x\""), "`host` is not for kind `slack`"),
        (slack("a", "url = \"https://x\""), "it has a `url` and a `secret_url`"),
        ("[[notify]]\nname = \"a\"\nkind = \"slack\"".into(), "name its `url`"),
        ("[[notify]]\nname = \"a\"\nkind = \"slack\"\nurl = \"x\"".into(), "`url` must begin with"),
        (
            "[[notify]]\nname = \"a\"\nkind = \"webhook\"\nurl = \"https://x\"".into(),
            "a webhook needs a `secret`",
        ),
        ("[[notify]]\nname = \"a\"\nkind = \"fax\"".into(), "unknown variant `fax`"),
        (format!("{MAIL}username = \"gate\""), "`username` and `password` go together"),
        (
            format!(
                "{MAIL}encryption = \"none\"\nusername = \"g\"\npassword = {{ file = \"key\" }}"
            ),
            "a password would be read on the way",
        ),
        (MAIL.replace("ann@", "ann at "), "is no mail address"),
    ];
    for (text, expected) in rows {
        let error = format!("{:#}", read(&text).unwrap_err());
        assert!(error.contains(expected), "{error}\nis not\n{expected}");
    }
}
