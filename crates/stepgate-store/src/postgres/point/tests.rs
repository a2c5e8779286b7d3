//! The cache of sessions, and its limit.

use stepgate_core::ids::SessionId;
use uuid::Uuid;

use super::*;

fn session(number: usize) -> SessionId {
    SessionId::new(Uuid::from_u128(number as u128))
}

#[test]
fn only_so_many_sessions_are_remembered_and_those_that_are_asked_for_always() {
    let mut indexes = HashMap::new();
    for number in 0..3 * SESSIONS_MAX {
        make_room(&mut indexes);
        indexes.insert(session(number), Waiting { is_asked: number == 7, ..Waiting::default() });
        assert!(indexes.len() <= SESSIONS_MAX, "{number}");
    }
    assert!(indexes.contains_key(&session(7)));
}
