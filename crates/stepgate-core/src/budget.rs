//! Budgets: how much may be used in a window of time, by whom. A budget counts calls, or adds up an argument.
//!
//! Each key of a budget has an account for each window. A call is charged to its accounts in the commit that makes
//! it durable, and the store refuses a commit that would exceed a limit. So the limit holds on any number of nodes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;
use crate::ids::{InvalidId, PrincipalId, SessionId, checked_text, shown_text, text_in_json};
use crate::spelled::spelled;
use crate::time::Timestamp;

/// The name of a budget. Policies read it as `context.used.NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(inline)]
pub struct BudgetName(String);

checked_text!(BudgetName, 0);

impl BudgetName {
    /// Longest name.
    pub const BYTES_MAX: usize = 32;

    /// Takes lower-case letters, digits and `_`, after a letter.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let is_of_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_valid = text.len() <= Self::BYTES_MAX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(is_of_name);
        match is_valid {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidId::new(
                text,
                "a budget's name: a lower-case letter, then at most 31 lower-case letters, digits or `_`",
            )),
        }
    }
}

spelled! {
    /// Who or what has an account of its own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "BudgetPer")]
    #[serde(rename_all = "snake_case")]
    pub enum Per {
        /// Each principal.
        Principal = "principal",
        /// Each of the budget's groups.
        Group = "group",
        /// Each session.
        Session = "session",
        /// Each tool.
        Tool = "tool",
        /// Each tool server.
        Server = "server",
        /// All together have one.
        All = "all",
    }
}

spelled! {
    /// How long a window is. Windows follow each other without gaps, on the calendar of the budget's time zone.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "BudgetWindow")]
    #[serde(rename_all = "snake_case")]
    pub enum WindowLength {
        /// A minute.
        Minute = "minute",
        /// An hour.
        Hour = "hour",
        /// A day, from midnight.
        Day = "day",
        /// A week, from Monday.
        Week = "week",
        /// A month, from its first day.
        Month = "month",
        /// One window without an end.
        Ever = "ever",
    }
}

const MINUTE_MS: i64 = 60 * 1000;

/// What a budget allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its name.
    pub name: BudgetName,
    /// The argument that is added up; without one, calls are counted.
    pub argument: Option<String>,
    /// The most that an account may have used. Positive.
    pub limit: Decimal,
    /// Who or what has an account.
    pub per: Per,
    /// How long a window is.
    pub window: WindowLength,
    /// The time zone whose calendar counts.
    pub zone: TimeZone,
}

impl Terms {
    /// The time zone of budgets that name none.
    pub const UTC: TimeZone = TimeZone::UTC;

    /// The name of the time zone.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The window that this moment is in. Only beyond the year 9999 is there none of a length that ends: the account of
    /// that time then has no end.
    pub fn window_at(&self, now: Timestamp) -> Window {
        self.between(now).unwrap_or(Window::Ever)
    }

    fn between(&self, now: Timestamp) -> Option<Window> {
        let instant = |ms: i64| jiff::Timestamp::from_millisecond(ms).ok();
        // Minutes and hours are those of UTC: no clock changes within them.
        let clock = |length_ms: i64| {
            let start = now.as_millisecond().div_euclid(length_ms) * length_ms;
            Some((instant(start)?, instant(start.checked_add(length_ms)?)?))
        };
        // A midnight that the clock skips is the next moment that there is.
        let midnight = |date: Date| Some(date.to_zoned(self.zone.clone()).ok()?.timestamp());
        let days = |first: Date, length: Span| {
            Some((midnight(first)?, midnight(first.checked_add(length).ok()?)?))
        };
        let today = self.zone.to_datetime(instant(now.as_millisecond())?).date();
        let (start, end) = match self.window {
            WindowLength::Ever => return None,
            WindowLength::Minute => clock(MINUTE_MS)?,
            WindowLength::Hour => clock(60 * MINUTE_MS)?,
            WindowLength::Day => days(today, 1.day())?,
            WindowLength::Week => {
                let since_monday = i32::from(today.weekday().since(Weekday::Monday));
                days(today.checked_sub(since_monday.days()).ok()?, 1.week())?
            }
            WindowLength::Month => days(today.first_of_month(), 1.month())?,
        };
        let at = |instant: jiff::Timestamp| Timestamp::from_millisecond(instant.as_millisecond());
        Some(Window::Between { start: at(start), end: at(end) })
    }
}

/// A budget that covers a call, and the accounts that the call is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covering {
    /// What the budget allows.
    pub terms: Arc<Terms>,
    /// The keys of the accounts. More than one where the principal is in several groups.
    pub keys: Vec<AccountKey>,
}

/// What a call takes from a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// What the budget allows.
    pub terms: Arc<Terms>,
    /// How much: the argument, or one for a call.
    pub amount: Decimal,
}

/// A stretch of time, or all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Window {
    /// From a moment on, until a later one.
    Between {
        /// The first moment.
        start: Timestamp,
        /// The first moment of the next window.
        end: Timestamp,
    },
    /// All time.
    Ever,
}

impl Window {
    /// When it ends; none where it does not.
    pub fn end(self) -> Option<Timestamp> {
        match self {
            Self::Between { end, .. } => Some(end),
            Self::Ever => None,
        }
    }
}

const EVER: &str = "ever";

/// As ISO 8601 writes an interval: `2026-01-31T00:00:00.000Z/2026-02-01T00:00:00.000Z`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between { start, end } => write!(f, "{start}/{end}"),
            Self::Ever => f.write_str(EVER),
        }
    }
}

impl FromStr for Window {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId::new(text, "two instants with `/` between them, or `ever`");
        match text.split_once('/') {
            _ if text == EVER => Ok(Self::Ever),
            Some((start, end)) => Ok(Self::Between {
                start: start.parse().map_err(|_| invalid())?,
                end: end.parse().map_err(|_| invalid())?,
            }),
            None => Err(invalid()),
        }
    }
}

impl Serialize for Window {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

text_in_json!(Window, { "type": "string" });

/// Whose account it is: `principal:ann`, `group:finance`, `session:ID`, `tool:bank.send_money`, `server:bank`
/// or `all`.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct AccountKey(String);

shown_text!(AccountKey, 0);

impl AccountKey {
    /// A principal's.
    pub fn principal(principal_id: &PrincipalId) -> Self {
        Self::of(Per::Principal, principal_id)
    }

    /// A group's.
    pub fn group(name: &str) -> Self {
        Self::of(Per::Group, &name)
    }

    /// A session's.
    pub fn session(session_id: SessionId) -> Self {
        Self::of(Per::Session, &session_id)
    }

    /// A tool's.
    pub fn tool(name: &str) -> Self {
        Self::of(Per::Tool, &name)
    }

    /// A tool server's.
    pub fn server(name: &str) -> Self {
        Self::of(Per::Server, &name)
    }

    /// That of all together.
    pub fn all() -> Self {
        Self(Per::All.as_str().to_owned())
    }

    fn of(per: Per, name: &dyn fmt::Display) -> Self {
        Self(format!("{}:{name}", per.as_str()))
    }

    /// A key that a store holds.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }
}

/// What a limit holds for: one key of a budget, in one window.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account {
    /// The budget.
    pub budget: BudgetName,
    /// The window.
    pub window: Window,
    /// Whose it is.
    pub key: AccountKey,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} in {}", self.budget, self.key, self.window)
    }
}

/// An account, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The account.
    pub account: Account,
    /// What its calls have taken, without what was given back.
    pub used: Decimal,
}

/// What one call takes from one account. It is also the payload of the events `budget_reserved` and
/// `budget_released`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// How much.
    pub amount: Decimal,
    /// The argument that has the amount; none where the call is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// The budget.
    pub budget: BudgetName,
    /// Whose account it is.
    pub key: AccountKey,
    /// The limit of the account when it was charged.
    pub limit: Decimal,
    /// The window.
    pub window: Window,
}

impl Charge {
    /// The account that is charged.
    pub fn account(&self) -> Account {
        Account { budget: self.budget.clone(), key: self.key.clone(), window: self.window }
    }

    /// How much of the account is used with this charge, if that is within the limit.
    pub fn onto(&self, used: Decimal) -> Result<Decimal, OverBudget> {
        let sum = used.plus(self.amount).filter(|sum| *sum <= self.limit);
        sum.ok_or_else(|| OverBudget {
            budget: self.budget.clone(),
            used,
            amount: self.amount,
            limit: self.limit,
        })
    }
}

/// What a commit does to an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetChange {
    /// Takes an amount. If it would exceed the limit, the commit is refused.
    Reserve(Charge),
    /// Gives back what was taken.
    Release(Charge),
}

/// How the detail of a call that a budget denies begins.
pub const REFUSED: &str = "BUDGET";

/// A charge that a limit does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{REFUSED}: `{budget}`: {used} of {limit} is used, and the call needs {amount}")]
pub struct OverBudget {
    /// The budget.
    pub budget: BudgetName,
    /// What is used without the charge.
    pub used: Decimal,
    /// The charge.
    pub amount: Decimal,
    /// The limit.
    pub limit: Decimal,
}

#[cfg(test)]
mod tests;
