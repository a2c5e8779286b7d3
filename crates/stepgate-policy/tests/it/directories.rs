//! What a directory may hold, and how much of it.

use std::fs;

use stepgate_policy::limits::{
    CASES_MAX, DIRECTORY_ENTRIES_MAX, FILE_BYTES_MAX, FILES_MAX, POLICIES_MAX, TOOLS_MAX,
    TOTAL_BYTES_MAX,
};
use stepgate_policy::{PolicySet, Severity, check};

use crate::world::{directory, errors_in, shape, tools};

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let directory = directory(&[]);
    let missing = directory.path().join("missing");
    let errors = errors_in(&missing, &[]);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("DIR: cannot be read as a directory: "), "{errors:?}");
}

#[test]
fn an_empty_directory_denies_everything_and_says_so() {
    let set = PolicySet::load(directory(&[]).path(), &[]).unwrap();
    let messages: Vec<&str> = set.warnings().iter().map(|found| found.message.as_str()).collect();
    assert_eq!(
        messages,
        ["no policy here, so everything is denied; write a `permit` into a `*.cedar` file"]
    );
}

#[test]
fn files_are_read_in_the_order_of_their_names_and_others_are_named() {
    let policy = "permit (principal, action, resource);";
    let directory = directory(&[
        ("b.cedar", policy),
        ("a.cedar", policy),
        (".a.cedar.swp", "junk"),
        ("a.cedar~", "junk"),
        ("c.ceder", "junk"),
    ]);
    let set = PolicySet::load(directory.path(), &[]).unwrap();
    assert_eq!(set.policies().collect::<Vec<_>>(), ["a.cedar#1", "b.cedar#1"]);
    let found: Vec<_> =
        set.warnings().iter().map(|found| (found.severity, &found.message)).collect();
    let message = "`c.ceder` is not read: policies are in `*.cedar`, cases in `*.cases.toml` and budgets \
                   in `budgets.toml`; rename it, or move it elsewhere";
    assert_eq!(found, [(Severity::Warning, &message.to_owned())]);
}

#[test]
fn a_file_that_is_not_text_or_not_a_file_is_refused() {
    let directory = directory(&[]);
    fs::write(directory.path().join("a.cedar"), b"// \xff").unwrap();
    fs::create_dir(directory.path().join("b.cedar")).unwrap();
    let expected = [
        "DIR/a.cedar: not UTF-8 from byte 3 on; save it as UTF-8",
        "DIR/b.cedar: not a regular file; remove it, or rename it",
    ];
    assert_eq!(errors_in(directory.path(), &[]), expected);
}

#[test]
fn a_file_has_a_largest_size() {
    let text = |bytes: usize| format!("{}\n", "/".repeat(bytes - 1));
    let at = directory(&[("a.cedar", &text(FILE_BYTES_MAX))]);
    assert!(check(at.path(), &[]).is_loadable());
    let above = directory(&[("a.cedar", &text(FILE_BYTES_MAX + 1))]);
    let expected = format!("DIR/a.cedar: larger than {FILE_BYTES_MAX} bytes; split it");
    assert_eq!(errors_in(above.path(), &[]), [expected]);
}

#[test]
fn all_files_together_have_a_largest_size() {
    let text = format!("{}\n", "/".repeat(FILE_BYTES_MAX - 1));
    let directory = directory(&[]);
    let count = TOTAL_BYTES_MAX / FILE_BYTES_MAX;
    for index in 0..count {
        fs::write(directory.path().join(format!("{index:03}.cedar")), &text).unwrap();
    }
    assert!(check(directory.path(), &[]).is_loadable());
    fs::write(directory.path().join("one-more.cedar"), "\n").unwrap();
    let errors = errors_in(directory.path(), &[]);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains(&format!("more than {TOTAL_BYTES_MAX} bytes")), "{errors:?}");
}

#[test]
fn files_are_counted() {
    let directory = directory(&[]);
    for index in 0..FILES_MAX {
        fs::write(directory.path().join(format!("{index}.cedar")), "").unwrap();
    }
    assert!(check(directory.path(), &[]).is_loadable());
    fs::write(directory.path().join("one-more.cedar"), "").unwrap();
    let expected = format!("DIR: more than {FILES_MAX} files of policies and cases; join some");
    assert_eq!(errors_in(directory.path(), &[]), [expected]);
}

#[test]
fn policies_cases_and_tools_are_counted() {
    let policies = |count: usize| "permit (principal, action, resource);\n".repeat(count);
    let at = directory(&[("a.cedar", &policies(POLICIES_MAX))]);
    assert!(check(at.path(), &[]).is_loadable());
    let above = directory(&[("a.cedar", &policies(POLICIES_MAX + 1))]);
    let expected = format!("DIR: more than {POLICIES_MAX} policies; join some");
    assert_eq!(errors_in(above.path(), &[]), [expected]);

    let case = |index: usize| {
        format!("[[case]]\nname='{index}'\nprincipal='a'\naction='THINK'\nexpect='deny'\n")
    };
    let cases = |count: usize| (0..count).map(case).collect::<String>();
    let at = directory(&[("a.cases.toml", &cases(CASES_MAX))]);
    assert_eq!(check(at.path(), &[]).cases, CASES_MAX);
    let above = directory(&[("a.cases.toml", &cases(CASES_MAX + 1))]);
    let expected = format!("DIR: more than {CASES_MAX} cases; remove some");
    assert_eq!(errors_in(above.path(), &[]), [expected]);

    let tool = tools().remove(1);
    let many: Vec<_> = (0..=TOOLS_MAX)
        .map(|index| shape(&format!("s.t{index}"), tool.mode, tool.input_schema.clone()))
        .collect();
    let empty = directory(&[]);
    assert!(check(empty.path(), &many[..TOOLS_MAX]).is_loadable());
    let expected = format!("DIR: more than {TOOLS_MAX} tools are configured; configure fewer");
    assert_eq!(errors_in(empty.path(), &many), [expected]);
    let twice = [tool.clone(), tool];
    let expected = "DIR: the tool `calendar.get_agenda` is configured twice; remove one";
    assert_eq!(errors_in(empty.path(), &twice), [expected]);
}

#[test]
fn entries_of_the_directory_are_counted_whatever_they_are() {
    let directory = directory(&[]);
    for index in 0..DIRECTORY_ENTRIES_MAX {
        fs::write(directory.path().join(format!(".{index}")), "").unwrap();
    }
    assert!(check(directory.path(), &[]).is_loadable());
    fs::write(directory.path().join(".one-more"), "").unwrap();
    let errors = errors_in(directory.path(), &[]);
    assert!(
        errors[0].contains(&format!("more than {DIRECTORY_ENTRIES_MAX} entries")),
        "{errors:?}"
    );
}

#[test]
fn an_error_is_its_findings_line_by_line() {
    let directory = directory(&[("a.cedar", "permit ("), ("b.cedar", "permit (")]);
    let error = PolicySet::load(directory.path(), &[]).unwrap_err();
    let lines: Vec<String> = error.findings.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(error.to_string(), lines.join("\n"));
    let severity = [Severity::Error, Severity::Warning, Severity::Note];
    assert_eq!(severity.map(Severity::as_str), ["error", "warning", "note"]);
}
