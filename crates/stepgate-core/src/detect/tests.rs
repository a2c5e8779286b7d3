use serde_json::json;

use super::*;

fn label(text: &str) -> Label {
    Label::parse(text).unwrap()
}

fn detector(kind: &str) -> Detectors {
    let detector = Detector::built_in(kind, label("found"), Scope::default()).unwrap();
    Detectors::new(BTreeMap::from([("one".to_owned(), detector)]))
}

fn finds(kind: &str, text: &str) -> bool {
    let result = json!({ "content": [{ "type": "text", "text": text }] }).to_string();
    !detector(kind).find("web", "web.fetch", &result).is_empty()
}

/// Made up, with the form of the real ones. Split, so that nothing that looks for secrets in this file finds one.
fn secrets() -> Vec<(&'static str, String)> {
    let rows: [(&str, &[&str]); 24] = [
        ("private_key", &["-----BEGIN ", "PRIVATE KEY-----"]),
        ("private_key", &["-----BEGIN OPENSSH ", "PRIVATE KEY-----\nb3Bl"]),
        (
            "age_key",
            &["AGE-SECRET-", "KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ"],
        ),
        ("aws_key", &["AKIA", "IOSFODNN7EXAMPLE"]),
        ("aws_secret", &["aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"]),
        ("azure_key", &["AccountKey=", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="]),
        ("google_key", &["AIza", "SyA1234567890abcdefghijklmnopqrstuv"]),
        ("google_token", &["ya29.", "a0AfH6SMBabcdefghijklmnop"]),
        ("github_token", &["ghp_", "abcdefghijklmnopqrstuvwxyz0123456789"]),
        ("github_token", &["github_pat_", "11ABCDEFG0abcdefghijkl_mnop"]),
        ("gitlab_token", &["glpat-", "abcdefghij0123456789"]),
        ("slack_token", &["xoxb-", "123456789012-abcdefghijkl"]),
        ("slack_webhook", &["https://hooks.slack.com/", "services/T00000000/B00000000/XXXXXXXX"]),
        (
            "discord_token",
            &["MTAxMDEwMTAxMDEwMTAxMDEw", ".GabcDe.abcdefghijklmnopqrstuvwxyz012345"],
        ),
        ("telegram_token", &["123456789:", "AAabcdefghijklmnopqrstuvwxyz0123456"]),
        ("stripe_key", &["sk_live_", "abcdefghijklmnop0123"]),
        ("openai_key", &["sk-", "proj-abcdefghijklmnopqrstuvwxyz0123456789"]),
        ("anthropic_key", &["sk-ant-", "api03-abcdefghijklmnopqrstuvwx"]),
        ("hugging_face_token", &["hf_", "abcdefghijklmnopqrstuvwxyzABCDEFGH"]),
        ("npm_token", &["npm_", "abcdefghijklmnopqrstuvwxyz0123456789"]),
        (
            "pypi_token",
            &["pypi-", "AgEIcHlwaS5vcmcabcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqr"],
        ),
        (
            "sendgrid_key",
            &["SG.", "abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"],
        ),
        ("jwt", &["eyJhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjM0In0.", "abcdefghijklmnop"]),
        ("password_in_url", &["postgres://app:", "s3cret!@db.example:5432/app"]),
    ];
    rows.map(|(kind, parts)| (kind, parts.concat())).into()
}

#[test]
fn secrets_are_found_wherever_they_stand() {
    for (kind, secret) in secrets() {
        for text in
            [secret.clone(), format!("it is \"{secret}\", keep it"), format!("a\n{secret}\nb")]
        {
            assert!(finds(kind, &text), "{kind}: {text}");
            assert!(finds("secrets", &text), "{kind}: {text}");
        }
    }
    let kinds: BTreeSet<&str> = secrets().into_iter().map(|(kind, _)| kind).collect();
    let secret = patterns::ALL.iter().filter(|pattern| pattern.group == patterns::SECRETS);
    assert_eq!(kinds, secret.map(|pattern| pattern.name).collect(), "each has a row");
}

#[test]
fn ordinary_texts_are_not_secret() {
    let texts = [
        "The private key is in the safe. BEGIN with the public one: -----BEGIN PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "AKIA is a prefix, ASIA a continent, ghp_ and sk- too",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "id 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10",
        "https://example.com:8080/path?token=abc see http://user@example.com",
        "eyJhbGciOiJIUzI1NiJ9 alone",
        "task-skeleton-for-a-very-long-name-that-goes-on-and-on",
        "password: see the vault",
        "10:30:00 AAAA 12:AA",
    ];
    for text in texts {
        assert!(!finds("secrets", text), "{text}");
    }
}

#[test]
fn personal_data_is_found_by_pattern_and_checksum() {
    let rows = [
        ("email_address", "write to ann.lee+x@mail.example.com.", true),
        ("email_address", "write to ann at example", false),
        ("email_address", "@ann, see @example.com", false),
        ("iban", "DE89370400440532013000", true),
        ("iban", "IBAN: GB29 NWBK 6016 1331 9268 19.", true),
        ("iban", "DE89370400440532013001", false),
        ("iban", "AB12 CDEF GHIJ KLMN", false),
        ("payment_card", "4111 1111 1111 1111", true),
        ("payment_card", "378282246310005", true),
        ("payment_card", "5555-5555-5555-4444", true),
        ("payment_card", "4111 1111 1111 1112", false),
        ("payment_card", "4444444444444444", false),
        ("payment_card", "2026-11-18 10:30:00", false),
        ("phone_number", "call +49 30 1234567", true),
        ("phone_number", "+1 (555) 123-4567", true),
        ("phone_number", "1+1 = 2, +5", false),
        ("us_social_security", "123-45-6789", true),
        ("us_social_security", "000-45-6789, 666-45-6789, 912-45-6789, 123-00-6789", false),
    ];
    for (kind, text, expected) in rows {
        assert_eq!(finds(kind, text), expected, "{kind}: {text}");
        assert!(!expected || finds("personal", text), "{kind}: {text}");
    }
}

#[test]
fn escapes_hide_nothing() {
    let address = "ann@mail.example";
    let results = [
        r#"{"content":[{"type":"text","text":"ann\u0040mail.example"}]}"#.to_owned(),
        // JSON in a text, in a text.
        json!({ "text": json!({ "by": "ann@mail.example" }).to_string() }).to_string(),
        json!({ "text": r#"{"by":"ann\u0040mail.example"}"# }).to_string(),
        json!({ "text": json!({ "in": r#"{"by":"ann\u0040mail.example"}"# }).to_string() })
            .to_string(),
        // As a name, in a list, and without any JSON.
        json!({ address: 1 }).to_string(),
        json!({ "structuredContent": { "list": [[address]] } }).to_string(),
        format!("not JSON: {address}"),
    ];
    for result in results {
        let found = detector("email_address").find("mail", "mail.search", &result);
        assert_eq!(found, BTreeMap::from([(label("found"), "one".to_owned())]), "{result}");
    }
    let card = json!({ "card": 4_111_111_111_111_111_u64 }).to_string();
    assert!(!detector("payment_card").find("shop", "shop.pay", &card).is_empty());
}

#[test]
fn a_result_that_is_too_long_to_be_searched_counts_as_found() {
    let long = |bytes: usize| json!({ "text": "x".repeat(bytes) }).to_string();
    let find = |result: &str| !detector("jwt").find("web", "web.fetch", result).is_empty();
    let around = long(0).len();
    assert!(!find(&long(TEXT_BYTES_MAX - around)));
    assert!(find(&long(TEXT_BYTES_MAX - around + 1)));
}

#[test]
fn a_detector_looks_where_its_scope_says() {
    let tool = |name: &str| ToolName::parse(name).unwrap();
    let own = |scope| Detector::own("(?i)project x", label("found"), scope).unwrap();
    let servers = Scope { servers: ["web".to_owned()].into(), tools: BTreeSet::new() };
    let tools = Scope { servers: BTreeSet::new(), tools: [tool("mail.search")].into() };
    let both = Scope { servers: ["core".to_owned()].into(), tools: [tool("mail.search")].into() };
    let rows = [
        (Scope::default(), [true, true, true, true]),
        (servers, [true, false, false, false]),
        (tools, [false, true, false, false]),
        (both, [false, true, false, true]),
    ];
    for (scope, expected) in rows {
        let detectors = Detectors::new(BTreeMap::from([("x".to_owned(), own(scope.clone()))]));
        let actions = [
            ("web", "web.fetch"),
            ("mail", "mail.search"),
            ("mail", "mail.send"),
            ("core", "READ_FILE"),
        ];
        let found = actions.map(|(server, action)| {
            let found = !detectors.find(server, action, r#"{"a":"about Project X"}"#).is_empty();
            assert_eq!(found, detectors.look_at(server, action));
            found
        });
        assert_eq!(found, expected, "{scope:?}");
    }
}

#[test]
fn a_detector_that_cannot_be_made_says_why() {
    let built_in = |kind| Detector::built_in(kind, label("found"), Scope::default());
    let error = built_in("secret").unwrap_err().to_string();
    assert!(
        error.contains("`secret`") && error.contains("secrets, personal, private_key"),
        "{error}"
    );
    let own = |pattern: &str| Detector::own(pattern, label("found"), Scope::default());
    assert!(own("(").unwrap_err().to_string().contains("unclosed group"));
    assert!(own("(?:a{1000}){1000}").unwrap_err().to_string().contains("size limit"));
    assert!(kinds().all(|kind| built_in(kind).is_ok()));
}
