use super::{PublicUrl, Scheme};

#[test]
fn an_address_is_spelled_as_browsers_spell_an_origin() {
    let rows = [
        ("http://127.0.0.1:7420", Some(("http://127.0.0.1:7420", false))),
        ("http://[::1]:7420/", Some(("http://[::1]:7420", false))),
        ("https://Gate.Example.com", Some(("https://gate.example.com", true))),
        ("https://gate.example.com:443/", Some(("https://gate.example.com", true))),
        ("https://gate.example.com:80", Some(("https://gate.example.com:80", true))),
        ("http://gate:80", Some(("http://gate", false))),
        ("", None),
        ("gate.example.com", None),
        ("/gate", None),
        ("ftp://gate", None),
        ("javascript:alert(1)", None),
        ("https://", None),
        ("https://me@gate", None),
        ("https://gate/stepgate", None),
        ("https://gate?a", None),
        ("https://gate#a", None),
        ("https://ga te", None),
        ("https://gate\n", None),
    ];
    for (text, expected) in rows {
        let parsed = PublicUrl::parse(text).ok();
        let parsed = parsed.as_ref().map(|url| (url.origin(), url.is_encrypted()));
        assert_eq!(parsed, expected, "{text:?}");
    }
    for (bind, scheme, expected) in [
        ("127.0.0.1:7420", Scheme::Http, "http://127.0.0.1:7420"),
        ("LOCAL:80", Scheme::Http, "http://local"),
        ("LOCAL:80", Scheme::Https, "https://local:80"),
        ("[::1]:443", Scheme::Https, "https://[::1]"),
    ] {
        assert_eq!(PublicUrl::of_bind(bind, scheme), PublicUrl::parse(expected).unwrap());
    }
}

#[test]
fn the_port_is_said_also_where_browsers_leave_it_out() {
    for (text, expected) in [
        ("https://gate.example.com", "https://gate.example.com:443"),
        ("http://gate.example.com:80", "http://gate.example.com:80"),
        ("http://127.0.0.1:7420", "http://127.0.0.1:7420"),
        ("https://[::1]", "https://[::1]:443"),
    ] {
        assert_eq!(PublicUrl::parse(text).unwrap().with_port(), expected);
    }
}
