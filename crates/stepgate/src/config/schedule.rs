//! `[schedule.NAME]`: windows of time that policies can ask for.

use anyhow::{Context, bail, ensure};
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::schedule::{Hours, Window};

const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

/// A window of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WindowConfig {
    /// The time zone, as the tz database names it: `Europe/Berlin`, `UTC`.
    zone: String,
    /// The days: `mon-fri`, `sat`; all of them where it is left out.
    #[serde(default = "every_day")]
    days: Vec<String>,
    /// The hours of these days: `08:00-18:00`; the whole day where it is left out. Hours over midnight are two:
    /// `22:00-24:00` and `00:00-06:00`.
    #[serde(default = "whole_day")]
    hours: Vec<String>,
}

fn every_day() -> Vec<String> {
    vec!["mon-sun".to_owned()]
}

fn whole_day() -> Vec<String> {
    vec!["00:00-24:00".to_owned()]
}

impl WindowConfig {
    pub(super) fn window(&self) -> anyhow::Result<Window> {
        let zone = TimeZone::get(&self.zone).ok();
        let zone = zone.with_context(|| {
            format!("`{}` is not a time zone: write it like `Europe/Berlin`", self.zone)
        })?;
        let days: anyhow::Result<Vec<_>> = self.days.iter().map(|text| days(text)).collect();
        let hours: anyhow::Result<Vec<_>> = self.hours.iter().map(|text| hours(text)).collect();
        Ok(Window { zone, days: days?.concat(), hours: hours? })
    }
}

/// `mon-fri`, or one day.
fn days(text: &str) -> anyhow::Result<Vec<Weekday>> {
    let wrong = || format!("`{text}` is not a day or a range of days: write `mon` or `mon-fri`");
    let place = |name: &str| DAYS.iter().position(|(day, _)| *day == name);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (place(first).with_context(wrong)?, place(last).with_context(wrong)?);
    let count = (last + DAYS.len() - first) % DAYS.len() + 1;
    let week = DAYS.iter().cycle().skip(first).take(count);
    Ok(week.map(|(_, day)| *day).collect())
}

/// `08:00-18:00`; `24:00` is the end of the day.
fn hours(text: &str) -> anyhow::Result<Hours> {
    let Some((from, until)) = text.split_once('-') else {
        bail!("`{text}` is not a range of hours: write it like `08:00-18:00`");
    };
    let time = |text: &str| {
        let time = Time::strptime("%H:%M", text);
        time.with_context(|| format!("`{text}` is not a time of day: write it like `08:00`"))
    };
    let (from, until) = (time(from)?, (until != "24:00").then(|| time(until)).transpose()?);
    ensure!(
        until.is_none_or(|until| from < until),
        "`{text}` ends before it begins: hours over midnight are two ranges, \
         `22:00-24:00` and `00:00-06:00`"
    );
    Ok(Hours { from, until })
}

#[cfg(test)]
mod tests;
