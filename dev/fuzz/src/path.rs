//! Sandbox paths against the standard library's idea of a path.

use std::path::{Component, Path};

use stepgate_core::path::{COMPONENT_BYTES_MAX, COMPONENTS_MAX, PATH_BYTES_MAX, ROOT, SandboxPath};

/// A path is accepted if and only if its plain reading stays beneath the sandbox, and then it is the
/// text that was given.
pub fn path(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let root = text == ROOT;
    let unslashed = text.strip_suffix('/').unwrap_or(text);
    let fits = text.len() <= PATH_BYTES_MAX;

    let rows = [
        (SandboxPath::file(text), !root && is_plain(text)),
        (SandboxPath::directory(text), root || is_plain(unslashed)),
        (SandboxPath::new_directory(text), !root && is_plain(unslashed)),
    ];
    for (parsed, expected) in rows {
        assert_eq!(parsed.is_ok(), expected && fits, "{text:?}");
        let Ok(path) = parsed else { continue };
        assert_eq!(path.as_str(), if root { ROOT } else { unslashed });
        assert_eq!(path.is_root(), root);
        assert_eq!(format!("{ROOT}{}", path.beneath()), path.as_str());
        assert_eq!(SandboxPath::directory(path.as_str()).as_ref(), Ok(&path), "one spelling");
        let joined = Path::new("/data").join(path.beneath());
        assert!(joined.starts_with("/data"), "{joined:?} leaves its directory");
        let _ = (path.extension(), path.has_reserved_component());
    }
}

/// Whether the text is `/sandbox/` followed by ordinary names and nothing else.
fn is_plain(text: &str) -> bool {
    let Some(beneath) = text.strip_prefix(ROOT) else { return false };
    let names: Vec<_> = Path::new(beneath).components().collect();
    let is_name = |component: &Component<'_>| match component {
        Component::Normal(name) => name.len() <= COMPONENT_BYTES_MAX,
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            false
        }
    };
    // `components` repairs doubled slashes and inner dots; a repaired text is not plain.
    let respelled: Vec<_> = names.iter().map(|name| name.as_os_str().to_string_lossy()).collect();
    !names.is_empty()
        && names.len() <= COMPONENTS_MAX
        && names.iter().all(is_name)
        && respelled.join("/") == beneath
        && !text.chars().any(char::is_control)
}
