use super::*;

#[test]
fn keys_and_their_sequences_are_told_apart() {
    let rows = [
        ("a", vec![Key::Char('a')]),
        ("\x1b", vec![Key::Escape]),
        ("\x1b[A\x1bOB\x1b[6~", vec![Key::Up, Key::Down, Key::PageDown]),
        ("é\r\x7f", vec![Key::Char('é'), Key::Enter, Key::Backspace]),
        ("\x03", vec![Key::Leave]),
        // A function key, and a paste that begins like a sequence: not the letters in it.
        ("\x1b[15~", vec![]),
        ("\x1b[200~y", vec![]),
        ("\x01", vec![]),
    ];
    for (text, keys) in rows {
        assert_eq!(keys_of(text), keys, "{text:?}");
    }
}
