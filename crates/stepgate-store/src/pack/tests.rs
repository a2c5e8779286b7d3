use stepgate_core::digest::Digest;

use super::{CHECK_BYTES, DICTIONARY, check_of, pack, unpack};

fn sample() -> Vec<Option<String>> {
    let digest = |text: &str| Some(Digest::of_bytes(text.as_bytes()).to_string());
    let id = "01a1ed24-32ec-748e-af83-73ca7ac7fa9e".to_owned();
    vec![
        Some("e".into()),
        None,
        digest("one"),
        Some(id.clone()),
        Some(format!("{{\"trace_id\":\"{id}\",\"ts\":\"2026-11-18T05:32:14.956Z\"}}")),
        digest("two"),
        digest("one"),
        Some("".into()),
    ]
}

fn packed(texts: &[Option<String>]) -> Vec<u8> {
    pack(texts.iter().map(Option::as_deref))
}

#[test]
fn what_is_packed_comes_back_exactly() {
    let long = "a line that repeats ".repeat(10_000);
    let odd = ["", "\n", "\\", "\\N", "\\n", "\\\\n\n", "ü\0\u{1}", "abcdef0", "ABCDEF01", "00112"];
    let id = "01a1ed24-32ec-748e-af83-73ca7ac7fa9e";
    let mut rows = vec![sample(), Vec::new(), vec![None, None], vec![Some(long)]];
    rows.extend(odd.map(|text| vec![Some(text.to_owned()), None, Some(text.to_owned())]));
    rows.push((0..40).map(|cut| id.get(cut..).map(str::to_owned)).collect());
    rows.push((0..40).map(|cut| id.get(..cut).map(str::to_owned)).collect());
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    for _ in 0..200 {
        let letters = b"0123456789abcdef-\\\n\"{}:, eN";
        let text = |length: u64, noise: &mut dyn FnMut() -> u64| -> String {
            let letter = |number: u64| char::from(letters[number as usize % letters.len()]);
            (0..length).map(|_| letter(noise())).collect()
        };
        let texts = noise() % 5;
        rows.push((0..texts).map(|_| Some(text(noise() % 300, &mut noise))).collect());
    }
    for row in rows {
        assert_eq!(unpack(&packed(&row)).as_ref(), Ok(&row));
    }
}

#[test]
fn no_bit_changes_unnoticed() {
    let packed = packed(&sample());
    for at in 0..packed.len() * 8 {
        let mut changed = packed.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(unpack(&changed).is_err(), "bit {at}");
    }
    for length in 0..packed.len() {
        assert!(unpack(&packed[..length]).is_err(), "{length} bytes");
    }
}

/// The check says nothing about who made the bytes: whatever they are, unpacking ends with an answer.
#[test]
fn bytes_with_a_true_check_are_read_or_refused_and_never_panic() {
    let packed = packed(&sample());
    let body = &packed[..packed.len() - CHECK_BYTES];
    for at in 0..body.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xbf, 0xc0, 0xfd, 0xfe, 0xff] {
            let mut changed = body.to_vec();
            changed[at] = byte;
            changed.extend(check_of(&changed));
            let _read_or_refused = unpack(&changed);
        }
    }
}

#[test]
fn digests_and_ids_take_their_bytes_and_repetitions_almost_none() {
    let once = packed(&sample());
    let twice: Vec<_> = sample().into_iter().chain(sample()).collect();
    assert!(once.len() < 2 * 32 + 16 + 70, "{}", once.len());
    assert!(packed(&twice).len() < once.len() + 12, "{}", packed(&twice).len());
    // Also far away: the content of a file stands in the request and in the call.
    let mut state = 1_u64;
    let content: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + (state >> 60) as u8)
    })
    .take(200_000)
    .collect();
    let both = packed(&[Some(content.clone()), Some(content)]);
    assert!(both.len() < 204_000, "{}", both.len());
}

/// What a store has was packed with it.
#[test]
fn the_dictionary_is_the_one_of_its_version() {
    let digest = Digest::of_bytes(DICTIONARY).to_string();
    assert_eq!(digest, "03c0c325979e823e9f7b90c9c99769824a959239a98c58345df00f8669f24c28");
}
