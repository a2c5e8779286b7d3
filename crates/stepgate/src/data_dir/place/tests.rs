use std::path::Path;

use super::by_default;

#[test]
fn the_default_is_in_the_users_data_directory() {
    type Variables = [(&'static str, &'static str)];
    let rows: [(&Variables, Option<&str>); 5] = [
        (&[("HOME", "/home/me")], Some("/home/me/.local/share/stepgate")),
        (&[("HOME", "/home/me"), ("XDG_DATA_HOME", "/data/me")], Some("/data/me/stepgate")),
        (
            &[("HOME", "/home/me"), ("XDG_DATA_HOME", "data")],
            Some("/home/me/.local/share/stepgate"),
        ),
        (&[("HOME", "")], None),
        (&[], None),
    ];
    for (variables, expected) in rows {
        let look = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        assert_eq!(by_default(look).ok().as_deref(), expected.map(Path::new), "{variables:?}");
    }
}
