//! The sandbox's mark: a file in it with a random id, which no action can reach.
//!
//! If nodes gave two directories the same name, they would recover calls in the wrong one: a deletion looks
//! done where the file never existed. So the store keeps the mark of the first directory with that name.
//! Where only one node uses the directory, the file also holds its own inode and birth time: a copy of it
//! has other values.

use std::fs::File;
use std::io::{Read, Seek, Write};

use rustix::fs::FlockOperation;
use uuid::Uuid;

use super::SandboxError;
use super::identity::Identity;
use super::resolve::{Root, stat_of_open};

/// The file's name. It has the prefix of Stepgate's own files, which no path can name.
pub(super) const NAME: &str = ".stepgate-mark";

/// Longest text of a mark.
const BYTES_MAX: u64 = 256;

/// Reads the mark, or makes it.
pub(super) fn mark(root: &Root, is_shared: bool) -> Result<String, SandboxError> {
    let failed = SandboxError::Mark;
    let mut file = File::from(root.own_file(NAME).map_err(|errno| failed(errno.into()))?);
    // Another node may create it at the same time. The lock is released when the file is closed.
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|errno| failed(errno.into()))?;
    let mut text = String::new();
    (&file).take(BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let stat = stat_of_open(&file).map_err(|errno| failed(errno.into()))?;
    let here = if is_shared { None } else { Identity::of(&stat).place() };
    let is_new = text.trim().is_empty();
    let (id, place) = match text.trim().split_once(' ') {
        Some((id, place)) => (id.to_owned(), Some(place.to_owned())),
        None if is_new => (Uuid::new_v4().to_string(), None),
        None => (text.trim().to_owned(), None),
    };
    if let (Some(place), Some(here)) = (&place, &here)
        && place != here
    {
        return Err(SandboxError::Copied { id });
    }
    if is_new || place != here {
        let line = [id.as_str(), here.as_deref().unwrap_or_default()].join(" ");
        write(root, &mut file, line.trim_end()).map_err(failed)?;
    }
    Ok(id)
}

fn write(root: &Root, file: &mut File, line: &str) -> std::io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    File::from(root.open_directory("")?).sync_all()
}

#[cfg(test)]
mod tests;
