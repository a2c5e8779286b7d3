use serde_json::json;

use super::*;

fn principal(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

fn session(last: char) -> SessionId {
    format!("0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f1{last}").parse().unwrap()
}

#[test]
fn a_stop_covers_the_calls_of_its_target_and_no_others() {
    let (bot, other) = (principal("bot"), principal("other"));
    let call = CallParties { principal_id: &bot, session_id: session('0'), server: "mail" };
    for (target, is_covered) in [
        (StopTarget::All, true),
        (StopTarget::Principal(bot.clone()), true),
        (StopTarget::Principal(other), false),
        (StopTarget::Principal(principal("mail")), false),
        (StopTarget::Session(session('0')), true),
        (StopTarget::Session(session('1')), false),
        (StopTarget::Server("mail".into()), true),
        (StopTarget::Server("mai".into()), false),
        (StopTarget::Server("core".into()), false),
        (StopTarget::Server("bot".into()), false),
    ] {
        assert_eq!(target.covers(call), is_covered, "{target}");
    }
}

#[test]
fn a_stop_is_stored_in_one_form() {
    for (target, stored) in [
        (StopTarget::All, json!("all")),
        (StopTarget::Principal(principal("bot")), json!({ "principal": "bot" })),
        (StopTarget::Session(session('0')), json!({ "session": session('0') })),
        (StopTarget::Server("mail".into()), json!({ "server": "mail" })),
    ] {
        let order = StopOrder { note: None, stopped_by: principal("ada"), target };
        let value = serde_json::to_value(&order).unwrap();
        assert_eq!(value, json!({ "stopped_by": "ada", "target": stored }));
        assert_eq!(serde_json::from_value::<StopOrder>(value).unwrap(), order);
    }
}

#[test]
fn the_reason_names_who_stopped_it_and_why() {
    let order = |note: Option<&str>| StopOrder {
        note: note.map(str::to_owned),
        stopped_by: principal("ada"),
        target: StopTarget::All,
    };
    assert_eq!(order(None).reason(), "STOPPED: by ada");
    assert_eq!(order(Some("it runs wild")).reason(), "STOPPED: by ada, who noted: it runs wild");
}
