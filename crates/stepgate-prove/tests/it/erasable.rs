//! What a set makes erasable is hidden in proofs, too.

use stepgate_policy::PolicySet;
use stepgate_prove::{Change, ChangeKind, ClaimKind, RuleFinding, diff, prove, rules};

use crate::scenery::{claim, scenery, with_prover};

const PLAIN: &str = r#"@id("send") permit (principal, action == Action::"mail.send", resource);"#;
const ERASING: &str = r#"@id("send") @erasable("to, subject") permit (principal, action == Action::"mail.send", resource);"#;
const READING: &str = r#"@id("ours") forbid (principal, action == Action::"mail.send", resource)
    when { context.args.to.contains("stranger") };"#;

/// The changes of `mail.send`, and what is not known about them.
fn changes(old: &PolicySet, new: &PolicySet) -> (Vec<ChangeKind>, Vec<String>) {
    let scenery = scenery();
    with_prover(async |prover| {
        let world = scenery.world(&[old, new]);
        let difference = diff(prover, &world, old, new, |_| {}).await.unwrap();
        let of = difference.actions.iter().find(|it| it.action == "mail.send").unwrap();
        let kinds = of.changes.iter().map(|change: &Change| change.kind).collect();
        (kinds, of.undecided.clone())
    })
}

#[test]
fn a_policy_that_reads_what_another_one_makes_erasable_denies_in_proofs_as_in_decisions() {
    let scenery = scenery();
    let reading = r#"permit (principal, action == Action::"mail.send", resource) when { context.args == context.args };"#;
    for (policies, expected) in [
        (PLAIN.to_owned(), false),
        (ERASING.to_owned(), false),
        (format!("{ERASING}{reading}"), true),
    ] {
        let set = scenery.set(&policies);
        let proof = with_prover(async |prover| {
            let claim = claim(ClaimKind::Never, &["mail.send"]);
            prove(prover, &scenery.world(&[&set]), &set, &claim, |_| {}).await.unwrap()
        });
        assert_eq!((proof.is_proven(), proof.is_refuted()), (expected, !expected), "{policies}");
    }
}

#[test]
fn sets_that_differ_in_what_is_erasable_decide_alike_unless_a_policy_reads_it() {
    let scenery = scenery();
    let set = |policies: &str| scenery.set(policies);
    let found = changes(&set(PLAIN), &set(ERASING));
    assert_eq!(found, (vec![], vec![]));
    let (kinds, undecided) = changes(&set(&format!("{PLAIN}{READING}")), &set(ERASING));
    let expected = "only one of the sets makes `to` erasable, and `ours` asks for it: what it sees is another thing in each";
    assert_eq!((kinds, undecided), (vec![], vec![expected.to_owned()]));
}

#[test]
fn a_policy_that_only_makes_arguments_erasable_is_needed() {
    let scenery = scenery();
    let forget = r#"@id("forget") @erasable("to") permit (principal in Group::"finance", action == Action::"mail.send", resource);"#;
    for (policies, expected) in [
        (forget.to_owned(), RuleFinding::Needed),
        (forget.replace("@erasable(\"to\")", ""), RuleFinding::ChangesNothing),
    ] {
        let set = scenery.set(&format!("{PLAIN}{policies}"));
        let reports = with_prover(async |prover| {
            rules(prover, &scenery.world(&[&set]), &set, |_| {}).await.unwrap()
        });
        assert_eq!(reports[1].finding, expected);
    }
}
