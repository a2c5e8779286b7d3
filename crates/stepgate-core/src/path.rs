//! Paths beneath `/sandbox/`, checked as text (decision 9). The executor checks what depends on the file
//! system, at the moment of use.

use crate::ids::shown_text;

/// What every path begins with.
pub const ROOT: &str = "/sandbox/";
/// Longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest component, in bytes.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Deepest path, in components beneath the root.
pub const COMPONENTS_MAX: usize = 64;
/// Prefix of Stepgate's own files: they are never listed and cannot be addressed.
pub const TEMPORARY_PREFIX: &str = ".stepgate-";

/// Why a text is not a path beneath the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each means")]
pub enum InvalidPath {
    #[error("must start with /sandbox/")]
    OutsideSandbox,
    #[error("longer than 4096 bytes")]
    TooLong,
    #[error("a component longer than 255 bytes")]
    ComponentTooLong,
    #[error("deeper than 64 components")]
    TooDeep,
    #[error("a control character")]
    ControlCharacter,
    #[error("an empty component")]
    EmptyComponent,
    #[error("a component that is . or ..")]
    DotComponent,
    #[error("a trailing slash")]
    TrailingSlash,
    #[error("the sandbox itself")]
    Root,
}

/// A path beneath the sandbox, in its only spelling: no trailing slash, except for the root.
///
/// ```
/// use stepgate_core::path::SandboxPath;
///
/// assert!(SandboxPath::file("/sandbox/notes/today.md").is_ok());
/// assert!(SandboxPath::file("/sandbox/../etc/passwd").is_err());
/// ```
///
/// A path that was not checked cannot be made:
///
/// ```compile_fail,E0423
/// let path = stepgate_core::path::SandboxPath("/etc/passwd".to_owned());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxPath(String);

shown_text!(SandboxPath, 0);

impl SandboxPath {
    /// A file's path.
    pub fn file(text: &str) -> Result<Self, InvalidPath> {
        match Self::parse(text)? {
            (path, _) if path.is_root() => Err(InvalidPath::Root),
            (_, true) => Err(InvalidPath::TrailingSlash),
            (path, false) => Ok(path),
        }
    }

    /// A directory's path; it may end with a slash, and may be the sandbox itself.
    pub fn directory(text: &str) -> Result<Self, InvalidPath> {
        Self::parse(text).map(|(path, _)| path)
    }

    /// A directory's path that is not the sandbox itself.
    pub fn new_directory(text: &str) -> Result<Self, InvalidPath> {
        let path = Self::directory(text)?;
        if path.is_root() { Err(InvalidPath::Root) } else { Ok(path) }
    }

    fn parse(text: &str) -> Result<(Self, bool), InvalidPath> {
        let beneath = text.strip_prefix(ROOT).ok_or(InvalidPath::OutsideSandbox)?;
        if text.len() > PATH_BYTES_MAX {
            return Err(InvalidPath::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidPath::ControlCharacter);
        }
        if beneath.is_empty() {
            return Ok((Self(text.to_owned()), true));
        }
        let (names, has_slash) = match beneath.strip_suffix('/') {
            Some(names) => (names, true),
            None => (beneath, false),
        };
        for name in names.split('/') {
            match name {
                "" => return Err(InvalidPath::EmptyComponent),
                "." | ".." => return Err(InvalidPath::DotComponent),
                _ if name.len() > COMPONENT_BYTES_MAX => return Err(InvalidPath::ComponentTooLong),
                _ => {}
            }
        }
        if names.split('/').count() > COMPONENTS_MAX {
            return Err(InvalidPath::TooDeep);
        }
        Ok((Self(format!("{ROOT}{names}")), has_slash))
    }

    /// The path relative to the sandbox; empty for the sandbox itself.
    pub fn beneath(&self) -> &str {
        self.0.strip_prefix(ROOT).unwrap_or_default()
    }

    /// Whether this is the sandbox itself.
    pub fn is_root(&self) -> bool {
        self.beneath().is_empty()
    }

    /// The text after the last dot of the last component, where there is text before that dot.
    pub fn extension(&self) -> Option<&str> {
        let name = self.0.rsplit('/').next()?;
        name.rsplit_once('.').and_then(|(stem, extension)| (!stem.is_empty()).then_some(extension))
    }

    /// Whether any component is a reserved name: a device, a stream, or one of Stepgate's own files.
    pub fn has_reserved_component(&self) -> bool {
        self.beneath().split('/').any(is_reserved)
    }
}

fn is_reserved(component: &str) -> bool {
    if component.contains(':') || component.starts_with(TEMPORARY_PREFIX) {
        return true;
    }
    let stem = component.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    match stem.as_str() {
        "CON" | "PRN" | "AUX" | "NUL" => true,
        _ => stem
            .strip_prefix("COM")
            .or_else(|| stem.strip_prefix("LPT"))
            .is_some_and(|port| matches!(port.as_bytes(), [b'1'..=b'9'])),
    }
}

#[cfg(test)]
mod tests;
