use super::{escaped, plain};

#[test]
fn every_text_comes_back_and_none_has_a_nul() {
    for text in ["", "WRITE_FILE", "a\0b", "\\", "\\0", "\0\\0\\\\", "é\u{10FFFF}\0"] {
        let kept = escaped(text);
        assert!(!kept.contains('\0'), "{text:?}");
        assert_eq!(plain(&kept).as_deref(), Ok(text));
    }
    assert_eq!(escaped("sonos.set_volume"), "sonos.set_volume");
}

#[test]
fn a_text_that_was_not_escaped_by_us_is_refused() {
    for text in ["\\", "a\\n", "\\\\\\"] {
        assert!(plain(text).is_err(), "{text:?}");
    }
}
