//! Packs texts into few bytes.
//!
//! The entries, checkpoints and records of one commit say much the same: ids, digests and the words of their
//! schemas come again and again. Packed, a text is written as references to what came before it: to earlier
//! texts of the same commit, or to a dictionary with the words of the schemas. Digests and ids that are new are
//! written as bytes. Unpacking gives exactly the same texts.
//!
//! The form is that of LZ77: after a byte for the version and the length of the unpacked texts come operations,
//! and last four bytes of the SHA-256 of everything before them, so that no bit can change unnoticed.
//!
//! | first byte | then | means |
//! |---|---|---|
//! | `00` to `7f` | so many bytes and one more | these bytes |
//! | `80` to `bf` | so many bytes and one more | the same in lower-case hex digits |
//! | `c0` to `fd` | distance, two bytes | six bytes and so many more, from so far back |
//! | `fe` | length and distance, seven bits a byte | the same with 68 bytes and so many more |
//! | `ff` | 16 bytes | an id: hex digits with hyphens |
//!
//! A text is a line in which `\`, `n` and `N` stand for a backslash, a line feed and an absent text, after a
//! backslash.

use std::sync::LazyLock;

use stepgate_core::digest::Digest;

/// The version of the form and of its dictionary. A store keeps what it has, so neither ever changes: a new
/// dictionary is a new version.
const VERSION: u8 = 1;
const DICTIONARY: &[u8] = include_bytes!("pack/dictionary_1.txt");

/// Most bytes that are unpacked: more than a commit of a step can have.
const UNPACKED_BYTES_MAX: usize = 1 << 30;

/// Bytes of the digest at the end.
const CHECK_BYTES: usize = 4;
/// The shortest text that is worth a reference. Shorter ones are found by chance in digests.
const MATCH_BYTES_MIN: usize = 6;
/// The farthest that a short reference reaches back.
const SHORT_DISTANCE_MAX: usize = 0xffff;
/// The longest match whose length is in the first byte.
const SHORT_MATCH_BYTES_MAX: usize = MATCH_BYTES_MIN + 0x3d;
const LITERAL_BYTES_MAX: usize = 0x80;
const HEX_BYTES_MAX: usize = 0x40;
/// The fewest hex digits that are written as bytes.
const HEX_DIGITS_MIN: usize = 6;

const HEX: u8 = 0x80;
const MATCH: u8 = 0xc0;
const LONG_MATCH: u8 = 0xfe;
const ID: u8 = 0xff;

/// The hex digits of a digest.
const DIGEST_CHARS: usize = 64;

/// The length of an id as text, and where its hyphens are.
const ID_CHARS: usize = 36;
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// The digits before the first hyphen.
const ID_GROUP_CHARS: usize = 8;

/// Packs texts, some of which may be absent.
pub fn pack<'a>(texts: impl IntoIterator<Item = Option<&'a str>>) -> Vec<u8> {
    let mut lines = DICTIONARY.to_vec();
    for text in texts {
        add_line(text, &mut lines);
    }
    let length = lines.len() - DICTIONARY.len();
    let mut packed = Vec::with_capacity(length / 4 + 16);
    packed.push(VERSION);
    add_number(length, &mut packed);
    compress(&lines, &mut packed);
    packed.extend(check_of(&packed));
    packed
}

/// The texts that were packed, or why these bytes are not what [`pack`] made.
pub fn unpack(packed: &[u8]) -> Result<Vec<Option<String>>, String> {
    let body = packed.len().checked_sub(CHECK_BYTES);
    let (body, check) = body.and_then(|at| packed.split_at_checked(at)).ok_or("too short")?;
    if check != check_of(body) {
        return Err("changed: the check at the end does not follow".into());
    }
    let mut rest = Rest(body);
    match rest.byte()? {
        VERSION => {}
        other => return Err(format!("packed in form {other}, which is unknown")),
    }
    let length = rest.number()?;
    if length > UNPACKED_BYTES_MAX {
        return Err(format!("{length} bytes, more than {UNPACKED_BYTES_MAX}"));
    }
    let lines = decompress(rest, DICTIONARY.len() + length)?;
    let lines = lines.get(DICTIONARY.len()..).unwrap_or_default();
    let lines = std::str::from_utf8(lines).map_err(|error| error.to_string())?;
    lines.split_terminator('\n').map(text_of).collect()
}

fn check_of(body: &[u8]) -> [u8; CHECK_BYTES] {
    let [a, b, c, d, ..] = *Digest::of_bytes(body).as_bytes();
    [a, b, c, d]
}

fn add_line(text: Option<&str>, lines: &mut Vec<u8>) {
    match text {
        None => lines.extend_from_slice(b"\\N"),
        Some(text) if text.bytes().any(|byte| matches!(byte, b'\\' | b'\n')) => {
            for byte in text.bytes() {
                match byte {
                    b'\\' => lines.extend_from_slice(b"\\\\"),
                    b'\n' => lines.extend_from_slice(b"\\n"),
                    other => lines.push(other),
                }
            }
        }
        Some(text) => lines.extend_from_slice(text.as_bytes()),
    }
    lines.push(b'\n');
}

fn text_of(line: &str) -> Result<Option<String>, String> {
    if line == "\\N" {
        return Ok(None);
    }
    let Some((before, _)) = line.split_once('\\') else { return Ok(Some(line.to_owned())) };
    let mut text = before.to_owned();
    let mut rest = line.get(before.len()..).unwrap_or_default().chars();
    while let Some(character) = rest.next() {
        let meant = match character {
            '\\' => match rest.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some(_) | None => return Err("a backslash that escapes nothing".into()),
            },
            other => other,
        };
        text.push(meant);
    }
    Ok(Some(text))
}

/// A hash of the text at a place: of its first six bytes, in the highest bits. None in the last bytes.
fn hash_at(bytes: &[u8], at: usize) -> Option<u64> {
    // Eight bytes are read at once, and two of them cut off.
    let number = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?) << 16;
    Some(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Where the last text with a hash began, plus one; zero where there was none.
struct Seen {
    places: Vec<u32>,
    /// Two to this power is how many places there are.
    bits: u32,
}

/// Room for the texts of the dictionary, and of the longest commit.
const SEEN_BITS_MIN: u32 = 12;
const SEEN_BITS_MAX: u32 = 20;

impl Seen {
    /// With room for so many texts.
    fn with_room(texts: usize) -> Self {
        let bits = usize::BITS - texts.leading_zeros();
        let bits = bits.clamp(SEEN_BITS_MIN, SEEN_BITS_MAX);
        Self { places: vec![0; 1 << bits], bits }
    }

    fn slot(&self, hash: u64) -> usize {
        usize::try_from(hash >> (u64::BITS - self.bits)).unwrap_or(0)
    }

    fn place(&self, hash: u64) -> Option<usize> {
        let noted = *self.places.get(self.slot(hash))?;
        usize::try_from(noted).ok()?.checked_sub(1)
    }

    /// The place that was noted for this hash; `at` is noted instead.
    fn replace(&mut self, hash: u64, at: usize) -> Option<usize> {
        let slot = self.slot(hash);
        let noted = self.places.get_mut(slot)?;
        let before = std::mem::replace(noted, u32::try_from(at + 1).unwrap_or(0));
        usize::try_from(before).ok()?.checked_sub(1)
    }
}

/// The texts of the dictionary.
static IN_DICTIONARY: LazyLock<Seen> = LazyLock::new(|| {
    let mut seen = Seen::with_room(2 * DICTIONARY.len());
    for at in 0..DICTIONARY.len() {
        if let Some(hash) = hash_at(DICTIONARY, at) {
            seen.replace(hash, at);
        }
    }
    seen
});

/// Writes what follows the dictionary in `bytes` as operations.
fn compress(bytes: &[u8], out: &mut Vec<u8>) {
    let dictionary = &*IN_DICTIONARY;
    let mut seen = Seen::with_room(bytes.len() - DICTIONARY.len());
    let mut at = DICTIONARY.len();
    let mut new_from = at;
    while let Some(hash) = hash_at(bytes, at) {
        let matched = |from: Option<usize>| {
            let from = from?;
            let length = common(bytes, from, at);
            is_worth_it(length, at - from).then_some((length, at - from))
        };
        let before = seen.replace(hash, at);
        let Some((length, distance)) = matched(before).or_else(|| matched(dictionary.place(hash)))
        else {
            at += new_bytes(bytes, at);
            continue;
        };
        add_new(bytes.get(new_from..at).unwrap_or_default(), out);
        add_match(length, distance, out);
        at += length;
        new_from = at;
        // What is inside of it is found where it stood before; only its end has something new behind it.
        for inside in at + 1 - MATCH_BYTES_MIN..at {
            if let Some(hash) = hash_at(bytes, inside) {
                seen.replace(hash, inside);
            }
        }
    }
    add_new(bytes.get(new_from..).unwrap_or_default(), out);
}

/// How many bytes are new where a text that is not known begins: the whole of a digest, of which no part is known then.
fn new_bytes(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..at + DIGEST_CHARS) {
        Some(digest) if digest.iter().all(|byte| nibble(*byte).is_some()) => DIGEST_CHARS,
        Some(_) | None => 1,
    }
}

/// Whether a reference is shorter than the text.
fn is_worth_it(length: usize, distance: usize) -> bool {
    length > SHORT_MATCH_BYTES_MAX || length >= MATCH_BYTES_MIN && distance <= SHORT_DISTANCE_MAX
}

/// How many bytes two places have in common.
fn common(bytes: &[u8], before: usize, at: usize) -> usize {
    let (Some(before), Some(at)) = (bytes.get(before..), bytes.get(at..)) else { return 0 };
    let words = before.as_chunks::<8>().0.iter().zip(at.as_chunks::<8>().0);
    let same = 8 * words.take_while(|(one, other)| one == other).count();
    let (before, at) = (before.iter().skip(same), at.iter().skip(same));
    same + before.zip(at).take_while(|(one, other)| one == other).count()
}

fn add_match(length: usize, distance: usize, out: &mut Vec<u8>) {
    match (u8::try_from(length - MATCH_BYTES_MIN), u16::try_from(distance)) {
        (Ok(more), Ok(distance)) if length <= SHORT_MATCH_BYTES_MAX => {
            out.push(MATCH + more);
            out.extend(distance.to_be_bytes());
        }
        (Ok(_) | Err(_), Ok(_) | Err(_)) => {
            out.push(LONG_MATCH);
            add_number(length - SHORT_MATCH_BYTES_MAX - 1, out);
            add_number(distance, out);
        }
    }
}

/// Text that was not there before: digests and ids as bytes, the rest as it is.
fn add_new(text: &[u8], out: &mut Vec<u8>) {
    let mut plain_from = 0;
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && !rest.is_empty()
    {
        let digits = rest.iter().take_while(|byte| nibble(**byte).is_some()).count();
        let id = match digits {
            ID_GROUP_CHARS => rest.get(..ID_CHARS).and_then(id_bytes),
            _ => None,
        };
        let end = match id {
            Some(_) => at + ID_CHARS,
            None if digits >= HEX_DIGITS_MIN => at + (digits & !1),
            None => {
                at += digits.max(1);
                continue;
            }
        };
        add_plain(text.get(plain_from..at).unwrap_or_default(), out);
        match id {
            Some(id) => {
                out.push(ID);
                out.extend(id);
            }
            None => add_hex(text.get(at..end).unwrap_or_default(), out),
        }
        at = end;
        plain_from = at;
    }
    add_plain(text.get(plain_from..).unwrap_or_default(), out);
}

fn add_plain(text: &[u8], out: &mut Vec<u8>) {
    for part in text.chunks(LITERAL_BYTES_MAX) {
        out.extend(u8::try_from(part.len() - 1));
        out.extend_from_slice(part);
    }
}

fn add_hex(digits: &[u8], out: &mut Vec<u8>) {
    for part in digits.chunks(2 * HEX_BYTES_MAX) {
        out.extend(u8::try_from(part.len() / 2 - 1).map(|more| HEX + more));
        out.extend(part.as_chunks::<2>().0.iter().filter_map(|pair| byte_of(*pair)));
    }
}

/// The bytes of an id that is written with lower-case digits and hyphens.
fn id_bytes(text: &[u8]) -> Option<[u8; 16]> {
    if !HYPHENS.iter().all(|at| text.get(*at) == Some(&b'-')) {
        return None;
    }
    let mut digits = [0; 32];
    let mut all = text.iter().enumerate().filter(|(at, _)| !HYPHENS.contains(at));
    for digit in &mut digits {
        *digit = *all.next()?.1;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = byte_of(*pair)?;
    }
    Some(bytes)
}

fn byte_of([high, low]: [u8; 2]) -> Option<u8> {
    Some(nibble(high)? << 4 | nibble(low)?)
}

fn nibble(digit: u8) -> Option<u8> {
    NIBBLES.get(usize::from(digit)).copied().filter(|nibble| *nibble < NO_NIBBLE)
}

const NO_NIBBLE: u8 = 16;

/// The value of each byte as a hex digit. A table, because every byte of a commit is looked up.
static NIBBLES: [u8; 256] = nibbles();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which has no iterators there"
)]
const fn nibbles() -> [u8; 256] {
    let digits = b"0123456789abcdef";
    let mut nibbles = [NO_NIBBLE; 256];
    let mut value = 0;
    while value < digits.len() {
        nibbles[digits[value] as usize] = value as u8;
        value += 1;
    }
    nibbles
}

/// A number in seven bits a byte, the lowest first; the highest bit says that there are more.
fn add_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.extend(u8::try_from(number & 0x7f).map(|bits| bits | 0x80));
        number >>= 7;
    }
    out.extend(u8::try_from(number));
}

/// Operations that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        let [byte] = self.take(1)? else { return Err("ends too early".into()) };
        Ok(*byte)
    }

    fn number(&mut self) -> Result<usize, String> {
        let mut number = 0;
        for shift in (0..usize::BITS - 7).step_by(7) {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number without an end".into())
    }

    fn distance(&mut self) -> Result<usize, String> {
        let [high, low] = self.take(2)? else { return Err("ends too early".into()) };
        Ok(usize::from(u16::from_be_bytes([*high, *low])))
    }
}

/// The dictionary and what the operations add to it, up to this length.
fn decompress(mut rest: Rest<'_>, length: usize) -> Result<Vec<u8>, String> {
    let mut out = DICTIONARY.to_vec();
    while !rest.0.is_empty() {
        match rest.byte()? {
            ID => add_id_text(rest.take(16)?, &mut out),
            LONG_MATCH => {
                let bytes = SHORT_MATCH_BYTES_MAX + 1 + rest.number()?.min(UNPACKED_BYTES_MAX);
                repeat(bytes, rest.number()?, length, &mut out)?;
            }
            first @ MATCH..LONG_MATCH => {
                let bytes = MATCH_BYTES_MIN + usize::from(first - MATCH);
                repeat(bytes, rest.distance()?, length, &mut out)?;
            }
            first @ HEX..MATCH => add_hex_text(rest.take(usize::from(first - HEX) + 1)?, &mut out),
            first => out.extend_from_slice(rest.take(usize::from(first) + 1)?),
        }
    }
    match out.len() == length {
        true => Ok(out),
        false => Err("another length than it should have".into()),
    }
}

/// Repeats what stands so far back. The end of it may be what is being written.
fn repeat(bytes: usize, distance: usize, most: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let from = out.len().checked_sub(distance).filter(|from| *from < out.len());
    let from = from.ok_or("refers to what is not there")?;
    if out.len() + bytes > most {
        return Err("longer than it should be".into());
    }
    if distance >= bytes {
        out.extend_from_within(from..from + bytes);
        return Ok(());
    }
    for at in from..from + bytes {
        let byte = out.get(at).copied().ok_or("refers to what is not there")?;
        out.push(byte);
    }
    Ok(())
}

fn add_hex_text(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
    for byte in bytes {
        out.extend([digit(byte >> 4), digit(byte & 15)]);
    }
}

fn add_id_text(bytes: &[u8], out: &mut Vec<u8>) {
    for (at, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            out.push(b'-');
        }
        add_hex_text(std::slice::from_ref(byte), out);
    }
}

#[cfg(test)]
mod tests;
