use super::*;

fn principal(name: &str) -> Holder {
    Holder::Principal(PrincipalId::parse(name).unwrap())
}

/// Takes one after the other until no more is given.
fn greedy(shares: &Arc<Shares>, name: &str, rank: Rank) -> Vec<Share> {
    std::iter::from_fn(|| shares.take(principal(name), rank)).collect()
}

#[test]
fn a_holder_gets_as_much_as_is_still_free() {
    // Of so many, with so many reserved: what each of three greedy agents gets, one after the other, and then an operator.
    for (most, reserved, agents, operator) in [
        (1024, 64, [480, 240, 120], 92),
        (1024, 0, [512, 256, 128], 64),
        (5, 2, [2, 1, 0], 1),
        (2, 64, [1, 0, 0], 1),
        (1, 64, [1, 0, 0], 0),
    ] {
        let shares = Shares::new(most, reserved);
        let got: Vec<_> =
            ["a", "b", "c"].map(|name| greedy(&shares, name, Rank::Ordinary)).into_iter().collect();
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), agents, "{most} {reserved}");
        assert_eq!(greedy(&shares, "olga", Rank::Reserve).len(), operator, "{most} {reserved}");
    }
}

#[test]
fn two_that_take_in_turns_get_a_third_each() {
    let shares = Shares::new(900, 0);
    let mut got = Vec::new();
    while let (Some(a), Some(b)) =
        (shares.take(principal("a"), Rank::Ordinary), shares.take(principal("b"), Rank::Ordinary))
    {
        got.extend([a, b]);
    }
    assert_eq!(got.len(), 600);
}

#[test]
fn what_is_dropped_is_free_again_and_what_is_refused_takes_nothing() {
    let shares = Shares::new(100, 0);
    let mut share = shares.begin(principal("a"), Rank::Ordinary);
    for (amount, is_given) in [(49, true), (1, true), (1, false), (0, true)] {
        assert_eq!(share.grow(amount), is_given, "{amount}");
    }
    assert_eq!(lock::locked(&shares.held).sum, 50);
    drop(share);
    let held = lock::locked(&shares.held);
    assert_eq!((held.sum, held.by.len()), (0, 0));
}
