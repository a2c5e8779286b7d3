use serde_json::json;

use super::{Head, Link, LinkKind, SessionKind, Uniqueness, open_body};
use crate::digest::Digest;
use crate::ids::{RunId, SessionId};

fn run_id() -> RunId {
    "01893b6e-7a00-7000-8000-000000000001".parse().unwrap()
}

fn session_id() -> SessionId {
    "01893b6e-7a00-7000-8000-000000000002".parse().unwrap()
}

#[test]
fn kinds_are_spelled_as_stores_have_them_and_read_back() {
    let rows = [
        (SessionKind::System, "system", Uniqueness::InStore),
        (SessionKind::Default, "default", Uniqueness::ForPrincipal),
        (SessionKind::Named, "named", Uniqueness::None),
    ];
    for (kind, text, uniqueness) in rows {
        assert_eq!((kind.as_str(), kind.uniqueness()), (text, uniqueness));
        assert_eq!(SessionKind::parse(text), Some(kind));
    }
    assert_eq!(rows.map(|(kind, ..)| kind), SessionKind::ALL);
    assert_eq!(SessionKind::parse("System"), None);
}

/// A link in the form that docs/verifying.md gives to auditors who check it without Stepgate.
#[test]
fn a_link_has_the_next_number_and_the_digest_of_its_six_members() {
    let body = Digest::of_bytes(b"body");
    let mut head = Head::EMPTY;
    for (number, kind, spelled, run) in [
        (1, LinkKind::Open, "OPEN", Some(run_id())),
        (2, LinkKind::Close, "CLOSE", Some(run_id())),
        (3, LinkKind::Event, "EVENT", None),
    ] {
        let link = Link::after(&head, session_id(), kind, run, body);
        assert_eq!((link.number, link.prev), (number, head.digest));
        let covered = json!({
            "body_digest": body, "kind": spelled, "number": number, "prev": head.digest,
            "run_id": run, "session_id": session_id(),
        });
        assert_eq!(link.digest, Digest::of(&covered));
        head = link.head();
        assert_eq!(head, Head { number, digest: link.digest });
    }
}

#[test]
fn the_body_of_an_open_link_covers_entry_arrival_and_events() {
    let [entry, arrival, events] =
        [b"entry".as_slice(), b"arrival", b"events"].map(Digest::of_bytes);
    let covered =
        json!({ "arrival_digest": arrival, "entry_digest": entry, "events_digest": events });
    assert_eq!(open_body(entry, arrival, events), Digest::of(&covered));
}
