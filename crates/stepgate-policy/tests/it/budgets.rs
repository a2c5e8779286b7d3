//! Budgets: what `budgets.toml` can say, which calls a budget covers, what a call takes, and what policies see of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use stepgate_core::budget::Covering;
use stepgate_core::call::Call;
use stepgate_core::decimal::Decimal;
use stepgate_core::facts::{FactNames, Facts};
use stepgate_core::ids::SessionId;
use stepgate_core::ports::{Payer, Policy, PolicyDecision, PolicyRequest};
use stepgate_core::tool::Mode;
use stepgate_policy::{Nameable, PolicySet, Severity, ToolShape, Verdict, check};

use crate::world::{directory, principal, redacting_call, server_call, shape};

const PERMIT: &str = r#"@id("all") permit (principal, action, resource);"#;

/// A bank, and a printer that counts pages.
fn tools() -> Vec<ToolShape> {
    let mut pin = shape(
        "bank.set_pin",
        Mode::ExecuteGated,
        json!({ "type": "object", "properties": { "amount": { "type": "number" } } }),
    );
    pin.redacted = vec!["amount".to_owned()];
    vec![
        shape(
            "bank.send_money",
            Mode::ExecuteGated,
            json!({
                "type": "object",
                "properties": {
                    "amount": { "type": "number" },
                    "fee": { "type": "number", "default": 0.5 },
                    "tip": { "type": ["number", "null"], "default": null },
                    "to": { "type": "string" },
                },
                "required": ["amount"],
            }),
        ),
        shape("bank.balance", Mode::ReadOnly, json!({ "type": "object", "properties": {} })),
        pin,
        shape(
            "printer.print",
            Mode::ExecuteGated,
            json!({ "type": "object", "properties": { "pages": { "type": "integer" } } }),
        ),
    ]
}

fn names() -> FactNames {
    let groups = ["finance", "interns", "staff"].map(str::to_owned).into();
    FactNames { groups, ..FactNames::default() }
}

fn load(policies: &str, budgets: &str, cases: &str) -> Result<PolicySet, String> {
    let directory =
        directory(&[("p.cedar", policies), ("budgets.toml", budgets), ("p.cases.toml", cases)]);
    let (tools, facts) = (tools(), names());
    let set = PolicySet::load(directory.path(), Nameable { tools: &tools, facts: &facts });
    let shown = format!("{}/", directory.path().display());
    set.map_err(|error| error.to_string().replace(&shown, ""))
}

fn set(policies: &str, budgets: &str) -> PolicySet {
    load(policies, budgets, "").unwrap_or_else(|error| panic!("{error}"))
}

fn payments(more: &str) -> String {
    format!(
        "[budget.payments]\ntools = ['bank.send_money']\nargument = 'amount'\nlimit = '100.00'\n\
         per = 'principal'\nwindow = 'day'\n{more}"
    )
}

fn call(tool: &str, args: Value) -> Call {
    let Value::Object(args) = args else { panic!("not an object") };
    let shape = tools().into_iter().find(|shape| shape.name.as_str() == tool).unwrap();
    server_call(&shape, args)
}

fn decide(set: &PolicySet, who: &str, call: &Call, used: &[(&str, &str)]) -> PolicyDecision {
    let used = used.iter().map(|(name, used)| ((*name).to_owned(), decimal(used)));
    let facts = Facts { used: used.collect(), groups: groups_of(who), ..Facts::default() };
    set.decide(PolicyRequest { principal_id: &principal(who), call, facts: &facts })
}

fn groups_of(who: &str) -> BTreeSet<String> {
    let groups: &[&str] = match who {
        "ann" => &["finance", "staff"],
        "ian" => &["interns", "staff"],
        _ => &[],
    };
    groups.iter().map(|name| (*name).to_owned()).collect()
}

fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

fn due(decision: &PolicyDecision) -> Vec<(String, String)> {
    let due = decision.due.iter();
    due.map(|due| (due.terms.name.to_string(), due.amount.to_string())).collect()
}

/// The keys that a call is charged to, by budget.
fn keys(set: &PolicySet, who: &str, call: &Call) -> Vec<(String, Vec<String>)> {
    let (principal_id, groups) = (principal(who), groups_of(who));
    let session_id: SessionId = "0190a1b2-0000-7000-8000-000000000001".parse().unwrap();
    let payer = Payer { principal_id: &principal_id, session_id, groups: &groups };
    let budgets = Policy::budgets(set, payer, call).into_iter();
    let shown = |Covering { terms, keys }: Covering| {
        (terms.name.to_string(), keys.iter().map(ToString::to_string).collect())
    };
    budgets.map(shown).collect()
}

#[test]
fn a_call_takes_the_amount_that_the_tool_gets() {
    let set = set(PERMIT, &payments(""));
    let rows = [
        (json!({ "amount": 100 }), Ok("100.0")),
        (json!({ "amount": 1e2 }), Ok("100.0")),
        (json!({ "amount": 0.1 }), Ok("0.1")),
        (json!({ "amount": 0 }), Ok("0.0")),
        (
            json!({ "amount": 100.0001 }),
            Err("BUDGET: `payments`: 0.0 of 100.0 is used, and the call needs 100.0001"),
        ),
        (
            json!({ "amount": 0.00001 }),
            Err("BUDGET: `payments`: `amount` is more precise than four decimal places"),
        ),
        (
            json!({ "amount": 1e300 }),
            Err("BUDGET: `payments`: `amount` is beyond ±922337203685477.5807"),
        ),
        (json!({ "amount": -1 }), Err("BUDGET: `payments`: `amount` is negative")),
        (json!({ "amount": null }), Err("BUDGET: `payments`: `amount` is null")),
        (json!({ "amount": "5" }), Err("BUDGET: `payments`: `amount` is not a number")),
        (json!({}), Err("BUDGET: `payments`: `amount` is omitted, and it has no default")),
    ];
    for (args, expected) in rows {
        let decision = decide(&set, "ann", &call("bank.send_money", args.clone()), &[]);
        match expected {
            Ok(amount) => {
                assert_eq!(Verdict::of(&decision), Verdict::Permit, "{args}");
                assert_eq!(due(&decision), [("payments".to_owned(), amount.to_owned())], "{args}");
            }
            Err(why) => {
                assert_eq!(Verdict::of(&decision), Verdict::Deny, "{args}");
                assert_eq!(decision.detail.as_deref(), Some(why), "{args}");
                assert_eq!(decision.policies, ["budgets.toml#payments"]);
                assert_eq!(due(&decision), [], "{args}");
            }
        }
    }
}

#[test]
fn a_declared_default_is_taken_and_a_redacted_argument_denies() {
    let about = |argument: &str, tools: &str| {
        format!(
            "[budget.b]\ntools = [{tools}]\nargument = '{argument}'\nlimit = 10\nper = 'all'\nwindow = 'ever'"
        )
    };
    let fees = set(PERMIT, &about("fee", "'bank.send_money'"));
    let taken = |args: Value| due(&decide(&fees, "ann", &call("bank.send_money", args), &[]));
    assert_eq!(taken(json!({ "amount": 1 })), [("b".to_owned(), "0.5".to_owned())]);
    assert_eq!(taken(json!({ "amount": 1, "fee": 2 })), [("b".to_owned(), "2.0".to_owned())]);
    // A default of null is none.
    let tips = set(PERMIT, &about("tip", "'bank.send_money'"));
    let decision = decide(&tips, "ann", &call("bank.send_money", json!({ "amount": 1 })), &[]);
    assert_eq!(decision.detail.as_deref(), Some("BUDGET: `b`: `tip` is null"));
    // Named by its server only, so the set loads; the gate passes a digest.
    let pins = set(
        PERMIT,
        "[budget.b]\nservers = ['bank']\nargument = 'amount'\nlimit = 10\nper = 'all'\nwindow = 'ever'",
    );
    let shape = tools().into_iter().find(|tool| tool.name.as_str() == "bank.set_pin").unwrap();
    let redacted =
        redacting_call(&shape, Map::from_iter([("amount".into(), json!(1))]), &["amount"]);
    let decision = decide(&pins, "ann", &redacted.written(), &[]);
    assert_eq!(decision.detail.as_deref(), Some("BUDGET: `b`: `amount` is redacted or erasable"));
}

#[test]
fn what_is_used_counts_and_the_limit_can_be_reached() {
    let set = set(PERMIT, &payments(""));
    let send = |amount: f64| call("bank.send_money", json!({ "amount": amount }));
    let verdict = |used: &str, amount| {
        Verdict::of(&decide(&set, "ann", &send(amount), &[("payments", used)]))
    };
    assert_eq!(verdict("75", 25.0), Verdict::Permit);
    assert_eq!(verdict("75", 25.0001), Verdict::Deny);
    assert_eq!(verdict("100", 0.0), Verdict::Permit);
    assert_eq!(verdict("100.0001", 0.0), Verdict::Deny);
    assert_eq!(verdict("922337203685477.5807", 1.0), Verdict::Deny);
}

#[test]
fn the_amount_is_that_of_the_call_as_it_is_sent() {
    let capped = r#"@id("all") @cap("amount <= 40")
        permit (principal, action == Action::"bank.send_money", resource);"#;
    let set = set(capped, &payments(""));
    let send = |amount: Value| call("bank.send_money", json!({ "amount": amount }));
    for amount in [json!(500), json!(40.00001)] {
        let decision = decide(&set, "ann", &send(amount), &[("payments", "60")]);
        assert_eq!(Verdict::of(&decision), Verdict::Permit);
        assert_eq!(due(&decision), [("payments".to_owned(), "40.0".to_owned())]);
    }
    let decision = decide(&set, "ann", &send(json!(500)), &[("payments", "60.1")]);
    assert_eq!(Verdict::of(&decision), Verdict::Deny);
}

#[test]
fn a_policy_denies_before_a_budget_does() {
    let set = set(r#"@id("no") forbid (principal, action, resource);"#, &payments(""));
    let decision = decide(&set, "ann", &call("bank.send_money", json!({ "amount": 500 })), &[]);
    assert_eq!((decision.policies, decision.detail), (vec!["no".to_owned()], None));
}

#[test]
fn a_person_is_asked_at_eighty_percent() {
    let policies = r#"
        @id("all") permit (principal, action, resource);
        @id("ask") @approval("most of the budget is used")
        permit (principal, action, resource)
        when { context.used has payments && context.used.payments.percent >= 80 };
        @id("exact")
        forbid (principal, action == Action::"bank.send_money", resource)
        when {
            context.used has payments &&
            context.used.payments.before == decimal("1.0") &&
            context.used.payments.after.greaterThan(decimal("2.0")) &&
            context.used.payments.limit == decimal("100.0")
        };"#;
    let set = set(policies, &payments(""));
    let rows = [
        ("0", 79, Verdict::Permit),
        ("0.0001", 79, Verdict::Approval),
        ("70", 10, Verdict::Approval),
        ("1", 1, Verdict::Permit),
        ("1", 2, Verdict::Deny),
        ("95", 6, Verdict::Deny),
    ];
    for (used, amount, expected) in rows {
        let send = call("bank.send_money", json!({ "amount": amount }));
        let decision = decide(&set, "ann", &send, &[("payments", used)]);
        assert_eq!(Verdict::of(&decision), expected, "{used} {amount}");
    }
    // A tool that no budget covers has no such attribute, and needs none.
    let print = call("printer.print", json!({ "pages": 3 }));
    assert_eq!(Verdict::of(&decide(&set, "ann", &print, &[])), Verdict::Permit);
}

#[test]
fn each_kind_of_key_has_an_account() {
    let rows = [
        ("principal", "principal:ann"),
        ("session", "session:0190a1b2-0000-7000-8000-000000000001"),
        ("tool", "tool:bank.send_money"),
        ("server", "server:bank"),
        ("all", "all"),
    ];
    for (per, key) in rows {
        let set = set(PERMIT, &format!("[budget.b]\nlimit = 3\nper = '{per}'\nwindow = 'hour'"));
        let send = call("bank.send_money", json!({ "amount": 1 }));
        assert_eq!(keys(&set, "ann", &send), [("b".to_owned(), vec![key.to_owned()])]);
        assert_eq!(due(&decide(&set, "ann", &send, &[])), [("b".to_owned(), "1.0".to_owned())]);
    }
    let set = set(
        PERMIT,
        "[budget.b]\nlimit = 3\nper = 'group'\nwindow = 'hour'\ngroups = ['finance', 'staff']",
    );
    let send = call("bank.send_money", json!({ "amount": 1 }));
    let of = |who| keys(&set, who, &send);
    assert_eq!(of("ann"), [("b".to_owned(), vec!["group:finance".into(), "group:staff".into()])]);
    assert_eq!(of("ian"), [("b".to_owned(), vec!["group:staff".to_owned()])]);
    assert_eq!(of("bob"), []);
}

#[test]
fn a_budget_covers_the_tools_and_people_that_it_names() {
    let covers = |more: &str, who: &str, tool: &str| {
        let set =
            set(PERMIT, &format!("[budget.b]\nlimit = 3\nper = 'all'\nwindow = 'day'\n{more}"));
        let call = call(tool, json!({}));
        let decided = !decide(&set, who, &call, &[]).due.is_empty();
        assert_eq!(!keys(&set, who, &call).is_empty(), decided, "{more} {who} {tool}");
        decided
    };
    let rows = [
        ("", "bob", "printer.print", true),
        ("tools = ['printer.print']", "bob", "printer.print", true),
        ("tools = ['printer.print']", "bob", "bank.balance", false),
        ("servers = ['bank']", "bob", "bank.balance", true),
        ("servers = ['bank']", "bob", "printer.print", false),
        ("servers = ['bank']\ntools = ['printer.print']", "bob", "printer.print", true),
        ("principals = ['bob']", "bob", "bank.balance", true),
        ("principals = ['bob']", "ann", "bank.balance", false),
        ("groups = ['interns']", "ian", "bank.balance", true),
        ("groups = ['interns']", "ann", "bank.balance", false),
        ("groups = ['interns']\nprincipals = ['ann']", "ann", "bank.balance", true),
    ];
    for (more, who, tool, expected) in rows {
        assert_eq!(covers(more, who, tool), expected, "{more} {who} {tool}");
    }
    let set = set(PERMIT, "[budget.b]\nlimit = 3\nper = 'all'\nwindow = 'day'");
    let think = crate::world::call("THINK", json!({}));
    assert_eq!(keys(&set, "ann", &think), []);
}

#[test]
fn a_file_that_is_wrong_refuses_the_whole_set_and_says_what_to_write() {
    let rows = [
        ("[budget", "budgets.toml:1:8: not a file of budgets"),
        ("[budget.b]\nlimit = 1\nper = 'all'", "missing field `window`"),
        ("[budget.b]\nlimit = 1\nper = 'nobody'\nwindow = 'day'", "unknown variant `nobody`"),
        ("[budget.b]\nlimit = 1\nper = 'all'\nwindow = '1d'", "unknown variant `1d`"),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\nlimits = 2",
            "unknown field `limits`",
        ),
        (
            "[budget.B]\nlimit = 1\nper = 'all'\nwindow = 'day'",
            "budgets.toml:1:9: the budget `B`: `B` is not a budget's name",
        ),
        (
            "[budget.b]\nlimit = 0.5\nper = 'all'\nwindow = 'day'",
            "`limit` is a text like \"100.00\", or a whole number",
        ),
        (
            "[budget.b]\nlimit = '1.00001'\nper = 'all'\nwindow = 'day'",
            "the limit `1.00001` is more precise than four decimal places",
        ),
        ("[budget.b]\nlimit = 0\nper = 'all'\nwindow = 'day'", "is not above zero"),
        ("[budget.b]\nlimit = 'x'\nper = 'all'\nwindow = 'day'", "the limit `x` is not a number"),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\nzone = 'Berlin'",
            "`Berlin` is not a time zone",
        ),
        (
            "[budget.b]\nlimit = 1\nper = 'group'\nwindow = 'day'",
            "`per = \"group\"` needs `groups`",
        ),
        ("[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\ntools = []", "`tools` is empty"),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\ntools = ['bank.rob']",
            "there is no tool `bank.rob`",
        ),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\nservers = ['casino']",
            "there is no server `casino`",
        ),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\ngroups = ['thieves']",
            "there is no group `thieves`",
        ),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\nprincipals = ['a b']",
            "`a b` is not a principal",
        ),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\ntools = ['bank.send_money']\nargument = 'sum'",
            "`bank.send_money` has no argument `sum`",
        ),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\ntools = ['bank.send_money']\nargument = 'to'",
            "the argument `to` of `bank.send_money` is not a number",
        ),
        (
            "[budget.b]\nlimit = 1\nper = 'all'\nwindow = 'day'\ntools = ['bank.set_pin']\nargument = 'amount'",
            "the argument `amount` of `bank.set_pin` is redacted or erasable",
        ),
    ];
    for (text, expected) in rows {
        let error = load(PERMIT, text, "").unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_set_has_at_most_64_budgets() {
    let budgets = |count| -> String {
        let budget = |n| format!("[budget.b{n}]\nlimit = 1\nper = 'all'\nwindow = 'day'\n");
        (0..count).map(budget).collect()
    };
    assert!(load(PERMIT, &budgets(65), "").unwrap_err().contains("more than 64 budgets"));
    assert_eq!(set(PERMIT, &budgets(64)).all_budgets().len(), 64);
}

#[test]
fn tools_of_a_server_that_cannot_be_added_up_are_warned_of() {
    let text = "[budget.b]\nservers = ['bank']\nargument = 'amount'\nlimit = 1\nper = 'all'\nwindow = 'day'";
    let directory = directory(&[("p.cedar", PERMIT), ("budgets.toml", text)]);
    let checked = check(directory.path(), &tools());
    let found: Vec<_> =
        checked.findings.iter().map(|it| (it.severity, it.message.as_str())).collect();
    let denied = "every call of it is denied: name the tools that have it in `tools`";
    let expected = [
        format!("the budget `b`: `bank.balance` has no argument `amount`; {denied}"),
        format!(
            "the budget `b`: the argument `amount` of `bank.set_pin` is redacted or erasable; {denied}"
        ),
    ];
    assert_eq!(found, expected.each_ref().map(|message| (Severity::Warning, message.as_str())));
    assert!(checked.is_loadable());
}

#[test]
fn a_policy_that_reads_a_budget_that_is_not_there_is_refused() {
    let policy = |name: &str| {
        format!(
            "@id(\"all\") permit (principal, action == Action::\"bank.send_money\", resource)
             when {{ context.used.{name}.percent < 80 }};"
        )
    };
    let error = load(&policy("rent"), &payments(""), "").unwrap_err();
    assert!(error.contains("attribute `used.rent`"), "{error}");
    // One that is there must be asked for first: it need not cover the principal.
    let error = load(&policy("payments"), &payments(""), "").unwrap_err();
    assert!(error.contains("has"), "{error}");
}

#[test]
fn the_budgets_are_part_of_the_digest() {
    let one = set(PERMIT, &payments("")).digest();
    let other = set(PERMIT, &payments("").replace("100.00", "100.01")).digest();
    assert_ne!(one, other);
}

#[test]
fn cases_say_what_is_used() {
    let case = |used: &str, expect: &str| {
        format!(
            "[[case]]\nname = 'c'\nprincipal = 'ann'\naction = 'bank.send_money'\n\
             args = {{ amount = 30 }}\nused = {{ {used} }}\nexpect = '{expect}'"
        )
    };
    load(PERMIT, &payments(""), &case("payments = '70'", "permit")).unwrap();
    load(PERMIT, &payments(""), &case("payments = '70.01'", "deny")).unwrap();
    let wrong = load(PERMIT, &payments(""), &case("payments = '70.01'", "permit")).unwrap_err();
    assert!(wrong.contains("expected permit, got deny (by budgets.toml#payments)"), "{wrong}");
    let unknown = load(PERMIT, &payments(""), &case("rent = '1'", "permit")).unwrap_err();
    assert!(unknown.contains("there is no budget `rent`"), "{unknown}");
    let fine = load(PERMIT, &payments(""), &case("payments = '1.23456'", "permit")).unwrap_err();
    assert!(fine.contains("a number with at most four decimal places"), "{fine}");
}

#[test]
fn an_explanation_names_the_budgets() {
    let set = set(PERMIT, &payments(""));
    let facts = Facts { used: [("payments".to_owned(), decimal("75"))].into(), ..Facts::default() };
    let send = call("bank.send_money", json!({ "amount": 30 }));
    let explained = set.explain(&principal("ann"), &send, &facts);
    let shown = serde_json::to_value(&explained.budgets).unwrap();
    assert_eq!(
        shown,
        json!([{
            "budget": "payments",
            "used": "75.0",
            "amount": "30.0",
            "limit": "100.0",
            "percent": 105,
            "refusal": "BUDGET: `payments`: 75.0 of 100.0 is used, and the call needs 30.0",
        }])
    );
    assert_eq!(explained.verdict, Verdict::Deny);
}
