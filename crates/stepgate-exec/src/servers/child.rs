//! The process of a tool server: its environment, the end of its standard error, and how it is ended.

use std::collections::{BTreeMap, VecDeque};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use stepgate_core::lock::locked;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::spec::{END_WAIT, STDERR_BYTES_PER_SECOND_MAX, STDERR_LINE_BYTES_MAX, STDERR_LINES_MAX};
use crate::launcher;

/// The variables of our own environment that a tool server gets.
const PASSED_ON: [&str; 3] = ["PATH", "HOME", "LANG"];

/// A process with everything that it has started. It is killed on drop.
pub(super) struct Child {
    // The launcher's process leads the group. Until it is waited for, no other process can get its id.
    process: tokio::process::Child,
    stderr: JoinHandle<()>,
    last_words: LastWords,
    flood: watch::Receiver<Option<String>>,
}

/// The server's standard input and output.
pub(crate) struct Ends {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

impl Child {
    /// Starts a command in a process group of its own, with this environment and little of ours.
    pub(super) fn start(
        command: std::process::Command,
        env: BTreeMap<String, String>,
    ) -> std::io::Result<(Self, Ends)> {
        let mut command = Command::from(command);
        command
            .env_clear()
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut process = command.spawn()?;
        let missing = || std::io::Error::other("a pipe is missing");
        let stdin = process.stdin.take().ok_or_else(missing)?;
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let last_words = LastWords::default();
        let (told, flood) = watch::channel(None);
        let heard = last_words.clone();
        let stderr = tokio::spawn(async move {
            if let Err(why) = heard.listen(stderr).await {
                told.send_replace(Some(why));
            }
        });
        Ok((Self { process, stderr, last_words, flood }, Ends { stdin, stdout }))
    }

    /// Returns when the process has written too much to its standard error, with the reason.
    pub(super) async fn flooded(&self) -> String {
        let mut flood = self.flood.clone();
        let why = flood.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // Standard error was read to its end.
            None => std::future::pending().await,
        }
    }

    pub(super) fn has_flooded(&self) -> bool {
        self.flood.borrow().is_some()
    }

    /// Waits for the process to end by itself, and kills it where it does not.
    pub(super) async fn leave(mut self) {
        // The launcher ends the whole group when the command has ended.
        let _ = tokio::time::timeout(END_WAIT, self.process.wait()).await;
    }

    /// Ends the process, and returns the last lines of its standard error.
    pub(super) async fn end(mut self) -> Vec<String> {
        /// Output from before the end may still be in the pipe.
        const LISTEN_MAX: Duration = Duration::from_millis(500);
        // If the process has ended by itself, the launcher says why; otherwise it is killed after the wait.
        let ended = tokio::time::timeout(LISTEN_MAX, &mut self.stderr);
        if ended.await.is_err() {
            self.kill();
        }
        self.last_words.lines()
    }

    fn kill(&mut self) {
        let leader = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        // The launcher ends last and by itself: it also ends processes that have left the group. Only if it
        // has not started any process yet, the launcher itself must be killed. One look can miss a child
        // whose parent ended meanwhile; the second look finds it.
        if let Some(leader) = leader
            && (0..2).all(|_| launcher::end_children_of(leader) == 0)
        {
            let _ = rustix::process::kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        self.stderr.abort();
    }
}

/// The last lines that a server wrote to its standard error.
#[derive(Clone, Default)]
struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    fn lines(&self) -> Vec<String> {
        locked(&self.0).iter().cloned().collect()
    }

    fn add(&self, line: &[u8]) {
        let mut lines = locked(&self.0);
        if lines.len() == STDERR_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
    }

    /// Reads to the end, and keeps the beginning of each line. The error says that the output exceeds the
    /// rate limit.
    async fn listen(self, stderr: impl AsyncRead + Unpin) -> Result<(), String> {
        const WINDOW: Duration = Duration::from_secs(1);
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        let (mut since, mut bytes) = (Instant::now(), 0_usize);
        while let Ok(chunk) = reader.fill_buf().await {
            if chunk.is_empty() {
                break;
            }
            for byte in chunk {
                match byte {
                    b'\n' => self.add(&std::mem::take(&mut line)),
                    byte if line.len() < STDERR_LINE_BYTES_MAX => line.push(*byte),
                    _ => {}
                }
            }
            let used = chunk.len();
            reader.consume(used);
            if since.elapsed() >= WINDOW {
                (since, bytes) = (Instant::now(), 0);
            }
            bytes = bytes.saturating_add(used);
            if bytes > STDERR_BYTES_PER_SECOND_MAX {
                return Err(format!(
                    "it wrote more than {STDERR_BYTES_PER_SECOND_MAX} bytes a second to its standard error"
                ));
            }
        }
        if !line.is_empty() {
            self.add(&line);
        }
        Ok(())
    }
}
