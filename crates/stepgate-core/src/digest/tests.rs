use serde_json::json;

use super::{Digest, Digesting};

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn bytes_have_the_published_digests() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (bytes, expected) in [(&b""[..], empty), (b"abc", ABC)] {
        assert_eq!(Digest::of_bytes(bytes).to_string(), expected);
    }
}

#[test]
fn bytes_that_come_one_after_the_other_have_the_digest_of_all() {
    let mut digesting = Digesting::default();
    for part in [&b"a"[..], b"", b"bc"] {
        digesting.update(part);
    }
    assert_eq!(digesting.finish().to_string(), ABC);
}

#[test]
fn a_value_has_the_digest_of_its_canonical_form() {
    let value = json!({"b": 1.0, "a": [null, "\u{e9}"]});
    let canonical = "{\"a\":[null,\"\u{e9}\"],\"b\":1}";
    assert_eq!(Digest::of(&value), Digest::of_bytes(canonical.as_bytes()));
    assert_ne!(Digest::of(&json!({"a": null})), Digest::of(&json!({})));
}

#[test]
fn a_digest_reads_back_from_its_one_spelling() {
    let digest: Digest = ABC.parse().unwrap();
    assert_eq!(digest.to_string(), ABC);
    assert_eq!(format!("{digest:?}"), ABC);
    assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"{ABC}\""));
    assert_eq!(serde_json::from_str::<Digest>(&format!("\"{ABC}\"")).unwrap(), digest);
    assert_eq!("0".repeat(64).parse(), Ok(Digest::ZERO));
}

#[test]
fn any_other_spelling_is_refused() {
    let upper = ABC.to_ascii_uppercase();
    let (short, long) = (&ABC[1..], format!("{ABC}0"));
    let with_prefix = format!("0x{}", &ABC[2..]);
    let not_hex = format!("g{}", &ABC[1..]);
    let last_not_hex = format!("{} ", &ABC[1..]);
    // 64 bytes, and not 64 digits.
    let wide = "é".repeat(32);
    for text in ["", short, &long, &upper, &with_prefix, &not_hex, &last_not_hex, &wide] {
        assert!(text.parse::<Digest>().is_err(), "{text}");
        assert!(serde_json::from_value::<Digest>(json!(text)).is_err(), "{text}");
    }
    assert!(serde_json::from_str::<Digest>("1").is_err());
    assert!(serde_json::from_str::<Digest>("null").is_err());
}

#[test]
fn exactly_the_sixteen_digits_are_read_each_as_its_number() {
    for byte in 0..=127_u8 {
        let text = format!("{}{}", char::from(byte), &"0".repeat(63));
        let expected = match byte {
            b'0'..=b'9' | b'a'..=b'f' => char::from(byte).to_digit(16),
            _ => None,
        };
        let read = text.parse::<Digest>().ok().map(|digest| u32::from(digest.0[0]) / 16);
        assert_eq!(read, expected, "{byte}");
        let last = format!("{}{}", &"0".repeat(63), char::from(byte));
        let read = last.parse::<Digest>().ok();
        assert_eq!(read.map(|digest| u32::from(digest.0[31])), expected, "{byte}");
        assert_eq!(read.map(|digest| digest.to_string()), expected.map(|_| last), "{byte}");
    }
}
