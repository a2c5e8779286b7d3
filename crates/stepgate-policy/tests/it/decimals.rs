//! Numbers with decimals: every spelling is compared exactly, and a policy that Cedar refuses says what to write.

use std::cmp::Ordering;

use proptest::prelude::*;
use serde_json::{Value, json};
use stepgate_core::call::Call;
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::tool::Mode;
use stepgate_policy::Verdict::{self, Approval, Deny, Permit};
use stepgate_policy::{PolicySet, ToolShape, check};

use crate::world::{decide, directory, server_call, shape};

fn bank() -> ToolShape {
    shape(
        "bank.pay",
        Mode::ExecuteGated,
        json!({
            "type": "object",
            "properties": {
                "amount": { "type": "number" },
                "limit": { "type": "number" },
                "tip": { "type": ["number", "null"] },
                "fee": { "type": "number", "default": 2.5 },
                "count": { "type": "integer" },
                "parts": { "type": "array", "items": { "type": "number" } },
                "details": {
                    "type": "object",
                    "properties": { "tax rate": { "type": "number" } },
                    "required": ["tax rate"],
                },
            },
            "required": ["amount", "limit", "count", "parts", "details"],
        }),
    )
}

fn shop() -> ToolShape {
    let amount = json!({ "type": "integer" });
    let schema =
        json!({ "type": "object", "properties": { "amount": amount }, "required": ["amount"] });
    shape("shop.buy", Mode::ExecuteGated, schema)
}

/// The errors of a condition on calls of the bank.
fn told(condition: &str) -> Vec<(Option<usize>, String)> {
    let policy = format!(
        "permit (principal, action == Action::\"bank.pay\", resource) when {{\n{condition} }};"
    );
    let found = check(directory(&[("p.cedar", &policy)]).path(), &[bank()]).findings;
    let errors = found.into_iter().filter(|found| found.line == Some(2));
    errors.map(|error| (error.column, error.message)).collect()
}

#[test]
fn a_comparison_of_the_wrong_kind_says_what_to_write() {
    let rows = [
        (
            "context.args.amount <= 100",
            1,
            "context.args.amount.lessThanOrEqual(decimal(\"100.0\"))",
        ),
        ("context.args.amount < -5", 1, "context.args.amount.lessThan(decimal(\"-5.0\"))"),
        (
            "100 >= context.args.amount",
            8,
            "decimal(\"100.0\").greaterThanOrEqual(context.args.amount)",
        ),
        ("context[\"args\"].amount > 1", 1, "context.args.amount.greaterThan(decimal(\"1.0\"))"),
        (
            "context.args.amount < context.args.limit",
            1,
            "context.args.amount.lessThan(context.args.limit)",
        ),
        ("context.args.amount == 100", 1, "context.args.amount == decimal(\"100.0\")"),
        ("context.args.amount != 100", 1, "context.args.amount != decimal(\"100.0\")"),
        ("context.args.amount == \"99.50\"", 1, "context.args.amount == decimal(\"99.5\")"),
        ("context.args.amount.lessThan(5)", 30, "context.args.amount.lessThan(decimal(\"5.0\"))"),
        (
            "context.args.amount.lessThan(\"5\")",
            30,
            "context.args.amount.lessThan(decimal(\"5.0\"))",
        ),
        ("context.args.parts.contains(3)", 1, "context.args.parts.contains(decimal(\"3.0\"))"),
        (
            "[1, 2].contains(context.args.amount)",
            1,
            "[decimal(\"1.0\"), decimal(\"2.0\")].contains(context.args.amount)",
        ),
        (
            "context.args.parts.containsAny([1])",
            1,
            "context.args.parts.containsAny([decimal(\"1.0\")])",
        ),
        (
            "context.args has tip && context.args.tip > 3",
            25,
            "context.args.tip.greaterThan(decimal(\"3.0\"))",
        ),
        (
            "context.args.details[\"tax rate\"] > 3",
            1,
            "context.args.details[\"tax rate\"].greaterThan(decimal(\"3.0\"))",
        ),
        ("context.args.count.lessThan(decimal(\"5.0\"))", 1, "context.args.count < 5"),
        ("context.args.count == decimal(\"5.0\")", 1, "context.args.count == 5"),
        ("context.args.amount == decimal(\"100\")", 24, "decimal(\"100.0\")"),
        ("context.args.amount == decimal(\"1.00000\")", 24, "decimal(\"1.0\")"),
        ("context.args.amount == decimal(100)", 32, "decimal(\"100.0\")"),
        ("context.args.amount == decimal(\"1e2\")", 24, "decimal(\"100.0\")"),
    ];
    for (condition, column, expected) in rows {
        let found = told(condition);
        assert_eq!(found.first().map(|(place, _)| *place), Some(Some(column)), "{condition}");
        let is_told = |message: &str| message.ends_with(&format!("write `{expected}`"));
        assert!(found.iter().all(|(_, message)| is_told(message)), "{condition}: {found:?}");
        // What is written so is accepted.
        let repaired = match expected.starts_with("decimal(") && condition.contains("decimal(") {
            true => format!("context.args.amount == {expected}"),
            false => format!("context.args has tip && {expected}"),
        };
        assert_eq!(told(&repaired), [], "{repaired}");
    }
}

#[test]
fn each_of_several_comparisons_gets_its_own_advice() {
    let found = told("context.args.amount > 5 &&\ncontext.args.amount < 7");
    let [(_, first)] = &*found else { panic!("{found:?}") };
    assert!(first.contains("greaterThan") && !first.contains("lessThan"), "{first}");
}

#[test]
fn what_no_decimal_can_say_is_refused_with_the_reason() {
    let rows = [
        (
            "context.args.amount + 1 > 3",
            "`amount` is a number with decimals: it is compared with another one",
        ),
        ("context.args.amount < context.args.count", "nothing is calculated with it"),
        ("context.args.parts < 3", "`parts` is a list of numbers with decimals"),
        (
            "context.args.count.lessThan(decimal(\"0.5\"))",
            "`count` is a whole number: it is compared",
        ),
        ("context.args.amount == decimal(\"1.00001\")", "at most 4 digits are supported"),
        ("context.args.amount == decimal(\"922337203685478.0\")", "must be in range"),
        ("context.args.amount == decimal(\"１.０\")", "failed to parse as a decimal"),
        ("context.args.amount == decimal(context.mode)", "`decimal` takes a text in the policy"),
        (
            "context.args.amount <= 99.50",
            "a number with decimals is written `decimal(\"99.5\")` and compared by a method",
        ),
        ("-.25 < context.args.amount", "written `decimal(\"-0.25\")`"),
    ];
    for (condition, expected) in rows {
        let found = told(condition);
        let [(_, message), ..] = &*found else { panic!("{condition}: nothing is told") };
        assert!(message.contains(expected), "{condition}: {message}");
    }
    let found = told("context.args.amount.5");
    assert!(!found.is_empty() && !found[0].1.contains("decimal"), "{found:?}");
}

#[test]
fn a_policy_about_tools_with_both_kinds_is_told_to_be_two() {
    let policy = |condition: &str| {
        let policy = format!(
            "permit (principal, action in Action::\"execute_gated\", resource) when {{ {condition} }};"
        );
        let found = check(directory(&[("p.cedar", &policy)]).path(), &[shop(), bank()]).findings;
        let errors: Vec<String> = found.into_iter().map(|error| error.message).collect();
        errors.into_iter().find(|message| message.contains("its own")).unwrap_or_default()
    };
    let whole = policy("context.args.amount <= 100");
    assert!(
        whole.ends_with(
            "`amount` is a number with decimals: write \
             `context.args.amount.lessThanOrEqual(decimal(\"100.0\"))`; it is a whole number for \
             `shop.buy`, which needs a policy of its own"
        ),
        "{whole}"
    );
    let decimal = policy("context.args.amount.lessThanOrEqual(decimal(\"100.0\"))");
    assert!(
        decimal.ends_with(
            "`amount` is a whole number: write `context.args.amount <= 100`; it is a number with \
             decimals for `bank.pay`, which needs a policy of its own"
        ),
        "{decimal}"
    );
}

/// A number as text: the sign, the digits before the point, and those after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plain {
    is_negative: bool,
    whole: String,
    places: String,
}

impl Plain {
    /// Reads a number that is written in full, without an exponent.
    fn of(text: &str) -> Self {
        let digits = text.trim_start_matches('-');
        let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
        let (whole, places) = (whole.trim_start_matches('0'), places.trim_end_matches('0'));
        let is_zero = whole.is_empty() && places.is_empty();
        Self {
            is_negative: text.starts_with('-') && !is_zero,
            whole: whole.to_owned(),
            places: places.to_owned(),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let size = || {
            let whole = self.whole.len().cmp(&other.whole.len()).then(self.whole.cmp(&other.whole));
            // Places are compared like texts: the shorter one is smaller.
            whole.then(self.places.cmp(&other.places))
        };
        match (self.is_negative, other.is_negative) {
            (false, false) => size(),
            (true, true) => size().reverse(),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }

    /// Whether Cedar has a decimal for it.
    fn is_held(&self) -> bool {
        let max = Self::of("922337203685477.5807");
        let size = Self { is_negative: false, ..self.clone() };
        self.places.len() <= 4 && size.compare(&max) != Ordering::Greater
    }
}

/// Moves the point of digits by an exponent.
fn in_full(digits: &str, exponent: i32) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    match usize::try_from(exponent) {
        Ok(zeros) => format!("{sign}{digits}{}", "0".repeat(zeros)),
        Err(_) => {
            let places = exponent.unsigned_abs() as usize;
            let digits = format!("{digits:0>width$}", width = places + 1);
            let (whole, places) = digits.split_at(digits.len() - places);
            format!("{sign}{whole}.{places}")
        }
    }
}

const LIMITS: [&str; 8] =
    ["100.0", "99.5", "0.0001", "-0.5", "0.0", "1000000.25", "922337203685477.0", "-3.14"];

/// A way to compare a number with a limit.
struct Form {
    /// Where the number is in a call.
    args: &'static str,
    policies: &'static str,
    holds: fn(Ordering) -> bool,
    /// The answers where the comparison holds and where it does not.
    verdicts: [Verdict; 2],
}

impl Form {
    fn set(&self, limit: &str) -> PolicySet {
        let policies = self.policies.replace("LIMIT", &format!("decimal(\"{limit}\")"));
        let scope = "(principal, action == Action::\"bank.pay\", resource)";
        let directory = directory(&[("p.cedar", &policies.replace("SCOPE", scope))]);
        PolicySet::load(directory.path(), &[bank()]).unwrap()
    }

    fn plain(&self, number: &Plain, limit: &str) -> Verdict {
        let [holding, other] = self.verdicts;
        match (self.holds)(number.compare(&Plain::of(limit))) {
            _ if !number.is_held() => Deny,
            true => holding,
            false => other,
        }
    }
}

const FORMS: [Form; 6] = [
    Form {
        args: r#"{"amount":N}"#,
        policies: "permit SCOPE when { context.args.amount.lessThanOrEqual(LIMIT) };",
        holds: Ordering::is_le,
        verdicts: [Permit, Deny],
    },
    Form {
        args: r#"{"amount":N,"count":1}"#,
        policies: "permit SCOPE; @approval(\"much\") permit SCOPE when { context.args.amount.greaterThan(LIMIT) };",
        holds: Ordering::is_gt,
        verdicts: [Approval, Permit],
    },
    Form {
        args: r#"{"parts":[7777,N,-7777.5]}"#,
        policies: "permit SCOPE; forbid SCOPE when { context.args.parts.contains(LIMIT) };",
        holds: Ordering::is_eq,
        verdicts: [Deny, Permit],
    },
    Form {
        args: r#"{"details":{"tax rate":N}}"#,
        policies: "permit SCOPE; forbid SCOPE when { context.args.details[\"tax rate\"].lessThan(LIMIT) };",
        holds: Ordering::is_lt,
        verdicts: [Deny, Permit],
    },
    Form {
        args: r#"{"tip":N}"#,
        policies: "permit SCOPE; forbid SCOPE when {
            context.args has tip && context.args.tip.greaterThanOrEqual(LIMIT) };",
        holds: Ordering::is_ge,
        verdicts: [Deny, Permit],
    },
    Form {
        args: r#"{"fee":N}"#,
        policies: "permit SCOPE unless { context.args has fee && context.args.fee != LIMIT };",
        holds: Ordering::is_eq,
        verdicts: [Permit, Deny],
    },
];

/// What is above the cap is lowered to it, and decided on again.
const CAPPED: Form = Form {
    args: r#"{"amount":N}"#,
    policies: "@cap(\"amount <= 50\") permit SCOPE when { context.args.amount.greaterThan(LIMIT) };",
    holds: Ordering::is_gt,
    verdicts: [Permit, Deny],
};

/// Numbers of up to fifteen digits, which a double tells apart: in a spelling of JSON, and in full.
fn spelled() -> impl Strategy<Value = (String, String)> {
    let near = proptest::sample::select(LIMITS.to_vec()).prop_flat_map(|limit| {
        let (digits, places) = match limit.split_once('.') {
            Some((whole, "0")) => (whole.to_owned(), 0),
            Some((whole, places)) => (format!("{whole}{places}"), places.len()),
            None => (limit.to_owned(), 0),
        };
        let digits: i64 = digits.parse().unwrap();
        (-2..=2_i64, 0..=3_usize).prop_map(move |(more, finer)| {
            // Never more digits than a double has.
            let finer = if digits.abs() > 1_000_000_000 { 0 } else { finer };
            let scale = 10_i64.pow(u32::try_from(finer).unwrap());
            (digits * scale + more, -i32::try_from(places + finer).unwrap())
        })
    });
    let any_number = (-999_999_999_999_999..=999_999_999_999_999_i64, -20..=20_i32);
    let small = (-99_999..=99_999_i64, -7..=3_i32);
    let number = prop_oneof![4 => near, 1 => any_number, 3 => small];
    (number, 0..4_u8, 0..3_usize).prop_map(|((digits, exponent), way, zeros)| {
        let full = in_full(&digits.to_string(), exponent);
        let zeros = "0".repeat(zeros);
        let text = match way {
            0 => format!("{digits}e{exponent}"),
            1 => format!("{digits}.{zeros}0E{exponent:+}"),
            2 if digits != 0 => {
                format!("{digits}{zeros}e{}", exponent - i32::try_from(zeros.len()).unwrap())
            }
            // An integer in full may be larger than the parser takes.
            _ if full.contains('.') => format!("{full}{zeros}"),
            _ => format!("{full}.0{zeros}"),
        };
        (text, full)
    })
}

fn call(text: &str) -> Call {
    let parsed = strict::parse(text.as_bytes(), 16, Integers::Exact);
    let Ok(Value::Object(args)) = parsed else { panic!("{text}: {parsed:?}") };
    server_call(&bank(), args)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_number_is_decided_on_as_by_hand(
        (text, full) in spelled(),
        form in 0..FORMS.len(),
        limit in 0..LIMITS.len(),
    ) {
        thread_local!(static SETS: Vec<Vec<PolicySet>> =
            FORMS.iter().map(|form| LIMITS.map(|limit| form.set(limit)).into()).collect());
        let call = call(&FORMS[form].args.replace('N', &text));
        let decision = SETS.with(|sets| decide(&sets[form][limit], &call));
        let expected = FORMS[form].plain(&Plain::of(&full), LIMITS[limit]);
        prop_assert_eq!(Verdict::of(&decision), expected, "{} {:?}", text, decision);
    }

    #[test]
    fn a_number_is_capped_as_by_hand((text, full) in spelled(), limit in 0..LIMITS.len()) {
        thread_local!(static SETS: Vec<PolicySet> = LIMITS.map(|limit| CAPPED.set(limit)).into());
        let call = call(&CAPPED.args.replace('N', &text));
        let decision = SETS.with(|sets| decide(&sets[limit], &call));
        let (number, cap) = (Plain::of(&full), Plain::of("50"));
        let asked = CAPPED.plain(&number, LIMITS[limit]);
        let lowered = match number.compare(&cap) {
            Ordering::Greater => CAPPED.plain(&cap, LIMITS[limit]),
            Ordering::Less | Ordering::Equal => asked,
        };
        prop_assert_eq!(Verdict::of(&decision), asked.max(lowered), "{} {:?}", text, decision);
    }
}

#[test]
fn the_plain_comparison_is_right_itself() {
    let ordered = ["-100", "-99.5", "-0.0001", "0", "0.00001", "0.5", "0.51", "9", "10"];
    let plain = ordered.map(Plain::of);
    for (index, left) in plain.iter().enumerate() {
        for (other, right) in plain.iter().enumerate() {
            assert_eq!(left.compare(right), index.cmp(&other), "{left:?} {right:?}");
        }
    }
    assert_eq!(Plain::of("-0.0"), Plain::of("000"));
    assert_eq!((in_full("-15", -3), in_full("15", 2)), ("-0.015".to_owned(), "1500".to_owned()));
}

#[test]
fn spellings_are_one_value_or_none() {
    let set = PolicySet::load(
        directory(&[(
            "p.cedar",
            r#"@id("exact") permit (principal, action == Action::"bank.pay", resource)
                when { context.args.amount == decimal("100.0") && context.unseen.isEmpty() };"#,
        )])
        .path(),
        &[bank()],
    )
    .unwrap();
    let rows = [
        ("100", Permit),
        ("100.0", Permit),
        ("100.0000000000", Permit),
        ("1e2", Permit),
        ("1E+2", Permit),
        ("0.01e4", Permit),
        ("10000000000e-8", Permit),
        // The double next to it is the same one, and so is what the tool gets.
        ("100.000000000000000001", Permit),
        ("100.00001", Deny),
        ("99.99999999", Deny),
        ("-100", Deny),
        ("1e300", Deny),
        ("null", Deny),
        ("\"100\"", Deny),
        ("[100]", Deny),
    ];
    for (amount, expected) in rows {
        let text = format!(
            r#"{{"amount":{amount},"limit":0,"count":1,"parts":[],"details":{{"tax rate":0}}}}"#
        );
        assert_eq!(Verdict::of(&decide(&set, &call(&text))), expected, "{amount}");
    }
    for refused in ["１００", "+100", "100.", ".5", "0x64", "1_000", "NaN", "1e999"] {
        let text = format!(r#"{{"amount":{refused}}}"#);
        assert!(strict::parse(text.as_bytes(), 16, Integers::Exact).is_err(), "{refused}");
    }
    let twice = r#"{"amount":1,"amount":100}"#;
    assert!(strict::parse(twice.as_bytes(), 16, Integers::Exact).is_err());
}

#[test]
fn a_default_with_a_fraction_is_seen_and_capped_like_any_other() {
    let load = |policy: &str| {
        PolicySet::load(directory(&[("p.cedar", policy)]).path(), &[bank()]).unwrap()
    };
    let set = load(
        r#"@id("fee") @approval("a fee") permit (principal, action == Action::"bank.pay", resource)
            when { context.args has fee && context.args.fee == decimal("2.50") };
        @id("pay") @cap("amount <= 30") permit (principal, action == Action::"bank.pay", resource)
            when { context.args.amount.lessThan(decimal("40.0")) };
        @id("thirty") forbid (principal, action == Action::"bank.pay", resource)
            when { context.args.limit == decimal("1.5") && context.args.amount == decimal("30.0") };"#,
    );
    let args = |amount: f64, limit: f64, fee: Option<f64>| {
        let fee = fee.map(|fee| format!(",\"fee\":{fee}")).unwrap_or_default();
        call(&format!(
            r#"{{"amount":{amount},"limit":{limit},"count":1,"parts":[],"details":{{"tax rate":0}}{fee}}}"#
        ))
    };
    let rows = [
        (args(1.0, 0.0, Some(2.51)), Permit),
        (args(1.0, 0.0, None), Approval),
        (args(1.0, 0.0, Some(2.5)), Approval),
        (args(30.01, 0.0, Some(0.0)), Permit),
        // What the cap makes of it is forbidden.
        (args(30.01, 1.5, Some(0.0)), Deny),
        (args(29.99, 1.5, Some(0.0)), Permit),
        (args(40.0, 0.0, Some(0.0)), Deny),
    ];
    for (call, expected) in rows {
        assert_eq!(Verdict::of(&decide(&set, &call)), expected, "{call:?}");
    }
    let capped =
        load(r#"@cap("fee <= 2") permit (principal, action == Action::"bank.pay", resource);"#);
    assert_eq!(Verdict::of(&decide(&capped, &args(1.0, 0.0, None))), Deny);
    assert_eq!(Verdict::of(&decide(&capped, &args(1.0, 0.0, Some(2.5)))), Permit);
}
