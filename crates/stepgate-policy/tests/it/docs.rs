//! docs/policy.md, held to what it says.

use serde_json::json;
use stepgate_core::budget::BudgetName;
use stepgate_core::facts::FactNames;
use stepgate_core::label::Label;
use stepgate_core::tool::Mode;
use stepgate_policy::limits::{
    APPROVERS_MAX, ARGS_DEPTH_MAX, ATTRIBUTES_MAX, BUDGETS_MAX, CAPS_MAX, CASES_MAX,
    DIRECTORY_ENTRIES_MAX, ERASABLE_MAX, FILE_BYTES_MAX, FILES_MAX, NAME_BYTES_MAX, NESTING_MAX,
    OPERATORS_MAX, POLICIES_MAX, POLICY_BYTES_MAX, QUORUM_MAX, REASON_BYTES_MAX, TOOLS_MAX,
    TOTAL_BYTES_MAX,
};
use stepgate_policy::{Finding, Nameable, Severity, check};

use crate::world::{directory, shape, tools};

const PAGE: &str = include_str!("../../../../docs/policy.md");

/// The examples of the page in a language, in order.
fn examples(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&*fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_examples_load_together_and_their_cases_hold() {
    let (policies, cases) = (examples("cedar").concat(), examples("toml").concat());
    let budgets = examples("toml budgets.toml").concat();
    let directory = directory(&[
        ("docs.cedar", &policies),
        ("docs.cases.toml", &cases),
        ("budgets.toml", &budgets),
    ]);
    let schema = json!({
        "type": "object",
        "properties": { "amount": { "type": "number" } },
        "required": ["amount"],
    });
    let bank = shape("bank.send_money", Mode::ExecuteGated, schema);
    let tools = [tools(), vec![bank]].concat();
    let labels = ["untrusted", "secret", "egress", "money"];
    let facts = FactNames {
        labels: labels.map(|label| Label::parse(label).unwrap()).into(),
        groups: ["interns", "sales"].map(str::to_owned).into(),
        windows: ["office".to_owned()].into(),
        ..FactNames::default()
    };
    let checked = check(directory.path(), Nameable { tools: &tools, facts: &facts });
    let is_note = |finding: &&Finding| finding.severity == Severity::Note;
    assert_eq!(checked.findings.iter().find(|finding| !is_note(finding)), None);
    assert_eq!((checked.policies, checked.cases), (14, 3));
}

#[test]
fn the_limits_are_those_of_the_code() {
    let limits = PAGE.split("## Limits").nth(1).unwrap();
    let documented: Vec<usize> = limits
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split('|').nth(1))
        .filter_map(|value| value.replace([',', ' '], "").replace("bytes", "").parse().ok())
        .collect();
    let code = [
        DIRECTORY_ENTRIES_MAX,
        FILES_MAX,
        FILE_BYTES_MAX,
        TOTAL_BYTES_MAX,
        POLICIES_MAX,
        POLICY_BYTES_MAX,
        NESTING_MAX,
        OPERATORS_MAX,
        CASES_MAX,
        BUDGETS_MAX,
        BudgetName::BYTES_MAX,
        NAME_BYTES_MAX,
        REASON_BYTES_MAX,
        APPROVERS_MAX,
        QUORUM_MAX as usize,
        CAPS_MAX,
        ERASABLE_MAX,
        TOOLS_MAX,
        ATTRIBUTES_MAX,
        ARGS_DEPTH_MAX,
    ];
    assert_eq!(documented, code);
}

const WRONG_BUDGET: &str = "[budget.X]\nlimit = 1\nper = 'all'\nwindow = 'day'";

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one wrong file after the other")]
fn what_the_page_says_is_told_is_told() {
    let mistakes = [("a.cedar", "permit"), ("b.cedar", "@x permit (principal, action, resource);")];
    let later = [
        ("c.cedar", "permit (principal, action == Action::\"x.y\", resource);"),
        ("d.cedar", "permit (principal, action, resource == Tool::\"x.y\");"),
        ("e.cedar", "permit (principal, action, resource in Server::\"x\");"),
        ("f.cedar", "permit (principal, action, resource in Path::\"/sandbox/a/\");"),
        ("g.cedar", "permit (principal, action, resource) when { context.now == 1 };"),
        (
            "h.cedar",
            "permit (principal, action == Action::\"sonos.set_volume\", resource)
             when { context.args.room == \"\" };",
        ),
        ("i.cedar", "permit (principal, action, resource) when { false };"),
        (
            "o.cedar",
            "permit (principal, action == Action::\"sonos.set_volume\", resource)
             when { context.args has balance && context.args.balance < 1 &&
                    context.args.volume == decimal(\"1.0\") };",
        ),
        ("j.txt", ""),
        ("p.cedar", "permit (principal in Group::\"x\", action, resource);"),
        (
            "q.cedar",
            "permit (principal, action, resource)
             when { context.sends.contains(Label::\"x\") || context.schedule.contains(Window::\"x\") };",
        ),
        (
            "r.cedar",
            "permit (principal, action, resource)
             when { context.targets.containsAny([Origin::\"x\", Origin::\"directory/x\",
                                                 Origin::\"sonos.set_volume\"]) };",
        ),
        (
            "n.cedar",
            "permit (principal, action == Action::\"sonos.set_volume\", resource)
             when { context.args has balance };",
        ),
    ];
    let erasing = [
        ("s.cedar", "@erasable(\"x\") permit (principal, action, resource);"),
        (
            "t.cedar",
            "@erasable(\"room\") permit (principal, action == Action::\"sonos.set_volume\", resource)
             when { context.args has room };",
        ),
    ];
    let empty = [("k.cedar", "permit (principal, action in Action::\"draft\", resource);")];
    let case = "[[case]]\nname = ''\nprincipal = 'a'\naction = 'THINK'\nexpect = 'permit'";
    let case = [("l.cases.toml", case)];
    let mut unaccepted = tools();
    unaccepted[0].is_accepted = false;
    let waiting = [
        ("m.cedar", "permit (principal, action == Action::\"sonos.set_volume\", resource);"),
        (
            "m.cases.toml",
            "[[case]]\nname = ''\nprincipal = 'a'\naction = 'sonos.set_volume'\nexpect = 'permit'",
        ),
    ];
    let mut undeclared = tools();
    undeclared[0].flow.is_undeclared = true;
    let asks = "permit (principal, action, resource)
                when { context.session.labels.contains(Label::\"delete\") };";
    let cap = "@cap(\"volume <= 1.5\")
               permit (principal, action == Action::\"sonos.set_volume\", resource);";
    let messages = |files: &[(&str, &str)], tools: &[_]| {
        let checked = check(directory(files).path(), tools);
        checked.findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };
    let told = [
        messages(&mistakes, &tools()),
        messages(&later, &tools()),
        messages(&erasing, &tools()),
        messages(&empty, &[]),
        messages(&case, &tools()),
        messages(&[("budgets.toml", WRONG_BUDGET)], &tools()),
        messages(&[("budgets.toml", "budget")], &tools()),
        messages(&waiting, &unaccepted),
        messages(&[("s.cedar", asks)], &undeclared),
        messages(&[("t.cedar", cap)], &tools()),
    ]
    .concat();
    let table = PAGE.split("| what is told |").nth(1).unwrap().split("## Limits").next().unwrap();
    let phrases: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" |").next())
        .flat_map(|cell| cell.split('`').step_by(2))
        .filter(|phrase| !phrase.is_empty())
        .collect();
    assert_eq!(phrases.len(), 29);
    for phrase in phrases {
        assert!(told.iter().any(|message| message.contains(phrase)), "{phrase}: {told:#?}");
    }
}
