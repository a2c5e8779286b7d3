use super::*;

fn mail() -> Mail {
    let settings = MailSettings {
        host: "localhost".into(),
        port: 25,
        encryption: Encryption::None,
        login: None,
        from: "Stepgate <gate@example.com>".into(),
        to: vec!["ann@example.com".into()],
    };
    Mail::new(&settings, Duration::from_secs(1)).unwrap()
}

#[test]
fn no_title_adds_a_header_or_a_recipient() {
    let title = "x\r\nBcc: evil@example.com\r\n\r\nbody \u{202e} ü";
    let mut message = Message::test("x", None);
    message.data.title = title.to_owned();
    let letter = mail().letter(&message).unwrap();
    let text = String::from_utf8(letter.formatted()).unwrap();
    let head = text.split("\r\n\r\n").next().unwrap();
    let names: Vec<_> = head.lines().filter_map(|line| line.split_once(": ")).collect();
    assert!(names.iter().all(|(name, _)| *name != "Bcc"), "{head}");
    assert!(names.iter().any(|(name, _)| *name == "Subject"), "{head}");
    assert_eq!(letter.envelope().to().len(), 1);
}

#[test]
fn an_address_that_is_none_is_refused() {
    let settings = MailSettings { to: vec!["ann at example".into()], ..mail().settings };
    let error = Mail::new(&settings, Duration::from_secs(1)).err().unwrap();
    assert!(error.contains("`ann at example` is no mail address"), "{error}");
}

#[test]
fn encryption_needs_nothing_but_the_systems_certificates_and_a_password_that_is_missing_is_said() {
    for encryption in [Encryption::Tls, Encryption::StartTls] {
        let settings = MailSettings { encryption, ..mail().settings };
        assert_eq!(Mail::new(&settings, Duration::from_secs(1)).unwrap().problem(), None);
        let login = Some(("gate".to_owned(), Secret::missing("the variable `X` is not set")));
        let settings = MailSettings { login, ..settings };
        let problem = Mail::new(&settings, Duration::from_secs(1)).unwrap().problem();
        assert_eq!(problem.as_deref(), Some("the variable `X` is not set"));
    }
}
