//! A stream in a file: one line for each event, synced before the cursor moves. A full file is renamed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::line::Line;
use crate::durable::{PRIVATE, sync_names};
use crate::follow::Trouble;

/// How much of a file is read at once, from its end on, to find the last whole line.
const TAIL_BYTES: u64 = 4 * 1024 * 1024;

/// Pause before a file that another program has locked is tried again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The file of one stream.
#[derive(Clone)]
pub(super) struct LogFile {
    path: PathBuf,
    rotate_bytes: u64,
    keep: u32,
    /// How long it waits for another program that has locked the file.
    timeout: Duration,
}

impl LogFile {
    pub(super) fn new(path: PathBuf, rotate_bytes: u64, keep: u32, timeout: Duration) -> Self {
        Self { path, rotate_bytes, keep, timeout }
    }

    pub(super) async fn append(&self, lines: &[Line]) -> Result<(), Trouble> {
        let mut text = String::with_capacity(lines.iter().map(|line| line.text.len() + 1).sum());
        for line in lines {
            text.push_str(&line.text);
            text.push('\n');
        }
        let file = self.clone();
        let written = tokio::task::spawn_blocking(move || file.write(text.as_bytes())).await;
        let written = written.map_err(|error| Trouble::later(error.to_string()))?;
        written.map_err(|error| Trouble::later(format!("{}: {error}", self.path.display())))
    }

    /// The file is opened for each batch, so that others may rename it.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open()?;
        let mut size = whole_lines(&mut file)?;
        while size > 0 && size.saturating_add(bytes.len() as u64) > self.rotate_bytes {
            self.rotate()?;
            file = self.open()?;
            size = whole_lines(&mut file)?;
        }
        file.write_all(bytes)?;
        file.sync_data()?;
        match size {
            // It may be new: its name is durable, too.
            0 => sync_names(self.path.parent()),
            _ => Ok(()),
        }
    }

    /// Opens the file, and has it alone until it is closed: `stepgate audit send` writes beside a gateway, and what one
    /// has half written would look like a line that a crash cut off.
    fn open(&self) -> io::Result<File> {
        loop {
            // Opening a pipe would wait for its reader.
            if fs::metadata(&self.path).is_ok_and(|it| !it.is_file()) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
            }
            let mut options = OpenOptions::new();
            let file =
                options.read(true).append(true).create(true).mode(PRIVATE).open(&self.path)?;
            self.lock(&file)?;
            // While this waited, the other may have renamed the file.
            let (locked, named) = (file.metadata()?, fs::metadata(&self.path));
            let is_same = |it: fs::Metadata| (it.dev(), it.ino()) == (locked.dev(), locked.ino());
            if named.is_ok_and(is_same) {
                return Ok(file);
            }
        }
    }

    /// Waits for another program that has it, but not for ever: a stream that waits says so.
    fn lock(&self, file: &File) -> io::Result<()> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    let why = "another program keeps it locked";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AGAIN),
            }
        }
    }

    fn rotate(&self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            let (from, to) = (renamed(&self.path, number), renamed(&self.path, number + 1));
            if from.exists() {
                fs::rename(from, to)?;
            }
        }
        fs::rename(&self.path, renamed(&self.path, 1))?;
        sync_names(self.path.parent())
    }
}

/// The name that a full file of a stream gets; 1 is the newest.
pub fn renamed(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Cuts off a line that a crash or a full disk left unfinished: it is sent again. Returns the size.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut last = [0];
    if size > 0 {
        file.seek(SeekFrom::Start(size - 1))?;
        file.read_exact(&mut last)?;
    }
    if size == 0 || last == *b"\n" {
        return Ok(size);
    }
    let kept = end_of_lines(file, size)?;
    file.set_len(kept)?;
    Ok(kept)
}

/// Where the last whole line ends.
fn end_of_lines(file: &mut File, size: u64) -> io::Result<u64> {
    let mut end = size;
    while end > 0 {
        let from = end.saturating_sub(TAIL_BYTES);
        let mut part = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(file).take(end - from).read_to_end(&mut part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}
