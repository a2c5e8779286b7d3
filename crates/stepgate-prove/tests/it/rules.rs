//! Policies that never match, and policies that change nothing.

use stepgate_policy::PolicySet;
use stepgate_prove::{RuleFinding, rules};

use crate::scenery::{scenery, with_prover};

fn findings(set: &PolicySet) -> Vec<(String, RuleFinding)> {
    let scenery = scenery();
    let reports =
        with_prover(async |prover| rules(prover, &scenery.world(&[]), set, |_| {}).await.unwrap());
    reports.into_iter().map(|report| (report.name, report.finding)).collect()
}

#[test]
fn what_never_matches_and_what_changes_nothing_is_named() {
    let policies = r#"
        @id("volume") permit (principal, action == Action::"music.set_volume", resource) when { context.args.volume <= 30 };
        @id("contradicts-itself") permit (principal, action == Action::"music.set_volume", resource)
        when { context.args.volume > 30 && context.args.volume < 31 };
        @id("beyond-the-schema") forbid (principal, action == Action::"music.set_volume", resource) when { context.args.volume > 100 };
        @id("less-than-another") permit (principal in Group::"finance", action == Action::"music.set_volume", resource)
        when { context.args.volume <= 10 };
        @id("other-tool") permit (principal, action == Action::"bank.balance", resource in Server::"mail");
        @id("omits-a-default") permit (principal, action == Action::"web.fetch", resource) when { !(context.args has method) };
        @id("not-its-label") permit (principal, action == Action::"bank.balance", resource) when { context.sends.contains(Label::"money") };
        @id("two-places") permit (principal, action == Action::"READ_FILE", resource in Path::"/sandbox/a")
        when { resource in Path::"/sandbox/b" };
        @id("needed") permit (principal, action == Action::"READ_FILE", resource in Path::"/sandbox/a");
        @id("reads-a-redacted-argument") permit (principal, action == Action::"vault.store", resource) when { context.args == context.args };
    "#;
    let scenery = scenery();
    let found = findings(&scenery.set(policies));
    let expected = [
        ("volume", RuleFinding::Needed),
        ("contradicts-itself", RuleFinding::NeverMatches),
        ("beyond-the-schema", RuleFinding::NeverMatches),
        ("less-than-another", RuleFinding::ChangesNothing),
        ("other-tool", RuleFinding::NeverMatches),
        ("omits-a-default", RuleFinding::NeverMatches),
        ("not-its-label", RuleFinding::NeverMatches),
        ("two-places", RuleFinding::NeverMatches),
        ("needed", RuleFinding::Needed),
        // It matches, and every call is denied all the same, because it cannot see what it reads.
        ("reads-a-redacted-argument", RuleFinding::ChangesNothing),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_policy_about_tools_that_do_not_exist_yet_waits() {
    let mut scenery = scenery();
    scenery.tools.retain(|tool| tool.name.server() != "notes");
    let set =
        scenery.set(r#"@id("drafts") permit (principal, action in Action::"draft", resource);"#);
    let reports =
        with_prover(async |prover| rules(prover, &scenery.world(&[]), &set, |_| {}).await.unwrap());
    assert_eq!(reports[0].finding, RuleFinding::Waits);
    // So does one that cannot match any other tool than one that is not accepted.
    let mut scenery = self::scenery();
    scenery.tools[0].is_accepted = false;
    let set = scenery.set(
        r#"@id("money") forbid (principal, action in Action::"execute_gated", resource) when { context.sends.contains(Label::"money") };"#,
    );
    let world = scenery.world(&[]);
    assert_eq!(world.left_out(), ["bank.transfer"]);
    let reports = with_prover(async |prover| rules(prover, &world, &set, |_| {}).await.unwrap());
    assert_eq!(reports[0].finding, RuleFinding::Waits);
}
