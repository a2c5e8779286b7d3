use std::collections::HashSet;

use super::{Chains, broken};
use crate::digest::Digest;
use crate::ids::{PrincipalId, RunId, SessionId};
use crate::session::{Head, Link, LinkKind, Session, SessionKind};
use crate::time::Timestamp;
use crate::verify::SavedHead;

fn run_id() -> RunId {
    "01893b6e-7a00-7000-8000-000000000001".parse().unwrap()
}

fn session_id() -> SessionId {
    "01893b6e-7a00-7000-8000-000000000002".parse().unwrap()
}

fn other_session_id() -> SessionId {
    "01893b6e-7a00-7000-8000-000000000003".parse().unwrap()
}

fn body() -> Digest {
    Digest::of_bytes(b"body")
}

fn after(head: &Head) -> Link {
    Link::after(head, session_id(), LinkKind::Event, Some(run_id()), body())
}

/// So many links of one chain.
fn links(count: usize) -> Vec<Link> {
    let next = |link: &Link| Some(after(&link.head()));
    std::iter::successors(Some(after(&Head::EMPTY)), next).take(count).collect()
}

fn chains(links: &[Link]) -> Chains {
    let mut chains = Chains::default();
    for link in links {
        chains.links.entry(session_id()).or_default().push(*link);
    }
    chains
}

fn session(head: Head) -> Session {
    Session {
        session_id: session_id(),
        principal_id: PrincipalId::parse("agent").unwrap(),
        kind: SessionKind::Default,
        node_id: None,
        ts: Timestamp::from_millisecond(0),
        head,
        last_step_index: 0,
    }
}

/// The links, the end in the session's row, the problems, and the last link where it is after that end.
type Row<'a> = (Vec<Link>, Head, &'a [&'a str], Option<u64>);

#[test]
fn a_chain_is_whole_in_any_order_and_each_defect_is_named() {
    let whole = links(4);
    let [first, second, third, fourth] = whole[..] else { panic!("four links") };
    let head = third.head();
    let other = Digest::of_bytes(b"other");
    let at = |number| Head { number, ..head };
    let renamed = Link { prev: other, ..second };
    let rows: [Row<'_>; 10] = [
        (vec![], Head::EMPTY, &[], None),
        (vec![third, first, second], head, &[], None),
        (whole.clone(), head, &[], Some(4)),
        (vec![first, second], head, &["ends at link 3 and its links end at 2"], None),
        (vec![first, second], second.head(), &[], None),
        (vec![first, third], head, &["follows link 1"], None),
        (vec![first, second, second, third], head, &["follows link 2"], None),
        (vec![first, renamed, third], head, &["does not name the link before it"], None),
        (vec![first, second, third], at(4), &["ends at link 4 and its links end at 3"], None),
        (
            vec![first, second, third],
            Head { digest: other, ..head },
            &["ends at link 3 and its links end at 3"],
            None,
        ),
    ];
    assert_eq!(fourth.number, 4);
    for (links, head, expected, ahead) in rows {
        let (problems, beyond) = chains(&links).check(&session(head));
        let found: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!((&found[..], beyond), (expected, ahead), "{links:?} {head:?}");
    }
}

#[test]
fn a_link_has_the_digest_of_what_it_links_and_a_number_above_zero() {
    let link = links(2)[1];
    let other = Digest::of_bytes(b"other");
    let holds = |session_id, kind, run_id, body, link| {
        let problem = broken(session_id, kind, run_id, body, link);
        let added = Chains::default().add(session_id, kind, run_id, body, link);
        assert_eq!(added, problem);
        problem.is_none()
    };
    let (session_id, kind, run) = (session_id(), LinkKind::Event, Some(run_id()));
    assert!(holds(session_id, kind, run, body(), link));
    assert!(!holds(other_session_id(), kind, run, body(), link));
    assert!(!holds(session_id, LinkKind::Close, run, body(), link));
    assert!(!holds(session_id, kind, None, body(), link));
    assert!(!holds(session_id, kind, run, other, link));
    assert!(!holds(session_id, kind, run, body(), Link { number: 3, ..link }));
    assert!(!holds(session_id, kind, run, body(), Link { number: 0, ..link }));
    assert!(!holds(session_id, kind, run, body(), Link { prev: other, ..link }));
    assert!(!holds(session_id, kind, run, body(), Link { digest: other, ..link }));
}

#[test]
fn links_of_a_session_without_a_row_are_found() {
    let chains = chains(&links(1));
    assert_eq!(chains.outside(&HashSet::from([session_id()])), []);
    assert_eq!(chains.outside(&HashSet::from([other_session_id()])).len(), 1);
}

#[test]
fn a_saved_head_stands_where_the_chain_has_that_link() {
    let whole = links(3);
    let chains = chains(&whole);
    let other = Digest::of_bytes(b"other");
    let rows = [
        (session_id(), 1, whole[0].digest, true),
        (session_id(), 3, whole[2].digest, true),
        (session_id(), 3, other, false),
        (session_id(), 4, whole[2].digest, false),
        // The head of a chain without links.
        (session_id(), 0, Digest::ZERO, true),
        (other_session_id(), 0, Digest::ZERO, true),
        (other_session_id(), 1, whole[0].digest, false),
    ];
    for (session_id, number, digest, stands) in rows {
        let problems = chains.against(&[SavedHead { session_id, number, digest }]);
        assert_eq!(problems.is_empty(), stands, "{session_id} {number} {digest}");
    }
}
