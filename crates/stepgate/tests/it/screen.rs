//! A person in front of a screen that changes: reads it, presses keys, and reads on.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use serde_json::{Value, json};

use crate::http_client::PATIENCE;
use crate::scene::python;

/// A command in a terminal of its own, which no process of the test has started.
pub(crate) struct Screen {
    child: Child,
    keyboard: ChildStdin,
    told: Receiver<Value>,
    /// Everything that was shown and not yet waited for.
    shown: String,
}

/// How a command left its terminal.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) code: i64,
    /// Whether the settings of the terminal are as they were.
    pub(crate) restored: bool,
    /// What was shown since the last wait.
    pub(crate) shown: String,
}

impl Screen {
    pub(crate) fn of(command: &Command, rows: u16, columns: u16) -> Self {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/screen.py");
        let mut person = Command::new(python());
        person.arg(fixture).args([rows.to_string(), columns.to_string()]);
        person.arg(command.get_program()).args(command.get_args());
        person.env_clear().env("PATH", "/usr/bin:/bin").env("TERM", "xterm-256color");
        person.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = person.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let keyboard = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = tell.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, keyboard, told, shown: String::new() }
    }

    /// Waits until the screen shows this. What was shown up to it is forgotten.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            // The screen is drawn again and again, so a limit on each wait would not be enough.
            match self.told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(told) if told.get("shown").is_some() => {
                    self.shown.push_str(told["shown"].as_str().unwrap());
                }
                Ok(left) => panic!("it left ({left}) before it showed `{text}`: {}", self.shown),
                Err(error) => panic!("never shown: `{text}` ({error}): {}", self.shown),
            }
        }
    }

    fn ask(&mut self, value: &Value) {
        writeln!(self.keyboard, "{value}").unwrap();
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.ask(&json!({ "keys": keys }));
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.ask(&json!({ "size": [rows, columns] }));
    }

    pub(crate) fn signal(&mut self, signal: i32) {
        self.ask(&json!({ "signal": signal }));
    }

    /// Waits until the command ends.
    pub(crate) fn end(mut self) -> Left {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(told) if told.get("shown").is_some() => {
                    self.shown.push_str(told["shown"].as_str().unwrap());
                }
                Ok(left) => {
                    let _ = self.child.wait();
                    return Left {
                        code: left["code"].as_i64().unwrap(),
                        restored: left["restored"].as_bool().unwrap(),
                        shown: std::mem::take(&mut self.shown),
                    };
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("it never ended: {}", self.shown)
                }
            }
        }
    }
}
