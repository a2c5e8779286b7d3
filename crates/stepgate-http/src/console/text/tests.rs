use serde_json::json;

use super::*;

#[test]
fn what_cannot_be_seen_is_made_visible_and_what_could_be_markup_is_escaped() {
    let rows = [
        ("plain, ünïcode, 😀", "plain, ünïcode, 😀"),
        ("a\tb", r#"a<b class="hidden">U+0009</b>b"#),
        ("\u{1b}[31m", r#"<b class="hidden">U+001B</b>[31m"#),
        ("a\u{202e}b", r#"a<b class="hidden">U+202E</b>b"#),
        ("\u{200b}\u{feff}", r#"<b class="hidden">U+200B</b><b class="hidden">U+FEFF</b>"#),
        ("❤\u{fe0f}", r#"❤<b class="hidden">U+FE0F</b>"#),
        ("a\u{a0}b", r#"a<b class="hidden">U+00A0</b>b"#),
        ("\u{e0041}", r#"<b class="hidden">U+E0041</b>"#),
        ("a\r\nb", "a<b class=\"hidden\">U+000D</b><i class=\"break\">↵</i>\nb"),
        ("<b class=\"hidden\">", "&#60;b class=&#34;hidden&#34;&#62;"),
        ("&lt;'", "&#38;lt;&#39;"),
        ("", ""),
    ];
    for (text, expected) in rows {
        assert_eq!(Text::of(text).render().unwrap(), expected, "{text:?}");
    }
}

#[test]
fn nothing_is_lost_between_the_pieces() {
    let text: String = (0..0x3000).chain(0xe0000..0xe0200).filter_map(char::from_u32).collect();
    let mut again = String::new();
    for piece in Text::of(&text).pieces {
        match piece {
            Piece::Plain(text) => again.push_str(&text),
            Piece::Hidden(name) => {
                let number = u32::from_str_radix(name.strip_prefix("U+").unwrap(), 16).unwrap();
                again.push(char::from_u32(number).unwrap());
            }
            Piece::Break => again.push('\n'),
        }
    }
    assert_eq!(again, text);
}

#[test]
fn a_long_text_is_shortened_and_all_of_it_is_there() {
    let line = |chars: usize| "ä".repeat(chars);
    let lines = |count: usize| vec!["x"; count].join("\n");
    let rows = [
        (line(SHORT_CHARS - 1), None),
        (line(SHORT_CHARS), None),
        (line(SHORT_CHARS + 1), Some(line(SHORT_CHARS))),
        (lines(SHORT_LINES), None),
        (lines(SHORT_LINES + 1), Some(lines(SHORT_LINES))),
    ];
    for (text, expected) in rows {
        assert_eq!(beginning(&text).map(str::to_owned), expected);
        let shown = Shown::of(&text);
        assert_eq!(shown.is_whole(), expected.is_none());
        let all = shown.whole.map_or(shown.beginning, |whole| whole.text);
        assert_eq!(all, Text::of(&text));
    }
    let page = Shown::of(&line(1234)).render().unwrap();
    assert!(page.contains("All 1,234 characters") && page.contains(&line(1234)), "{page}");
}

#[test]
fn a_value_is_shown_as_what_it_is() {
    let rows = [
        (json!("5"), "text", "5"),
        (json!(""), "text, empty", ""),
        (json!(5), "number", "5"),
        (json!(true), "yes or no", "true"),
        (json!(null), "nothing", "null"),
        (json!(["a\u{202e}"]), "list", "[\n  \"a\u{202e}\"\n]"),
        (json!({ "a": 1 }), "object", "{\n  \"a\": 1\n}"),
    ];
    for (value, expected, text) in rows {
        assert_eq!(kind(&value), expected);
        assert_eq!(Shown::value(&value), Shown::of(text));
    }
}

#[test]
fn numbers_are_written_so_that_people_can_read_them() {
    let rows = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
    for (number, expected) in rows {
        assert_eq!(with_commas(number), expected);
    }
}
