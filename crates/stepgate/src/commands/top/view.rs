//! What the screen shows and what the keys do, without a terminal and without a gateway.

use anstyle::Style;
use stepgate_core::attention::Kind;
use stepgate_core::ids::ApprovalId;
use stepgate_core::time::Timestamp;
use unicode_width::UnicodeWidthChar;

use super::feed::{Snapshot, Waiting};
use super::screen::Key;
use crate::commands::decide::Decision;
use crate::show::{DIM, ERROR, WAITING, cut, printable, span};

const HELP: &str = "\
  up, k / down, j       select; in a long text, scroll
  page up / page down   scroll by a page
  enter                 show everything that is decided on
  a                     approve the selected one, after a question
  d                     deny the selected one, after a question
  escape                back
  q, ctrl-c             leave

A decision is asked for with everything that it is about. `y` decides, once the end of the text was on the screen;
`n` does not. Before that, `t` writes a note that is recorded with the decision.";

/// Longest note, in characters. The gateway has its own limit in bytes.
const NOTE_CHARS_MAX: usize = 1000;
/// Rows above and below the list or the text.
const HEAD_ROWS: usize = 4;
const FOOT_ROWS: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Leave,
    /// Read this approval, and show it: to look, or with the question.
    Open(ApprovalId, Option<Decision>),
    /// Decide, as the person has confirmed.
    Decide {
        id: ApprovalId,
        decision: Decision,
        note: String,
    },
}

pub(super) struct View {
    pub(super) place: String,
    pub(super) snapshot: Snapshot,
    pub(super) said: String,
    /// Why what is shown is not what waits now.
    pub(super) trouble: Option<String>,
    /// The selected approval, by its id: a list that changes never selects another one by itself while it waits.
    selected: Option<ApprovalId>,
    page: Page,
}

enum Page {
    List,
    Help,
    Approval(Shown),
}

/// An approval with everything that is decided on.
struct Shown {
    id: ApprovalId,
    /// Printable, and not cut.
    text: String,
    /// The decision that is asked for; none where the person only looks.
    question: Option<Question>,
    scroll: usize,
}

struct Question {
    decision: Decision,
    note: String,
    is_writing: bool,
    /// Whether the end of the text was on the screen: what was not seen is not decided on.
    has_seen_all: bool,
}

impl View {
    pub(super) fn new(place: String) -> Self {
        let (snapshot, said) = (Snapshot::default(), String::new());
        Self { place, snapshot, said, trouble: None, selected: None, page: Page::List }
    }

    /// Takes what the gateway tells. Where the selected one no longer waits, the next one is selected.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        let at = self.position();
        self.trouble = None;
        self.snapshot = snapshot;
        if !self.snapshot.waiting.iter().any(|it| Some(it.id) == self.selected) {
            self.select(at);
        }
    }

    /// Shows an approval that was read, with the question where one is asked.
    pub(super) fn open(&mut self, id: ApprovalId, text: String, decision: Option<Decision>) {
        let question = decision.map(|decision| Question {
            decision,
            note: String::new(),
            is_writing: false,
            has_seen_all: false,
        });
        self.said.clear();
        self.page = Page::Approval(Shown { id, text, question, scroll: 0 });
    }

    pub(super) fn close(&mut self) {
        self.page = Page::List;
    }

    fn position(&self) -> usize {
        let at = self.snapshot.waiting.iter().position(|it| Some(it.id) == self.selected);
        at.unwrap_or(0)
    }

    fn select(&mut self, at: usize) {
        let last = self.snapshot.waiting.len().saturating_sub(1);
        self.selected = self.snapshot.waiting.get(at.min(last)).map(|it| it.id);
    }

    pub(super) fn key(&mut self, key: Key, rows: usize) -> Act {
        if key == Key::Leave {
            return Act::Leave;
        }
        let page_rows = rows.saturating_sub(HEAD_ROWS + FOOT_ROWS).max(1);
        match &mut self.page {
            Page::List => self.key_in_list(key, page_rows),
            Page::Help => {
                self.close();
                Act::Nothing
            }
            Page::Approval(shown) => shown.key(key, page_rows).unwrap_or_else(|| {
                self.close();
                Act::Nothing
            }),
        }
    }

    fn key_in_list(&mut self, key: Key, page_rows: usize) -> Act {
        let at = self.position();
        let open = |decision| self.selected.map_or(Act::Nothing, |id| Act::Open(id, decision));
        match key {
            Key::Char('q') | Key::Leave => return Act::Leave,
            Key::Char('a') => return open(Some(Decision::Approve)),
            Key::Char('d') => return open(Some(Decision::Deny)),
            Key::Enter => return open(None),
            Key::Up | Key::Char('k') => self.select(at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(at + 1),
            Key::PageUp => self.select(at.saturating_sub(page_rows)),
            Key::PageDown => self.select(at + page_rows),
            Key::Home => self.select(0),
            Key::End => self.select(usize::MAX),
            Key::Char('?') => self.page = Page::Help,
            Key::Char(_) | Key::Escape | Key::Backspace => {}
        }
        Act::Nothing
    }

    pub(super) fn lines(&mut self, now: Timestamp, columns: usize, rows: usize) -> Vec<String> {
        let page_rows = rows.saturating_sub(HEAD_ROWS + FOOT_ROWS);
        let mut lines = self.head(now, columns);
        let (mut body, foot) = match &mut self.page {
            Page::List => {
                let keys = "a approve  d deny  enter everything  ? help  q leave";
                (self.list(now, columns, page_rows), keys.to_owned())
            }
            Page::Help => {
                (HELP.lines().map(|line| cut(line, columns)).collect(), "any key: back".to_owned())
            }
            Page::Approval(shown) => shown.lines(columns, page_rows),
        };
        body.resize(page_rows, String::new());
        lines.append(&mut body);
        lines.push(styled(WAITING, &cut(&foot, columns)));
        lines.truncate(rows);
        lines
    }

    fn head(&self, now: Timestamp, columns: usize) -> Vec<String> {
        let Snapshot { waiting, counts, running, steps_per_second, stops, started_s } =
            &self.snapshot;
        let count = |kind: Kind| counts.get(kind.as_str()).copied().unwrap_or_default();
        let now_s = u64::try_from(now.as_millisecond() / 1000).unwrap_or_default();
        let up = started_s.map(|at| format!("  up {}", span(now_s.saturating_sub(at) * 1000)));
        let oldest = waiting.first().map(|it| format!(", oldest {}", span(now.since_ms(it.since))));
        let first = format!(
            "{}{}  {steps_per_second:.1} steps/s, {running} under way  {} waiting{}",
            printable(&self.place),
            up.unwrap_or_default(),
            count(Kind::Approval),
            oldest.unwrap_or_default(),
        );
        let others = counts
            .iter()
            .filter(|(kind, count)| **count > 0 && kind.as_str() != Kind::Approval.as_str());
        let others: Vec<_> =
            others.map(|(kind, count)| format!("{count} {}", printable(kind))).collect();
        let stopped =
            (*stops > 0).then(|| format!("{stops} stop(s) in force: `stepgate stops` lists them"));
        let others = (!others.is_empty())
            .then(|| format!("`stepgate attention` has more: {}", others.join(", ")));
        let second: Vec<_> = stopped.into_iter().chain(others).collect();
        let second = match second.is_empty() {
            true => styled(DIM, &cut("nothing else needs a person", columns)),
            false => styled(ERROR, &cut(&second.join("; "), columns)),
        };
        let said = cut(&printable(self.trouble.as_ref().unwrap_or(&self.said)), columns);
        vec![cut(&first, columns), second, styled(WAITING, &said), String::new()]
    }

    fn list(&self, now: Timestamp, columns: usize, page_rows: usize) -> Vec<String> {
        let waiting = &self.snapshot.waiting;
        if waiting.is_empty() {
            return vec![cut("nothing waits for a person", columns)];
        }
        // The page that has the selected one.
        let first = self.position() / page_rows.max(1) * page_rows;
        let row = |it: &Waiting| {
            let age = span(now.since_ms(it.since));
            let is_selected = Some(it.id) == self.selected;
            let mark = if is_selected { '>' } else { ' ' };
            let line = format!("{mark} {}  {age:>6}  {}", it.id, printable(&it.reason));
            let style = if is_selected { Style::new().invert() } else { Style::new() };
            styled(style, &cut(&line, columns))
        };
        waiting.iter().skip(first).take(page_rows).map(row).collect()
    }
}

impl Shown {
    /// What follows from a key; none where it closes the page.
    fn key(&mut self, key: Key, page_rows: usize) -> Option<Act> {
        if let Some(question) = self.question.as_mut().filter(|question| question.is_writing) {
            question.write(key);
            return Some(Act::Nothing);
        }
        match (key, &mut self.question) {
            (Key::Char('y'), Some(question)) if question.has_seen_all => {
                let (decision, note) = (question.decision, question.note.clone());
                return Some(Act::Decide { id: self.id, decision, note });
            }
            (Key::Char('t'), Some(question)) => question.is_writing = true,
            (Key::Char('n'), Some(_)) | (Key::Escape | Key::Char('q'), _) => return None,
            (Key::Enter, None) => return None,
            (Key::Char('a'), None) => return Some(Act::Open(self.id, Some(Decision::Approve))),
            (Key::Char('d'), None) => return Some(Act::Open(self.id, Some(Decision::Deny))),
            (Key::Up | Key::Char('k'), _) => self.scroll = self.scroll.saturating_sub(1),
            (Key::Down | Key::Char('j'), _) => self.scroll += 1,
            (Key::PageUp, _) => self.scroll = self.scroll.saturating_sub(page_rows),
            (Key::PageDown, _) => self.scroll += page_rows,
            (Key::Home, _) => self.scroll = 0,
            (Key::End, _) => self.scroll = usize::MAX,
            (Key::Enter | Key::Backspace | Key::Leave | Key::Char(_), _) => {}
        }
        Some(Act::Nothing)
    }

    /// The visible part of the text, and the line below it.
    fn lines(&mut self, columns: usize, page_rows: usize) -> (Vec<String>, String) {
        let lines: Vec<String> =
            self.text.lines().flat_map(|line| wrapped(line, columns)).collect();
        let last = lines.len().saturating_sub(page_rows);
        self.scroll = self.scroll.min(last);
        let visible = lines.into_iter().skip(self.scroll).take(page_rows).collect();
        let is_end = self.scroll == last && page_rows > 0;
        let more = if is_end { "" } else { "page down shows more  " };
        let foot = match &mut self.question {
            None => format!("{more}a approve  d deny  escape back"),
            Some(question) => {
                question.has_seen_all |= is_end;
                question.foot(self.id)
            }
        };
        (visible, foot)
    }
}

impl Question {
    fn write(&mut self, key: Key) {
        match key {
            Key::Enter | Key::Escape => self.is_writing = false,
            Key::Backspace => {
                self.note.pop();
            }
            Key::Char(c) if self.note.chars().count() < NOTE_CHARS_MAX => self.note.push(c),
            Key::Char(_)
            | Key::Up
            | Key::Down
            | Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::Leave => {}
        }
    }

    fn foot(&self, id: ApprovalId) -> String {
        let note = printable(&self.note);
        if self.is_writing {
            return format!("note: {note}_  (enter: done)");
        }
        let note = if note.is_empty() { String::new() } else { format!(" with the note `{note}`") };
        match self.has_seen_all {
            true => format!("{} it{note}? y/n, t writes a note  {id}", self.decision.as_str()),
            false => format!("{} it? page down to its end first  {id}", self.decision.as_str()),
        }
    }
}

fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Begins every piece of a line but the first, so that no text can look like a line of its own.
const CONTINUED: &str = "↪ ";
const CONTINUED_COLUMNS: usize = 2;

/// A line in pieces that fit the screen. Nothing is left out.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let (mut pieces, mut width) = (vec![String::new()], 0);
    for c in line.chars() {
        let wide = c.width().unwrap_or(0);
        let begun = if pieces.len() == 1 { 0 } else { CONTINUED_COLUMNS };
        if width + wide > columns && width > begun {
            pieces.push(CONTINUED.to_owned());
            width = CONTINUED_COLUMNS;
        }
        width += wide;
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

#[cfg(test)]
mod tests;
