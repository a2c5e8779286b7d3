//! The terminal as a screen: raw input, the alternate screen, and the way back, however the program ends.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

/// Switches to the alternate screen, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the cursor, and switches back.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
/// Most bytes of one read of the keyboard.
const READ_BYTES_MAX: usize = 256;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C or Ctrl-D.
    Leave,
    Char(char),
}

/// The screen. The terminal is as it was before once this is dropped, or the process panics.
pub(super) struct Screen {
    tty: Arc<Tty>,
    /// What each read of the keyboard brought.
    pub(super) keys: mpsc::UnboundedReceiver<Vec<Key>>,
}

struct Tty {
    file: File,
    before: Termios,
}

impl Tty {
    fn restore(&self) {
        // Where the terminal is gone there is nothing to restore.
        let _ = (&self.file).write_all(LEAVE.as_bytes());
        let _ = tcsetattr(&self.file, OptionalActions::Flush, &self.before);
    }
}

impl Screen {
    pub(super) fn open() -> anyhow::Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open("/dev/tty");
        let (Ok(file), true) = (opened, io::stdout().is_terminal()) else {
            bail!(
                "`stepgate top` needs a terminal: `stepgate approvals --watch` writes to a pipe or a file"
            );
        };
        let before = tcgetattr(&file).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        let tty = Arc::new(Tty { file, before });
        let watched = Arc::clone(&tty);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // First, so that the message does not vanish with the alternate screen.
            watched.restore();
            hook(panic);
        }));
        tcsetattr(&tty.file, OptionalActions::Flush, &raw)
            .context("cannot change the terminal's settings")?;
        let keys = listen(tty.file.try_clone()?);
        let screen = Self { tty, keys };
        screen.write(ENTER)?;
        Ok(screen)
    }

    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(&self.tty.file) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            Ok(_) | Err(_) => (80, 24),
        }
    }

    /// Draws these lines. None is wider than the screen, and they are not more than it has rows.
    pub(super) fn draw(&self, lines: &[String]) -> anyhow::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[0m\x1b[K")).collect();
        self.write(&format!("\x1b[H{}\x1b[J", lines.join("\r\n")))
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        (&self.tty.file).write_all(text.as_bytes()).context("cannot write to the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tty.restore();
    }
}

/// Reads the keyboard on a thread of its own, which ends with the process or the terminal.
/// Nothing stays in the terminal: what was typed before a question must not answer it.
fn listen(mut tty: File) -> mpsc::UnboundedReceiver<Vec<Key>> {
    let (send, keys) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut buffer = [0; READ_BYTES_MAX];
        while let Ok(count @ 1..) = tty.read(&mut buffer) {
            let read = buffer.get(..count).unwrap_or_default();
            if send.send(keys_of(&String::from_utf8_lossy(read))).is_err() {
                return;
            }
        }
    });
    keys
}

/// The keys of one read. A sequence that is not known is no key.
fn keys_of(text: &str) -> Vec<Key> {
    const SEQUENCES: [(&str, Key); 12] = [
        ("\x1b[A", Key::Up),
        ("\x1bOA", Key::Up),
        ("\x1b[B", Key::Down),
        ("\x1bOB", Key::Down),
        ("\x1b[5~", Key::PageUp),
        ("\x1b[6~", Key::PageDown),
        ("\x1b[H", Key::Home),
        ("\x1bOH", Key::Home),
        ("\x1b[1~", Key::Home),
        ("\x1b[F", Key::End),
        ("\x1bOF", Key::End),
        ("\x1b[4~", Key::End),
    ];
    let (mut keys, mut rest) = (Vec::new(), text);
    while let Some(c) = rest.chars().next() {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(it, _)| rest.starts_with(it)) {
            keys.push(*key);
            rest = rest.strip_prefix(sequence).unwrap_or_default();
            continue;
        }
        match c {
            '\x1b' if rest.len() == 1 => keys.push(Key::Escape),
            // Whatever follows belongs to a sequence that is not known.
            '\x1b' => return keys,
            '\r' | '\n' => keys.push(Key::Enter),
            '\x7f' | '\x08' => keys.push(Key::Backspace),
            '\x03' | '\x04' => keys.push(Key::Leave),
            c if c.is_control() => {}
            c => keys.push(Key::Char(c)),
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    keys
}

#[cfg(test)]
mod tests;
