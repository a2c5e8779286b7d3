//! Makes text from outside safe to show: one table of invisible characters, for the terminal, the console and MCP.

use std::error::Error;
use std::iter;

/// An error with what caused it, on one line.
pub fn with_causes(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Text that cannot deceive on a terminal: each invisible character is replaced by its number, such as `<U+202E>`.
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

/// Like [`printable`], but keeps line breaks.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// The text, cut to `chars_max` characters with an ellipsis at the end.
pub fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// The text with a capital letter at its beginning.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// The number of an invisible character, such as `U+202E`; none for a visible one.
pub fn hidden(c: char) -> Option<String> {
    is_hidden(c).then(|| format!("U+{:04X}", u32::from(c)))
}

/// Whether a character is invisible or looks like another one: controls, changes of writing direction, characters
/// without width, and every space except the common one.
fn is_hidden(c: char) -> bool {
    c.is_control() || (c != ' ' && c.is_whitespace()) || is_ignorable(c) || is_blank(c)
}

/// Unicode's `Default_Ignorable_Code_Point`: what a display leaves out.
pub(crate) fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Characters that show as blank space, or that only programs interpret.
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
