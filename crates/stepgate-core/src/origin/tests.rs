use super::*;

fn directories() -> Directories {
    let entries = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
    Directories::new(BTreeMap::from([
        ("contacts".to_owned(), entries(&["ann@example.com", "+49 30 1234567"])),
        ("ours".to_owned(), entries(&["*@ours.example"])),
    ]))
}

#[test]
fn a_directory_has_its_entries_and_the_addresses_of_its_domains() {
    let rows: [(&str, &[&str]); 12] = [
        ("ann@example.com", &["contacts"]),
        ("Ann@Example.com", &["contacts"]),
        ("+49 30  1234567", &["contacts"]),
        ("ann@example.com.evil", &[]),
        ("bob@ours.example", &["ours"]),
        ("BOB@OURS.EXAMPLE", &["ours"]),
        ("@ours.example", &[]),
        ("*@ours.example", &[]),
        ("bob@evil@ours.example", &[]),
        ("evil@evil.example, bob@ours.example", &[]),
        ("evil.example/bob@ours.example", &[]),
        ("bob@sub.ours.example", &[]),
    ];
    let directories = directories();
    for (value, expected) in rows {
        let value = Spelled::of(value);
        assert_eq!(directories.having(&value).collect::<Vec<_>>(), expected, "{value:?}");
    }
}

#[test]
fn origins_have_names() {
    for name in
        ["user", "known", "record", "link", "agent", "none", "directory/contacts", "mail.search"]
    {
        assert_eq!(Origin::parse(name).unwrap().as_str(), name);
    }
    for name in ["", "users", "directory/", "directory/A", "mail", "Directory/contacts"] {
        assert!(Origin::parse(name).is_err(), "{name}");
    }
}

fn named(names: &[&str]) -> BTreeSet<Origin> {
    names.iter().map(|name| Origin::parse(name).unwrap()).collect()
}

#[test]
fn values_share_the_origins_that_all_of_them_have() {
    let of = |make: fn(&mut ValueOrigins)| {
        let mut origins = ValueOrigins::default();
        make(&mut origins);
        origins
    };
    let user = || of(ValueOrigins::is_users);
    let listed = || of(|value| value.is_in_directory("contacts"));
    let agent = ValueOrigins::default;
    assert_eq!(shared([]), named(&["none"]));
    assert_eq!(shared([user()]), named(&["user", "known", "record", "link"]));
    assert_eq!(shared([user(), listed()]), named(&["known", "record", "link"]));
    assert_eq!(shared([user(), agent()]), named(&["agent"]));
    assert_eq!(shared([agent()]), named(&["agent"]));
}

#[test]
fn an_assumed_origin_includes_those_that_include_it() {
    let rows: [(&[&str], &[&str]); 4] = [
        (&["user"], &["user", "known", "record", "link"]),
        (&["directory/contacts"], &["directory/contacts", "known", "record", "link"]),
        (&["mail.search"], &["mail.search", "record"]),
        (&["agent"], &["agent"]),
    ];
    for (assumed, expected) in rows {
        assert_eq!(widened(&named(assumed)), named(expected));
    }
}
