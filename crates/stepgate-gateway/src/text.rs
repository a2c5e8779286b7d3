//! Text from outside, made safe to show: one table of characters that cannot be seen, for the terminal, the
//! console and MCP alike.

/// Text that cannot play tricks on a terminal: what is there and cannot be seen stands there by its
/// number, such as `<U+202E>`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match hidden(c) {
            Some(number) => shown.extend(["<", &number, ">"]),
            None => shown.push(c),
        }
    }
    shown
}

/// Printable, line by line: for texts that have lines of their own.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// The beginning of a long text.
pub fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// The number of a character that cannot be seen, such as `U+202E`; none for one that can.
pub fn hidden(c: char) -> Option<String> {
    is_hidden(c).then(|| format!("U+{:04X}", u32::from(c)))
}

/// Whether a character leaves no mark of its own, or one that is taken for another: controls, what turns
/// the direction of reading, what has no width, and every space but the common one.
fn is_hidden(c: char) -> bool {
    c.is_control() || (c != ' ' && c.is_whitespace()) || is_ignorable(c) || is_blank(c)
}

/// Unicode's `Default_Ignorable_Code_Point`: what a display leaves out.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Characters that have a place and nothing in it, or a meaning for programs alone.
fn is_blank(c: char) -> bool {
    let is_noncharacter = u32::from(c) & 0xfffe == 0xfffe;
    is_noncharacter
        || matches!(c,
            // Braille without dots, a note without a head, interlinear annotation, hieroglyph joiners.
            '\u{2800}' | '\u{1d159}' | '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}'
            | '\u{fdd0}'..='\u{fdef}')
}

#[cfg(test)]
mod tests;
