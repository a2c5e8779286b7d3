use std::io::BufReader;

use super::{End, read};

/// All payloads that are read: the kept part, and the true length.
fn payloads(input: &[u8], end: End, buffer_bytes: usize) -> Vec<(String, u64)> {
    let mut reader = BufReader::with_capacity(buffer_bytes, input);
    let mut found = Vec::new();
    while let Some(payload) = read(&mut reader, end, 4).unwrap() {
        found.push((String::from_utf8(payload.bytes.to_vec()).unwrap(), payload.length));
    }
    found
}

fn owned(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(text, length)| ((*text).to_owned(), *length)).collect()
}

#[test]
fn a_payload_is_kept_up_to_the_limit_and_counted_beyond_it() {
    // With every buffer size, so that every position is once the end of a buffer.
    for buffer_bytes in 1..=12 {
        let lines = |input: &str| payloads(input.as_bytes(), End::Line, buffer_bytes);
        assert_eq!(lines(""), owned(&[]));
        assert_eq!(lines("\n"), owned(&[("", 0)]));
        assert_eq!(lines("abc\nabcd\nabcde"), owned(&[("abc", 3), ("abcd", 4), ("abcd", 5)]));
        assert_eq!(lines("\n\nabcdefgh\nx\n"), owned(&[("", 0), ("", 0), ("abcd", 8), ("x", 1)]));
        let whole = |input: &str| payloads(input.as_bytes(), End::Input, buffer_bytes);
        assert_eq!(whole("a\nb\n"), owned(&[("a\nb\n", 4)]));
        assert_eq!(whole("a\nb\nc"), owned(&[("a\nb\n", 5)]));
        assert_eq!(whole(""), owned(&[]));
    }
}
