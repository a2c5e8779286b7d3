use super::InvalidPath::{
    ComponentTooLong, ControlCharacter, DotComponent, EmptyComponent, OutsideSandbox, Root,
    TooDeep, TooLong, TrailingSlash,
};
use super::{COMPONENT_BYTES_MAX, COMPONENTS_MAX, InvalidPath, PATH_BYTES_MAX, ROOT, SandboxPath};

type Judgement = Result<&'static str, InvalidPath>;

/// One row: the text, and what it is as a file, as a directory and as a new directory.
fn check(text: &str, file: Judgement, directory: Judgement, new_directory: Judgement) {
    let shown = |path: Result<SandboxPath, InvalidPath>| path.map(|path| path.to_string());
    let owned = |judgement: Judgement| judgement.map(str::to_owned);
    assert_eq!(shown(SandboxPath::file(text)), owned(file), "{text:?} as file");
    assert_eq!(shown(SandboxPath::directory(text)), owned(directory), "{text:?} as directory");
    assert_eq!(
        shown(SandboxPath::new_directory(text)),
        owned(new_directory),
        "{text:?} as new directory"
    );
}

fn refused(text: &str, why: InvalidPath) {
    check(text, Err(why), Err(why), Err(why));
}

fn accepted(text: &'static str) {
    check(text, Ok(text), Ok(text), Ok(text));
}

#[test]
fn ordinary_paths_are_accepted_as_they_are() {
    accepted("/sandbox/a");
    accepted("/sandbox/a.txt");
    accepted("/sandbox/config/settings.txt");
    accepted("/sandbox/sandbox");
    accepted("/sandbox/.hidden");
    accepted("/sandbox/...");
    accepted("/sandbox/..a");
    accepted("/sandbox/a..");
    accepted("/sandbox/a b");
    accepted("/sandbox/ ");
    accepted("/sandbox/~");
    accepted("/sandbox/é😀");
    accepted("/sandbox/back\\slash");
    accepted("/sandbox/..\\..\\etc");
    accepted("/sandbox/%2e%2e");
    accepted("/sandbox/a:b");
}

#[test]
fn a_path_must_start_with_the_sandbox() {
    for text in [
        "",
        "/",
        "sandbox/a",
        "/sandbox",
        "/sandboxes/a",
        "/SANDBOX/a",
        "/Sandbox/a",
        "//sandbox/a",
        " /sandbox/a",
        "./sandbox/a",
        "/./sandbox/a",
        "/tmp/a.txt",
        "/etc/passwd",
        "../sandbox/a",
        "/../sandbox/a",
        "file:///sandbox/a",
        "\\sandbox\\a",
        "C:/sandbox/a",
        "\0/sandbox/a",
        "\u{feff}/sandbox/a",
    ] {
        refused(text, OutsideSandbox);
    }
}

#[test]
fn dots_are_refused_as_components_and_only_there() {
    for text in [
        "/sandbox/.",
        "/sandbox/..",
        "/sandbox/../etc",
        "/sandbox/a/..",
        "/sandbox/a/../b",
        "/sandbox/./a",
        "/sandbox/a/.",
        "/sandbox/../sandbox/a",
        "/sandbox/./",
        "/sandbox/../",
    ] {
        refused(text, DotComponent);
    }
}

#[test]
fn empty_components_are_refused() {
    for text in ["/sandbox//", "/sandbox//a", "/sandbox/a//b", "/sandbox/a//", "/sandbox///"] {
        refused(text, EmptyComponent);
    }
}

#[test]
fn control_characters_are_refused() {
    for c in ['\0', '\u{1}', '\t', '\n', '\r', '\u{1b}', '\u{1f}', '\u{7f}', '\u{80}', '\u{9f}'] {
        refused(&format!("/sandbox/a{c}b"), ControlCharacter);
        refused(&format!("/sandbox/{c}"), ControlCharacter);
        refused(&format!("/sandbox/a/{c}/"), ControlCharacter);
    }
    accepted("/sandbox/a\u{a0}b");
}

#[test]
fn only_directories_may_end_with_a_slash_or_be_the_sandbox() {
    let a = Ok("/sandbox/a");
    check("/sandbox/a/", Err(TrailingSlash), a, a);
    let b = Ok("/sandbox/a/b.txt");
    check("/sandbox/a/b.txt/", Err(TrailingSlash), b, b);
    check("/sandbox/", Err(Root), Ok(ROOT), Err(Root));
}

#[test]
fn a_component_has_at_most_255_bytes() {
    let path = |name: String| format!("/sandbox/d/{name}/e");
    for bytes in [COMPONENT_BYTES_MAX - 1, COMPONENT_BYTES_MAX] {
        assert!(SandboxPath::file(&path("n".repeat(bytes))).is_ok());
    }
    refused(&path("n".repeat(COMPONENT_BYTES_MAX + 1)), ComponentTooLong);
    // Bytes, not characters: 128 times two bytes.
    assert!(SandboxPath::file(&path("é".repeat(127))).is_ok());
    refused(&path("é".repeat(128)), ComponentTooLong);
}

#[test]
fn a_path_has_at_most_4096_bytes() {
    let path = |bytes: usize| {
        let text = format!("{ROOT}{}", format!("{}/", "n".repeat(200)).repeat(20));
        let rest = bytes - text.len();
        format!("{text}{}", "n".repeat(rest))
    };
    for bytes in [PATH_BYTES_MAX - 1, PATH_BYTES_MAX] {
        assert_eq!(SandboxPath::file(&path(bytes)).map(|path| path.as_str().len()), Ok(bytes));
    }
    refused(&path(PATH_BYTES_MAX + 1), TooLong);
    refused(&format!("{ROOT}{}", "n".repeat(1_000_000)), TooLong);
}

#[test]
fn a_path_has_at_most_64_components() {
    let path = |components: usize| format!("{ROOT}{}", vec!["n"; components].join("/"));
    for components in [COMPONENTS_MAX - 1, COMPONENTS_MAX] {
        assert!(SandboxPath::file(&path(components)).is_ok());
        assert!(SandboxPath::directory(&format!("{}/", path(components))).is_ok());
    }
    refused(&path(COMPONENTS_MAX + 1), TooDeep);
}

#[test]
fn the_root_is_empty_beneath_itself() {
    let root = SandboxPath::directory(ROOT).unwrap();
    assert!(root.is_root());
    assert_eq!((root.as_str(), root.beneath()), (ROOT, ""));
    assert!(!root.has_reserved_component());
    let path = SandboxPath::directory("/sandbox/a/b/").unwrap();
    assert!(!path.is_root());
    assert_eq!((path.as_str(), path.beneath()), ("/sandbox/a/b", "a/b"));
}

#[test]
fn an_extension_follows_the_last_dot_of_the_last_component() {
    for (text, extension) in [
        ("/sandbox/a.txt", Some("txt")),
        ("/sandbox/a.TXT", Some("TXT")),
        ("/sandbox/a.tar.gz", Some("gz")),
        ("/sandbox/a.txt.exe", Some("exe")),
        ("/sandbox/a.", Some("")),
        ("/sandbox/a.txt.", Some("")),
        ("/sandbox/a.txt ", Some("txt ")),
        ("/sandbox/.txt", None),
        ("/sandbox/..txt", Some("txt")),
        ("/sandbox/a", None),
        ("/sandbox/d.txt/a", None),
        ("/sandbox/d.txt/.md", None),
    ] {
        assert_eq!(SandboxPath::file(text).unwrap().extension(), extension, "{text}");
    }
}

#[test]
fn device_names_streams_and_our_own_names_are_reserved() {
    let reserved = |text: &str| SandboxPath::file(text).unwrap().has_reserved_component();
    for name in [
        "CON",
        "con",
        "Con",
        "PRN",
        "AUX",
        "NUL",
        "nul",
        "nul.txt",
        "NUL.tar.gz",
        "con.",
        "con .txt",
        "COM1",
        "com9",
        "LPT1",
        "lpt9.md",
        "a:b",
        ":",
        "C:",
        "a.txt:stream",
        ".stepgate-",
        ".stepgate-tmp.txt",
    ] {
        assert!(reserved(&format!("/sandbox/{name}")), "{name}");
        assert!(reserved(&format!("/sandbox/{name}/a.txt")), "{name}");
        assert!(reserved(&format!("/sandbox/d/{name}")), "{name}");
    }
    for name in [
        "CONSOLE",
        "con1",
        "com",
        "COM0",
        "COM10",
        "COM1a",
        "lpt",
        "LPT0",
        "aux_",
        "xnul",
        "a.con",
        "stepgate-a",
        ".stepgate",
        "null",
        "com1-a",
        "printer.txt",
    ] {
        assert!(!reserved(&format!("/sandbox/{name}")), "{name}");
    }
}

#[test]
fn the_messages_name_the_limits_that_the_constants_set() {
    assert!(TooLong.to_string().contains(&PATH_BYTES_MAX.to_string()));
    assert!(ComponentTooLong.to_string().contains(&COMPONENT_BYTES_MAX.to_string()));
    assert!(TooDeep.to_string().contains(&COMPONENTS_MAX.to_string()));
    assert!(OutsideSandbox.to_string().contains(ROOT));
}
