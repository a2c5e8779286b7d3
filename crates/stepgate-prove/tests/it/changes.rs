//! Differences between two sets, one of each kind, and sets that only look different.

use stepgate_prove::{ChangeKind, diff};

use crate::scenery::{scenery, with_prover};

/// The changes for an action, and how many questions they took.
fn changes(old: &str, new: &str, action: &str) -> (Vec<ChangeKind>, Vec<String>, u64) {
    let scenery = scenery();
    let (old, new) = (scenery.set(old), scenery.set(new));
    with_prover(async |prover| {
        let difference = diff(prover, &scenery.world(&[]), &old, &new, |_| {}).await.unwrap();
        let of = difference.actions.iter().find(|it| it.action == action).unwrap();
        let kinds = of.changes.iter().map(|change| change.kind).collect();
        (kinds, of.undecided.clone(), prover.solver().asked())
    })
}

fn check(old: &str, new: &str, action: &str, expected: &[ChangeKind]) {
    let (found, undecided, _) = changes(old, new, action);
    assert_eq!(
        (found.as_slice(), undecided.as_slice()),
        (expected, [].as_slice()),
        "{old}\n---\n{new}"
    );
}

const ALL: &str = r#"permit (principal, action == Action::"bank.transfer", resource);"#;
const ASK: &str =
    r#"@approval("money") permit (principal, action == Action::"bank.transfer", resource);"#;
const ASK_TWO: &str = r#"@approval("money") @quorum("2") permit (principal, action == Action::"bank.transfer", resource);"#;
const ASK_FINANCE: &str = r#"@approval("money") @approvers("finance") permit (principal, action == Action::"bank.transfer", resource);"#;
const NOTHING: &str = r#"permit (principal, action == Action::"THINK", resource);"#;

#[test]
fn each_kind_of_change_is_found() {
    use ChangeKind::*;
    let rows: [(&str, &str, &[ChangeKind]); 12] = [
        (NOTHING, ALL, &[DoneWithoutPerson]),
        (ASK, ALL, &[DoneWithoutPerson]),
        (NOTHING, ASK, &[DoneWithPerson]),
        (ALL, NOTHING, &[Refused]),
        (ASK, NOTHING, &[Refused]),
        (ALL, ASK, &[AsksPerson]),
        (ASK_TWO, ASK, &[FewerPeople]),
        (ASK, ASK_TWO, &[MorePeople]),
        (ASK_FINANCE, ASK, &[FewerPeople]),
        (ASK_FINANCE, ASK_TWO, &[FewerPeople, MorePeople]),
        (ASK, ASK_FINANCE, &[MorePeople]),
        (ALL, ALL, &[]),
    ];
    for (old, new, expected) in rows {
        check(old, new, "bank.transfer", expected);
    }
}

#[test]
fn a_budget_that_is_raised_permits_more_and_one_that_is_lowered_less() {
    use ChangeKind::*;
    let budget = |limit: u32, more: &str| {
        format!(
            "[budget.payments]\nargument = 'amount'\nlimit = {limit}\nper = 'principal'\nwindow = 'day'\ntools = ['bank.transfer']\n{more}"
        )
    };
    let late = r#"permit (principal, action == Action::"bank.transfer", resource);
        @approval("much") permit (principal, action == Action::"bank.transfer", resource)
        when { context.used has payments && context.used.payments.percent > 50 };"#;
    let rows: [(&str, String, String, &[ChangeKind]); 6] = [
        (ALL, budget(100, ""), budget(200, ""), &[DoneWithoutPerson]),
        (ALL, budget(200, ""), budget(100, ""), &[Refused]),
        (ALL, budget(100, ""), String::new(), &[DoneWithoutPerson]),
        (ALL, budget(100, ""), budget(100, "groups = ['finance']"), &[DoneWithoutPerson]),
        (ALL, budget(100, ""), budget(100, ""), &[]),
        // The question comes later, and more is done after it.
        (late, budget(100, ""), budget(200, ""), &[DoneWithoutPerson, DoneWithPerson]),
    ];
    let scenery = scenery();
    for (policies, old, new, expected) in rows {
        let sets = [&old, &new].map(|budgets| scenery.set_with(policies, budgets));
        let world = scenery.world(&[&sets[0], &sets[1]]);
        let difference = with_prover(async |prover| {
            diff(prover, &world, &sets[0], &sets[1], |_| {}).await.unwrap()
        });
        let of = difference.actions.iter().find(|it| it.action == "bank.transfer").unwrap();
        let found: Vec<ChangeKind> = of.changes.iter().map(|change| change.kind).collect();
        assert_eq!((found.as_slice(), of.undecided.len()), (expected, 0), "{old}\n{new}\n{of:?}");
    }
}

#[test]
fn a_cap_that_is_raised_permits_more_and_one_that_is_lowered_less() {
    let capped = |max: u32| {
        format!(
            r#"@cap("volume <= {max}") permit (principal, action == Action::"music.set_volume", resource);"#
        )
    };
    let (low, high) = (capped(30), capped(60));
    check(&low, &high, "music.set_volume", &[ChangeKind::DoneWithoutPerson]);
    check(&high, &low, "music.set_volume", &[ChangeKind::Refused]);
    // As high as the argument can be.
    check(&capped(100), &capped(200), "music.set_volume", &[]);
}

#[test]
fn policies_that_are_written_otherwise_and_decide_alike_are_equal() {
    let rows = [
        (
            r#"permit (principal, action == Action::"music.set_volume", resource) when { context.args.volume < 11 };"#,
            r#"permit (principal, action == Action::"music.set_volume", resource) unless { context.args.volume > 10 };"#,
            "music.set_volume",
        ),
        // The schema allows nothing above 100.
        (
            r#"permit (principal, action == Action::"music.set_volume", resource);"#,
            r#"permit (principal, action == Action::"music.set_volume", resource) when { context.args.volume <= 100 };"#,
            "music.set_volume",
        ),
        (
            r#"permit (principal, action == Action::"READ_FILE", resource in Path::"/sandbox/a");"#,
            r#"permit (principal, action == Action::"READ_FILE", resource)
               when { context.args.path == "/sandbox/a" || context.args.path like "/sandbox/a/*" };"#,
            "READ_FILE",
        ),
        // Both paths of a rename are asked about.
        (
            r#"permit (principal, action == Action::"RENAME_FILE", resource in Path::"/sandbox/a");"#,
            r#"permit (principal, action == Action::"RENAME_FILE", resource)
               when { context.args.source like "/sandbox/a/*" && context.args.destination like "/sandbox/a/*" ||
                      context.args.source == "/sandbox/a" && resource in Path::"/sandbox/a" ||
                      context.args.destination == "/sandbox/a" && resource in Path::"/sandbox/a" };"#,
            "RENAME_FILE",
        ),
        (
            r#"permit (principal, action == Action::"web.fetch", resource) when { context.args has method };"#,
            r#"permit (principal, action == Action::"web.fetch", resource);"#,
            "web.fetch",
        ),
        (
            r#"permit (principal, action, resource) when { context.mode == "draft" };"#,
            r#"permit (principal, action in Action::"draft", resource);"#,
            "notes.add",
        ),
    ];
    for (old, new, action) in rows {
        check(old, new, action, &[]);
    }
}

#[test]
fn names_reasons_and_order_are_no_difference_and_need_no_solver() {
    let old = format!("@id(\"one\") {ALL}\n{ASK}");
    let new = format!("{}\n@id(\"two\") {ALL}", ASK.replace("money", "another reason"));
    assert_eq!(changes(&old, &new, "bank.transfer"), (vec![], vec![], 0));
}

#[test]
fn a_policy_that_can_overflow_leaves_the_comparison_undecided() {
    let sum = r#"permit (principal, action == Action::"shop.order", resource)
                 when { context.args.price * context.args.quantity <= 1000 };"#;
    let (found, undecided, _) = changes(sum, NOTHING, "shop.order");
    assert_eq!(found, [ChangeKind::Refused]);
    assert!(undecided[0].contains("can overflow"), "{undecided:?}");
    // Within the limits of the schema this one cannot: policies see whole numbers up to 2^53 - 1.
    let sum = sum.replace('*', "+");
    let (found, undecided, _) = changes(&sum, NOTHING, "shop.order");
    assert_eq!((found, undecided), (vec![ChangeKind::Refused], vec![]));
}
