//! Instants as the text that is hashed: `YYYY-MM-DDTHH:MM:SS.mmmZ`, exactly.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Serialize, Serializer, ser};

use crate::ids::{InvalidId, text_in_json};

/// A millisecond of UTC in the years 0000 to 9999, up to the last one that the calendar library shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    millisecond: i64,
}

impl Timestamp {
    const MILLISECOND_MIN: i64 = -62_167_219_200_000;
    // 9999-12-30T22:00: `jiff` ends there, so that every offset from UTC still fits the year.
    const MILLISECOND_MAX: i64 = 253_402_207_200_000;

    /// The instant this many milliseconds after 1970, clamped to the years that the text can show.
    pub fn from_millisecond(millisecond: i64) -> Self {
        Self { millisecond: millisecond.clamp(Self::MILLISECOND_MIN, Self::MILLISECOND_MAX) }
    }

    /// Milliseconds since 1970.
    pub fn as_millisecond(self) -> i64 {
        self.millisecond
    }

    /// Milliseconds from `earlier` to this instant; zero where a clock went back.
    pub fn since_ms(self, earlier: Self) -> u64 {
        u64::try_from(self.millisecond.saturating_sub(earlier.millisecond)).unwrap_or(0)
    }

    /// The instant this many milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Self {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        Self::from_millisecond(self.millisecond.saturating_add(ms))
    }

    /// An instant of which a person may leave out the end: `2026-01-31`, `2026-01-31T12:00`, `2026-01-31T12:00:00Z`.
    pub fn parse_short(text: &str) -> Result<Self, InvalidId> {
        const MIDNIGHT: &str = "T00:00:00.000Z";
        let whole = text.strip_suffix('Z').unwrap_or(text);
        let missing = whole.len().checked_sub("2026-01-31".len()).and_then(|at| MIDNIGHT.get(at..));
        match missing {
            Some(missing) => format!("{whole}{missing}").parse(),
            None => text.parse(),
        }
        .map_err(|_| InvalidId::new(text, "an instant like 2026-01-31T12:00:00.000Z"))
    }

    /// The text as bytes. Every step writes a dozen of these, so this avoids the formatting machinery.
    fn text(self) -> [u8; 24] {
        let at = jiff::Timestamp::from_millisecond(self.millisecond)
            .map(|instant| jiff::tz::Offset::UTC.to_datetime(instant))
            .unwrap_or_default();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let fields = [
            (0..4, i32::from(at.year())),
            (5..7, i32::from(at.month())),
            (8..10, i32::from(at.day())),
            (11..13, i32::from(at.hour())),
            (14..16, i32::from(at.minute())),
            (17..19, i32::from(at.second())),
            (20..23, i32::from(at.millisecond())),
        ];
        for (place, value) in fields {
            let mut rest = value.unsigned_abs();
            for digit in text.get_mut(place).unwrap_or_default().iter_mut().rev() {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
                rest /= 10;
            }
        }
        text
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Timestamp {
    type Err = InvalidId;

    /// This does not use the calendar library: `verify` reads a dozen of these for every step. A text that
    /// is not a valid instant gives an instant with another spelling, so the comparison rejects it.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let number = |place: Range<usize>| {
            let digits = text.as_bytes().get(place).unwrap_or_default();
            digits.iter().fold(0, |number, digit| number * 10 + i64::from(*digit) - i64::from(b'0'))
        };
        let days = days_since_1970(number(0..4), number(5..7), number(8..10));
        let hours = days * 24 + number(11..13);
        let seconds = (hours * 60 + number(14..16)) * 60 + number(17..19);
        let parsed = Self::from_millisecond(seconds * 1000 + number(20..23));
        if parsed.text() == text.as_bytes() {
            Ok(parsed)
        } else {
            Err(InvalidId::new(text, "an instant like 2026-01-31T12:00:00.000Z"))
        }
    }
}

/// The days from 1970 to a date of the Gregorian calendar. Years begin in March here, so that a leap day is
/// the last day of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.text();
        serializer.serialize_str(std::str::from_utf8(&text).map_err(ser::Error::custom)?)
    }
}

text_in_json!(Timestamp, { "type": "string", "format": "date-time" });

/// Durations in whole milliseconds, as configurations spell them.
pub mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the milliseconds.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
    }

    /// Reads the milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests;
