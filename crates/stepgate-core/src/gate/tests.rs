use super::*;

#[test]
fn approvals_that_are_being_written_count_for_their_principal_and_for_all_until_they_are() {
    let parked = Parked::default();
    let [a, b] = ["a", "b"].map(|name| PrincipalId::parse(name).unwrap());
    let counts = |asking: &Asking| (asking.count, asking.total);
    let first = parked.begin_asking(&a);
    let second = parked.begin_asking(&b);
    let third = parked.begin_asking(&a);
    assert_eq!([counts(&first), counts(&second), counts(&third)], [(1, 1), (1, 2), (2, 3)]);
    drop(first);
    drop(second);
    assert_eq!(counts(&parked.begin_asking(&b)), (1, 2));
    drop(third);
    assert_eq!(counts(&parked.begin_asking(&a)), (1, 1));
}
