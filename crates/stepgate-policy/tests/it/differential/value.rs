//! JSON values that are exact, and their spellings.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::chance::Chance;

/// A value as it is meant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Exact {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    List(Vec<Exact>),
    Object(BTreeMap<String, Exact>),
}

/// `digits` times ten to the power of `exponent`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal {
    pub(super) digits: i128,
    pub(super) exponent: i32,
}

impl Decimal {
    pub(super) fn whole(number: i64) -> Self {
        Self { digits: number.into(), exponent: 0 }
    }

    /// What a JSON number is, by its text.
    pub(super) fn of(number: &serde_json::Number) -> Self {
        let text = number.to_string();
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
        let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent = exponent.parse::<i32>().unwrap() - i32::try_from(part.len()).unwrap();
        Self { digits: format!("{whole}{part}").parse().unwrap(), exponent }
    }

    /// Compares exactly; exponents are within ±12, or so large that the sign decides.
    pub(super) fn compare(self, other: Self) -> Ordering {
        const LARGE: i32 = 20;
        let is_large = |decimal: Self| decimal.digits != 0 && decimal.exponent > LARGE;
        match (is_large(self), is_large(other)) {
            (true, false) => self.digits.cmp(&0),
            (false, true) => 0.cmp(&other.digits),
            (true, true) => {
                let key = |decimal: Self| decimal.digits.signum() * i128::from(decimal.exponent);
                key(self).cmp(&key(other)).then(self.digits.cmp(&other.digits))
            }
            (false, false) => {
                let least = self.exponent.min(other.exponent).min(0);
                let scaled = |decimal: Self| {
                    let shift = if decimal.digits == 0 { 0 } else { decimal.exponent - least };
                    decimal.digits * 10_i128.pow(u32::try_from(shift).unwrap())
                };
                scaled(self).cmp(&scaled(other))
            }
        }
    }

    /// Without an exponent, and with at least one decimal place.
    pub(super) fn to_plain(self) -> String {
        let places = usize::try_from(-self.exponent).unwrap();
        let text = format!("{:0>width$}", self.digits.unsigned_abs(), width = places + 1);
        let (whole, part) = text.split_at(text.len() - places);
        let sign = if self.digits < 0 { "-" } else { "" };
        format!("{sign}{whole}.{}", if part.is_empty() { "0" } else { part })
    }

    fn spelled(self, chance: &mut Chance) -> String {
        let Self { digits, exponent } = self;
        let e = *chance.one_of(&["e", "E"]);
        let plus = if chance.percent(50) { "+" } else { "" };
        match exponent {
            0 if digits == 0 => (*chance.one_of(&["0", "-0", "0.0", "0e3", "-0.0"])).to_owned(),
            0 => match chance.below(5) {
                0 => format!("{digits}.0"),
                1 => format!("{digits}{e}{plus}0"),
                2 => format!("{digits}0{e}-1"),
                3 if digits % 10 == 0 => format!("{}{e}{plus}1", digits / 10),
                _ => digits.to_string(),
            },
            1.. => format!("{digits}{e}{plus}{exponent}"),
            _ if chance.percent(30) => format!("{digits}{e}{exponent}"),
            _ => format!("{}{}", self.to_plain(), "0".repeat(chance.below(3))),
        }
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other) == Ordering::Equal
    }
}

impl Exact {
    /// One of the ways to write it.
    pub(super) fn spelled(&self, chance: &mut Chance) -> String {
        let space = |chance: &mut Chance| if chance.percent(10) { " " } else { "" };
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(truth) => truth.to_string(),
            Self::Number(number) => number.spelled(chance),
            Self::Text(text) => spelled_text(text, chance),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.spelled(chance)).collect();
                format!("[{}]", items.join(&format!("{},", space(chance))))
            }
            Self::Object(members) => {
                let mut members: Vec<(&String, &Self)> = members.iter().collect();
                if chance.percent(50) {
                    members.reverse();
                }
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(name, value)| {
                        let name = spelled_text(name, chance);
                        format!("{name}{}:{}", space(chance), value.spelled(chance))
                    })
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }
}

fn spelled_text(text: &str, chance: &mut Chance) -> String {
    let mut spelled = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => spelled.extend(['\\', c]),
            _ if chance.percent(10) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(spelled, "\\u{unit:04X}");
                }
            }
            _ => spelled.push(c),
        }
    }
    spelled.push('"');
    spelled
}

/// A number that a condition may stumble over.
pub(super) fn draw_number(chance: &mut Chance) -> Decimal {
    let near = *chance.one_of(&[0, 5, 100, -1, 30]);
    let decimal = |digits: i128, exponent| Decimal { digits, exponent };
    match chance.below(19) {
        0..=4 => Decimal::whole(near),
        5 => Decimal::whole(near + 1),
        6 => Decimal::whole(near - 1),
        7 => decimal(i128::from(near) * 10 + 5, -1),
        8 => decimal(i128::from(near) * 1000 + 1, -3),
        9 => decimal(1, *chance.one_of(&[16, 19, 300])),
        10 => decimal(-1, *chance.one_of(&[16, 19, 300])),
        11 => decimal(*chance.one_of(&[9_007_199_254_740_991, -9_007_199_254_740_991]), 0),
        12 => decimal(900_719_925_474_100, 2),
        13 => decimal(*chance.one_of(&[1, 10, 20]), 1),
        // The numbers of the conditions, and their neighbours.
        14 => decimal(*chance.one_of(&[994, 995, 996, 1, -5]), -1),
        15 => decimal(*chance.one_of(&[1_000_000, 1_000_001, 1_000_002, -9_999]), -4),
        // More places than a decimal has.
        16 => decimal(i128::from(near) * 100_000 + *chance.one_of(&[1, -1]), -5),
        17 => decimal(*chance.one_of(&[1, -1, 99_500_001]), -6),
        // The range of decimals, and beyond it.
        _ => decimal(*chance.one_of(&[9_223_372_036_854_775, 9_223_372_036_854_785]), -1),
    }
}

/// A text that a condition may look for; often the same one, so that conditions find what calls have.
pub(super) fn draw_text(chance: &mut Chance) -> String {
    if chance.percent(30) {
        return "evil".to_owned();
    }
    (*chance.one_of(&["evil", "EVIL", "good", "", "e", "evil\u{301}", "kitchen", "\"x\\", "😀"]))
        .to_owned()
}

/// Any scalar.
pub(super) fn draw_scalar(chance: &mut Chance) -> Exact {
    match chance.below(4) {
        0 => Exact::Null,
        1 => Exact::Bool(chance.percent(50)),
        2 => Exact::Number(draw_number(chance)),
        _ => Exact::Text(draw_text(chance)),
    }
}
