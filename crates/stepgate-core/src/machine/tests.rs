use super::{IllegalMove, Move, State, next};

/// The five legal transitions of spec 004; every other pair is illegal.
const LEGAL: [(State, Move, State); 5] = [
    (State::Pending, Move::Approve, State::Authorized),
    (State::Pending, Move::Deny, State::Denied),
    (State::Authorized, Move::Call, State::Executing),
    (State::Executing, Move::Succeed, State::Completed),
    (State::Executing, Move::Fail, State::Failed),
];

#[test]
fn of_the_thirty_pairs_exactly_five_are_legal() {
    let mut pairs = 0;
    for from in State::ALL {
        for by in Move::ALL {
            let expected = LEGAL
                .into_iter()
                .find(|(legal_from, legal_by, _)| (*legal_from, *legal_by) == (from, by))
                .map_or(Err(IllegalMove { from, by }), |(_, _, to)| Ok(to));
            assert_eq!(next(from, by), expected, "{from} {by:?}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, 30);
}

#[test]
fn a_state_is_terminal_if_and_only_if_nothing_leaves_it() {
    for state in State::ALL {
        let leaves = Move::ALL.into_iter().any(|by| next(state, by).is_ok());
        assert_eq!(state.is_terminal(), !leaves, "{state}");
    }
}

#[test]
fn no_two_moves_lead_into_one_state_and_none_into_pending() {
    for to in State::ALL {
        let ways = LEGAL.iter().filter(|(_, _, into)| *into == to).count();
        assert_eq!(ways, usize::from(to != State::Pending), "{to}");
    }
}

#[test]
fn states_are_spelled_as_the_specification_spells_them() {
    let spellings = ["PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "FAILED", "DENIED"];
    assert_eq!(State::ALL.map(State::as_str), spellings);
    for (state, text) in State::ALL.into_iter().zip(spellings) {
        assert_eq!(State::parse(text), Some(state));
        assert_eq!(state.to_string(), text);
        assert_eq!(serde_json::to_value(state).unwrap(), text);
        assert_eq!(State::parse(&text.to_lowercase()), None);
    }
    assert_eq!(State::parse(""), None);
}

#[test]
fn an_illegal_move_says_which() {
    let illegal = next(State::Denied, Move::Approve).unwrap_err();
    assert_eq!(illegal.to_string(), "DENIED does not allow Approve");
}
