//! Checksums that tell a number of a kind from any other number of the same length.

/// Whether the digits of a payment card number have the right check digit (Luhn).
pub(super) fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let is_repeated = digits.windows(2).all(|pair| pair.first() == pair.last());
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match place % 2 {
            0 => *digit,
            _ if *digit > 4 => digit * 2 - 9,
            _ => digit * 2,
        })
        .sum();
    (13..=19).contains(&digits.len()) && !is_repeated && sum.is_multiple_of(10)
}

/// Whether an IBAN has the right check digits (ISO 7064, modulo 97).
pub(super) fn is_iban(text: &str) -> bool {
    let signs: Vec<char> = text.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let (Some(head), Some(rest)) = (signs.get(..4), signs.get(4..)) else { return false };
    let remainder = rest.iter().chain(head).try_fold(0, |remainder: u32, c| {
        let value = c.to_ascii_uppercase().to_digit(36)?;
        let shift = if value > 9 { 100 } else { 10 };
        Some((remainder * shift + value) % 97)
    });
    (15..=34).contains(&signs.len()) && remainder == Some(1)
}

/// Whether a social security number of the United States could have been given out.
pub(super) fn is_social_security(text: &str) -> bool {
    let mut parts = text.split('-');
    let (area, group, serial) = (parts.next(), parts.next(), parts.next());
    let is_area =
        area.is_some_and(|area| !["000", "666"].contains(&area) && !area.starts_with('9'));
    is_area && group != Some("00") && serial != Some("0000")
}

/// A number that only its pattern describes.
pub(super) fn any(_: &str) -> bool {
    true
}
