//! Holes that were put into policies on purpose: each is found, with a call that the engine confirms, and once it is
//! closed the claim is proven.

use stepgate_policy::symbolic::{Reached, Scene};
use stepgate_prove::{Claim, ClaimKind, OfAction, prove};

use crate::scenery::{claim, scenery, with_prover};
use ClaimKind::{NeedsPerson, Never};

struct Planted {
    name: &'static str,
    /// The policies with the hole.
    open: &'static str,
    /// The same without it.
    closed: &'static str,
    kind: ClaimKind,
    tools: &'static [&'static str],
    groups: &'static [&'static str],
    args: &'static [&'static str],
    when: Option<&'static str>,
    /// The budgets with the hole and without it.
    budgets: [&'static str; 2],
}

impl Planted {
    const fn new(
        name: &'static str,
        kind: ClaimKind,
        tools: &'static [&'static str],
        open: &'static str,
        closed: &'static str,
    ) -> Self {
        let (groups, args, when, budgets) = (&[], &[], None, [""; 2]);
        Self { name, open, closed, kind, tools, groups, args, when, budgets }
    }

    const fn args(self, args: &'static [&'static str]) -> Self {
        Self { args, ..self }
    }

    const fn groups(self, groups: &'static [&'static str]) -> Self {
        Self { groups, ..self }
    }

    const fn when(self, when: &'static str) -> Self {
        Self { when: Some(when), ..self }
    }

    const fn budgets(self, budgets: [&'static str; 2]) -> Self {
        Self { budgets, ..self }
    }

    fn claim(&self) -> Claim {
        let mut claim = claim(self.kind, self.tools);
        claim.who.groups = self.groups.iter().map(|group| (*group).to_owned()).collect();
        claim.args = self.args.iter().map(|test| test.parse().unwrap()).collect();
        claim.when = self.when.map(str::to_owned);
        claim
    }
}

const PLANTED: [Planted; 33] = [
    Planted::new(
        "a limit that is too high",
        NeedsPerson,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource) when { context.args.amount.lessThanOrEqual(decimal("1000.0")) };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource) when { context.args.amount.lessThanOrEqual(decimal("100.0")) };
           @approval("much money") permit (principal, action == Action::"bank.transfer", resource);"#,
    )
    .args(&["amount > 100"]),
    Planted::new(
        "a limit that is a cent too high",
        NeedsPerson,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource) when { context.args.amount.lessThanOrEqual(decimal("100.01")) };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource) when { context.args.amount.lessThan(decimal("100.01")) };"#,
    )
    .args(&["amount >= 100.01"]),
    Planted::new(
        "an optional argument that switches the question off",
        NeedsPerson,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("money") permit (principal, action == Action::"bank.transfer", resource) when { !(context.args has urgent) };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("money") permit (principal, action == Action::"bank.transfer", resource);"#,
    ),
    Planted::new(
        "a question that only one group is asked",
        NeedsPerson,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("money") permit (principal in Group::"interns", action == Action::"bank.transfer", resource);"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("money") permit (principal in Group::"interns", action == Action::"bank.transfer", resource);
           @approval("money") permit (principal in Group::"finance", action == Action::"bank.transfer", resource);"#,
    )
    .groups(&["finance"]),
    Planted::new(
        "a member of two groups",
        Never,
        &["music.set_volume"],
        r#"permit (principal in Group::"admins", action, resource);
           forbid (principal in Group::"interns", action == Action::"music.set_volume", resource) unless { principal in Group::"finance" };"#,
        r#"permit (principal in Group::"admins", action, resource);
           forbid (principal in Group::"interns", action == Action::"music.set_volume", resource);"#,
    )
    .groups(&["interns"]),
    Planted::new(
        "a label that was forgotten",
        NeedsPerson,
        &["mail.send"],
        r#"permit (principal, action == Action::"mail.send", resource);
           @approval("flow") permit (principal, action, resource) when { context.sends.contains(Label::"egress") && context.session.labels.contains(Label::"untrusted") };"#,
        r#"permit (principal, action == Action::"mail.send", resource);
           @approval("flow") permit (principal, action, resource) when { context.sends.contains(Label::"egress") && context.session.labels.containsAny([Label::"untrusted", Label::"secret"]) };"#,
    )
    .when(r#"context.session.labels.contains(Label::"secret")"#),
    Planted::new(
        "a window that is the wrong way round",
        Never,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);
           forbid (principal, action, resource) when { context.schedule.contains(Window::"office") };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);
           forbid (principal, action, resource) unless { context.schedule.contains(Window::"office") };"#,
    )
    .when(r#"!context.schedule.contains(Window::"office")"#),
    Planted::new(
        "a file that is renamed into a directory that nothing may be written to",
        Never,
        &["RENAME_FILE"],
        r#"permit (principal, action == Action::"RENAME_FILE", resource in Path::"/sandbox");
           forbid (principal, action, resource in Path::"/sandbox/public") unless { action == Action::"RENAME_FILE" };"#,
        r#"permit (principal, action == Action::"RENAME_FILE", resource in Path::"/sandbox");
           forbid (principal, action, resource in Path::"/sandbox/public");"#,
    )
    .when(r#"context.args.destination like "/sandbox/public/*""#),
    Planted::new(
        "a prefix that is no directory",
        Never,
        &["WRITE_FILE"],
        r#"permit (principal, action == Action::"WRITE_FILE", resource) when { context.args.path like "/sandbox/reports*" };"#,
        r#"permit (principal, action == Action::"WRITE_FILE", resource) when { context.args.path like "/sandbox/reports/*" };"#,
    )
    .when(r#"!(resource in Path::"/sandbox/reports")"#),
    Planted::new(
        "and before or",
        Never,
        &["music.set_volume"],
        r#"permit (principal, action == Action::"music.set_volume", resource)
           when { principal in Group::"finance" || principal in Group::"admins" && context.args.volume <= 10 };"#,
        r#"permit (principal, action == Action::"music.set_volume", resource)
           when { (principal in Group::"finance" || principal in Group::"admins") && context.args.volume <= 10 };"#,
    )
    .args(&["volume > 10"]),
    Planted::new(
        "an exception for one principal",
        Never,
        &["DELETE_FILE"],
        r#"permit (principal, action in Action::"core", resource);
           forbid (principal, action == Action::"DELETE_FILE", resource) unless { principal == Principal::"janitor" };"#,
        r#"permit (principal, action in Action::"core", resource);
           forbid (principal, action == Action::"DELETE_FILE", resource);"#,
    ),
    Planted::new(
        "negative numbers",
        Never,
        &["shop.order"],
        r#"permit (principal, action == Action::"shop.order", resource) when { context.args.quantity <= 10 };"#,
        r#"permit (principal, action == Action::"shop.order", resource) when { context.args.quantity <= 10 && context.args.quantity > 0 };"#,
    )
    .args(&["quantity < 0"]),
    Planted::new(
        "nothing times something",
        NeedsPerson,
        &["shop.order"],
        r#"permit (principal, action == Action::"shop.order", resource) when { context.args.quantity >= 0 && context.args.price * context.args.quantity <= 1000 };"#,
        r#"permit (principal, action == Action::"shop.order", resource) when { context.args.quantity >= 1 && context.args.quantity <= 1000 && context.args.price >= 0 && context.args.price <= 1000000 && context.args.price * context.args.quantity <= 1000 };"#,
    )
    .args(&["price > 1000"]),
    Planted::new(
        "a cap that is too high",
        Never,
        &["music.set_volume"],
        r#"@cap("volume <= 60") permit (principal, action == Action::"music.set_volume", resource);"#,
        r#"@cap("volume <= 40") permit (principal, action == Action::"music.set_volume", resource);"#,
    )
    .args(&["volume > 40"]),
    Planted::new(
        "a permit beside the one with the cap",
        Never,
        &["music.set_volume"],
        r#"@cap("volume <= 40") permit (principal in Group::"interns", action == Action::"music.set_volume", resource);
           permit (principal in Group::"finance", action == Action::"music.set_volume", resource);"#,
        r#"@cap("volume <= 40") permit (principal in Group::"interns", action == Action::"music.set_volume", resource);
           permit (principal in Group::"finance", action == Action::"music.set_volume", resource) when { context.args.volume < 41 };"#,
    )
    .args(&["volume > 40"]),
    Planted::new(
        "one address of several",
        NeedsPerson,
        &["mail.send"],
        r#"permit (principal, action == Action::"mail.send", resource);
           @approval("to the boss") permit (principal, action == Action::"mail.send", resource) when { context.args.to == ["boss@example.com"] };"#,
        r#"permit (principal, action == Action::"mail.send", resource);
           @approval("to the boss") permit (principal, action == Action::"mail.send", resource) when { context.args.to.contains("boss@example.com") };"#,
    )
    .args(&["to contains boss@example.com"]),
    Planted::new(
        "a tool that only reads, and sends",
        NeedsPerson,
        &[],
        r#"permit (principal, action in Action::"read_only", resource);
           @approval("it changes something") permit (principal, action in Action::"execute_gated", resource);"#,
        r#"permit (principal, action in Action::"read_only", resource);
           @approval("it changes something") permit (principal, action in Action::"execute_gated", resource);
           @approval("it sends something out") permit (principal, action, resource) when { context.sends.contains(Label::"egress") };"#,
    )
    .when(r#"context.sends.contains(Label::"egress")"#),
    Planted::new(
        "a name in capitals",
        Never,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);
           forbid (principal, action == Action::"bank.transfer", resource) when { context.args.to == "EVIL" };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);
           forbid (principal, action == Action::"bank.transfer", resource) when { context.args.to == "EVIL" || context.args.to == "evil" };"#,
    )
    .args(&["to = evil"]),
    Planted::new(
        "what is unseen is permitted",
        Never,
        &["vault.store"],
        r#"permit (principal, action == Action::"vault.store", resource) when { context.unseen.contains("extra") };"#,
        r#"permit (principal, action == Action::"vault.store", resource) when { context.unseen.contains("extra") && !context.unseen.contains("secret") };"#,
    ),
    Planted::new(
        "a group of tools with one too many",
        NeedsPerson,
        &["notes.add"],
        r#"permit (principal, action in [Action::"draft", Action::"read_only"], resource);"#,
        r#"permit (principal, action in Action::"read_only", resource);
           @approval("it is remembered") permit (principal, action in Action::"draft", resource);"#,
    ),
    Planted::new(
        "a member of an object",
        NeedsPerson,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("urgent") permit (principal, action == Action::"bank.transfer", resource)
           when { context.args has options && context.args.options has priority && context.args.options.priority > 5 };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("urgent") permit (principal, action == Action::"bank.transfer", resource)
           when { context.args has options && context.args.options has priority && context.args.options.priority >= 5 };"#,
    )
    .args(&["options.priority >= 5"]),
    Planted::new(
        "a whole server",
        Never,
        &["bank.transfer"],
        r#"permit (principal, action, resource in Server::"bank");"#,
        r#"permit (principal, action, resource in Server::"bank") when { context.mode == "read_only" };"#,
    ),
    Planted::new(
        "a file with labels of its own",
        Never,
        &["READ_FILE"],
        r#"permit (principal, action == Action::"READ_FILE", resource);
           forbid (principal, action, resource) when { context.reads == [Label::"personal", Label::"secret"] };"#,
        r#"permit (principal, action == Action::"READ_FILE", resource);
           forbid (principal, action, resource) when { context.reads.contains(Label::"secret") };"#,
    )
    .when(r#"context.reads.contains(Label::"secret")"#),
    Planted::new(
        "the sandbox itself",
        Never,
        &["LIST_FILES"],
        r#"permit (principal, action == Action::"LIST_FILES", resource);
           forbid (principal, action == Action::"LIST_FILES", resource) when { context.args.path like "/sandbox/*" };"#,
        r#"permit (principal, action == Action::"LIST_FILES", resource);
           forbid (principal, action, resource in Path::"/sandbox");"#,
    ),
    Planted::new(
        "a default that is not asked for",
        Never,
        &["web.fetch"],
        r#"permit (principal, action == Action::"web.fetch", resource) when { context.args has method && context.args.method == "GET" };"#,
        r#"permit (principal, action == Action::"web.fetch", resource) when { context.args has method && context.args.method == "POST" };"#,
    )
    .args(&["method = GET"]),
    Planted::new(
        "a forbid about another tool",
        Never,
        &["bank.transfer"],
        r#"permit (principal, action in Action::"execute_gated", resource);
           forbid (principal, action == Action::"bank.balance", resource);"#,
        r#"permit (principal, action in Action::"execute_gated", resource);
           forbid (principal, action == Action::"bank.transfer", resource);"#,
    ),
    Planted::new(
        "a question that comes a percent too late",
        NeedsPerson,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("nearly used up") permit (principal, action == Action::"bank.transfer", resource)
           when { context.used has payments && context.used.payments.percent > 80 };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("nearly used up") permit (principal, action == Action::"bank.transfer", resource)
           when { context.used has payments && context.used.payments.percent >= 80 };"#,
    )
    .when("context.used has payments && context.used.payments.percent >= 80")
    .budgets([PAYMENTS, PAYMENTS]),
    Planted::new(
        "a question about what is used before the call",
        NeedsPerson,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("nearly used up") permit (principal, action == Action::"bank.transfer", resource)
           when { context.used has payments && context.used.payments.before.greaterThan(decimal("80.0")) };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);
           @approval("nearly used up") permit (principal, action == Action::"bank.transfer", resource)
           when { context.used has payments && context.used.payments.after.greaterThan(decimal("80.0")) };"#,
    )
    .when("context.used has payments && context.used.payments.after.greaterThan(decimal(\"80.0\"))")
    .budgets([PAYMENTS, PAYMENTS]),
    Planted::new(
        "a budget that is too large",
        Never,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);"#,
        r#"permit (principal, action == Action::"bank.transfer", resource);"#,
    )
    .args(&["amount > 100"])
    .budgets(["[budget.payments]\nargument = 'amount'\nlimit = '100.01'\nper = 'principal'\nwindow = 'day'\ntools = ['bank.transfer']", PAYMENTS]),
    Planted::new(
        "a budget that does not cover everyone",
        Never,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource);"#,
        r#"permit (principal in Group::"finance", action == Action::"bank.transfer", resource);"#,
    )
    .args(&["amount > 100"])
    .budgets([FINANCE, FINANCE]),
    Planted::new(
        "a count that begins at one",
        Never,
        &["music.set_volume"],
        r#"permit (principal, action == Action::"music.set_volume", resource)
           when { context.used has calls && context.used.calls.before.lessThanOrEqual(decimal("3.0")) };"#,
        r#"permit (principal, action == Action::"music.set_volume", resource)
           when { context.used has calls && context.used.calls.after.lessThanOrEqual(decimal("3.0")) };"#,
    )
    .when("context.used has calls && context.used.calls.before.greaterThanOrEqual(decimal(\"3.0\"))")
    .budgets(["[budget.calls]\nlimit = 100\nper = 'session'\nwindow = 'ever'\ntools = ['music.set_volume']"; 2]),
    Planted::new(
        "a step too many",
        Never,
        &["notes.add"],
        r#"permit (principal, action == Action::"notes.add", resource) when { context.session.steps <= 10 };"#,
        r#"permit (principal, action == Action::"notes.add", resource) when { context.session.steps < 10 };"#,
    )
    .when("context.session.steps >= 10"),
    Planted::new(
        "a session that was opened at night",
        Never,
        &["bank.transfer"],
        r#"permit (principal, action == Action::"bank.transfer", resource) when { context.schedule.contains(Window::"office") };"#,
        r#"permit (principal, action == Action::"bank.transfer", resource)
           when { context.schedule.contains(Window::"office") && context.session.opened.contains(Window::"office") };"#,
    )
    .when("!context.session.opened.contains(Window::\"office\")"),
];

const PAYMENTS: &str = "[budget.payments]\nargument = 'amount'\nlimit = '100.00'\nper = 'principal'\nwindow = 'day'\ntools = ['bank.transfer']";
const FINANCE: &str = "[budget.payments]\nargument = 'amount'\nlimit = '100.00'\nper = 'principal'\nwindow = 'day'\ngroups = ['finance']\ntools = ['bank.transfer']";

#[test]
fn each_planted_hole_is_found_and_each_closed_one_is_proven() {
    let scenery = scenery();
    for planted in &PLANTED {
        let (name, claim) = (planted.name, planted.claim());
        let [with_hole, without] = planted.budgets;
        let open = scenery.set_with(planted.open, with_hole);
        let closed = scenery.set_with(planted.closed, without);
        let world = scenery.world(&[&open]);
        let (found, proven) = with_prover(async |prover| {
            let found = prove(prover, &world, &open, &claim, |_| {}).await;
            (found, prove(prover, &scenery.world(&[&closed]), &closed, &claim, |_| {}).await)
        });
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        let proven = proven.unwrap_or_else(|error| panic!("{name}: {error}"));
        let refuted = found.actions.iter().find_map(|of| match of {
            OfAction::Refuted { example, .. } => Some(example),
            OfAction::Proven { .. } | OfAction::Undecided { .. } => None,
        });
        let Some(example) = refuted else { panic!("{name}: not found: {found:?}") };
        let scene = Scene::new(&world, &example.action, &[&open], &[]).unwrap().unwrap();
        // Asked again here, so that a prover which confirms nothing is noticed.
        let reached = scene.reached(&open, example).unwrap();
        match claim.kind {
            NeedsPerson => assert_eq!(reached, Reached::Done, "{name}: {example:?}"),
            Never => assert!(matches!(reached, Reached::Done | Reached::Asked(_)), "{name}"),
        }
        assert!(proven.is_proven(), "{name}: still open: {proven:?}");
    }
}
