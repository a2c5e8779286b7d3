//! The policy sets that are measured.

use std::fmt::Write as _;

/// How many tools there are.
pub(crate) const TOOLS: usize = 20;
/// How many policies the large sets have.
const POLICIES: usize = 200;
/// Of those that are about one tool each: policies about every tool, so that labels are always asked for.
const GENERAL: usize = 10;

const BUDGETS: &str = r#"
[budget.calls]
limit = 1_000_000
per = "session"
window = "ever"

[budget.payments]
argument = "amount"
limit = "900000000.00"
per = "principal"
window = "month"
"#;

/// A policy set.
#[derive(Clone, Copy)]
pub(crate) enum Rules {
    /// One permit.
    One,
    /// 200, most of them about one tool each.
    EachTool,
    /// 200, all of them about every tool. They share what they ask, as policies about labels and groups do.
    Every,
    /// 200, all of them about every tool, and each asks what no other asks.
    EveryItsOwn,
}

impl Rules {
    pub(crate) const ALL: [Self; 4] = [Self::One, Self::EachTool, Self::Every, Self::EveryItsOwn];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::One => "one permit",
            Self::EachTool => "200 policies, most about one tool each",
            Self::Every => "200 policies, each about every tool",
            Self::EveryItsOwn => "the same, each with a question of its own",
        }
    }

    /// How many policies can apply to the call that is measured.
    pub(crate) fn can_apply(self) -> usize {
        match self {
            Self::One => 1,
            Self::EachTool => (GENERAL..POLICIES).filter(|it| it % TOOLS == 7).count() + GENERAL,
            Self::Every | Self::EveryItsOwn => POLICIES,
        }
    }

    /// The policies. The first permits; the others are asked and do not match.
    pub(crate) fn text(self) -> String {
        let mut text = "@id(\"permit\") permit (principal, action, resource);\n".to_owned();
        let count = match self {
            Self::One => 1,
            Self::EachTool | Self::Every | Self::EveryItsOwn => POLICIES,
        };
        for number in 1..count {
            let action = match self {
                Self::EachTool if number >= GENERAL => {
                    format!("action == Action::\"{}\"", tool_name(number % TOOLS))
                }
                Self::One | Self::EachTool | Self::Every | Self::EveryItsOwn => "action".to_owned(),
            };
            let condition = match self {
                Self::One | Self::EachTool | Self::Every => condition(number),
                Self::EveryItsOwn => own_condition(number),
            };
            // Writing to a text does not fail.
            let _ = writeln!(
                text,
                "@id(\"rule-{number}\") @approval(\"rule {number}\") permit (principal, {action}, resource)\n\
                 when {{ {condition} }};"
            );
        }
        text
    }
}

impl Rules {
    /// The budgets: none for the smallest set. They are never used up.
    pub(crate) fn budgets(self) -> &'static str {
        match self {
            Self::One => "",
            Self::EachTool | Self::Every | Self::EveryItsOwn => BUDGETS,
        }
    }
}

/// What a policy asks: labels, groups, windows of time, budgets, and where targets and addresses come from.
fn condition(number: usize) -> String {
    match number % 6 {
        0 => "context.sends.contains(Label::\"egress\") && context.session.labels.contains(Label::\"secret\")".into(),
        1 => "context.session.labels.contains(Label::\"personal\") && context.sends.contains(Label::\"publish\")".into(),
        2 => "principal in Group::\"guests\" && !context.schedule.contains(Window::\"office\")".into(),
        3 => "context.used has payments && context.used.payments.percent >= 80".into(),
        4 => "context.targets.contains(Origin::\"user\") && !context.addresses.contains(Origin::\"known\")".into(),
        _ => format!("context.server == \"server-{number}\""),
    }
}

/// The same kinds, each with a part that no other policy has and that decides it.
fn own_condition(number: usize) -> String {
    match number % 6 {
        0 => format!(
            "principal == Principal::\"agent-{number}\" && context.session.labels.contains(Label::\"secret\")"
        ),
        1 => format!(
            "context.args has to && context.args.to == \"user-{number}@example.com\" && context.session.labels.contains(Label::\"personal\")"
        ),
        2 => format!("context.args has count && context.args.count > {}", 1_000 + number),
        3 => {
            format!("context.used has payments && context.used.payments.percent >= {}", 80 + number)
        }
        4 => format!(
            "context.args has subject && context.args.subject like \"*urgent {number}*\" && !context.addresses.contains(Origin::\"known\")"
        ),
        _ => format!("context.server == \"server-{number}\""),
    }
}

/// The name of a tool; there are five to a server.
pub(crate) fn tool_name(number: usize) -> String {
    format!("server-{}.tool-{number}", number / 5)
}
