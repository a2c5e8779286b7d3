use super::*;

const ID: &str = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";

fn capabilities(opens_pages: bool, knows_tasks: bool) -> ClientAbilities {
    ClientAbilities { version: ProtocolVersion::V_2025_11_25, opens_pages, knows_tasks }
}

#[test]
fn a_sessions_name_says_what_its_client_can_do() {
    for (opens_pages, knows_tasks, flags) in
        [(false, false, ""), (true, false, "u"), (false, true, "t"), (true, true, "ut")]
    {
        let capabilities = capabilities(opens_pages, knows_tasks);
        let name = capabilities.name(ID.parse().unwrap());
        assert_eq!(name, format!("{ID}.2025-11-25.{flags}"));
        assert_eq!(session_of(&name), Some(ID.parse().unwrap()));
        assert_eq!(ClientAbilities::read(&name), Some(capabilities.clone()));
        // The name restores what the handshake said.
        assert_eq!(ClientAbilities::of(&capabilities.params()), capabilities);
    }
}

#[test]
fn a_name_that_no_handshake_gave_says_nothing() {
    let names = ["", "x", ID, &format!("{ID}.2025-11-25"), &format!("{ID}.1999-01-01.u")];
    for name in names.into_iter().chain([format!("{ID}.2025-11-25.x").as_str()]) {
        assert_eq!(ClientAbilities::read(name), None, "{name}");
    }
    assert_eq!(session_of("x.2025-11-25."), None);
}
