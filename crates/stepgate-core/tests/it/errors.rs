//! `docs/errors/`: a page for every code and a code for every page, with nothing on it that the code
//! does not say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;
use stepgate_core::failure::{ExecutionFailure, Failure, OpenLimit};
use stepgate_core::ids::{PrincipalId, RunId};
use stepgate_core::journal::StateCode;
use stepgate_core::json::canonical;
use stepgate_core::json::strict::Refusal;

/// What stands above every part of a page, in this order.
const PARTS: [&str; 5] = [
    "What happened",
    "Example",
    "What the record says",
    "What the caller does",
    "What the operator does",
];

/// Phase, outcome and message.
type Row = (String, String, String);

/// How many kinds of failure there are, as [`number`] counts them.
const KINDS: usize = 16;

/// Numbers the kinds. A new one stops the build here: count it, and give it an example below.
fn number(failure: &Failure) -> usize {
    match failure {
        Failure::EmptyPayload => 0,
        Failure::PayloadTooLarge => 1,
        Failure::InvalidJson(_) => 2,
        Failure::SchemaVersionIncompatible(_) => 3,
        Failure::InvalidProposal(_) => 4,
        Failure::CommandExecution => 5,
        Failure::ActionNotAllowed => 6,
        Failure::InvalidArgs(_) => 7,
        Failure::IdempotencyConflict => 8,
        Failure::PolicyViolation(_) => 9,
        Failure::DeniedByOperator { .. } => 10,
        Failure::ApprovalExpired => 11,
        Failure::RefusedAtExecution(_) => 12,
        Failure::Execution(..) => 13,
        Failure::TooManyApprovals(_) => 14,
        Failure::ResultArchived(_) => 15,
    }
}

/// Every failure that differs in more than its words.
fn failures() -> Vec<Failure> {
    let words = || "path: missing".to_owned();
    let mut failures = vec![
        Failure::EmptyPayload,
        Failure::PayloadTooLarge,
        Failure::SchemaVersionIncompatible("2.0.0".into()),
        Failure::InvalidProposal(words()),
        Failure::CommandExecution,
        Failure::ActionNotAllowed,
        Failure::InvalidArgs(words()),
        Failure::IdempotencyConflict,
        Failure::ResultArchived(RunId::new(uuid::Uuid::nil())),
        Failure::PolicyViolation(words()),
        Failure::DeniedByOperator { approver_id: PrincipalId::parse("ann").unwrap(), note: None },
        Failure::ApprovalExpired,
        Failure::TooManyApprovals(OpenLimit::OfPrincipal(100)),
        Failure::RefusedAtExecution(words()),
    ];
    failures.extend(Refusal::ALL.map(Failure::InvalidJson));
    failures.extend(ExecutionFailure::ALL.map(|failure| Failure::Execution(failure, None)));
    let numbers: BTreeSet<_> = failures.iter().map(number).collect();
    assert!(numbers.into_iter().eq(0..KINDS), "a kind of failure has no example here");
    failures
}

fn row_of(failure: &Failure) -> Row {
    let (phase, outcome) = (failure.phase().as_str(), failure.outcome().as_str());
    (phase.into(), outcome.into(), failure.message().into())
}

/// The finer code that a detail begins with; none where it is words.
fn detail_code(failure: &Failure) -> Option<String> {
    let detail = failure.detail()?;
    let first = detail.split(':').next().unwrap();
    is_code(first).then(|| first.to_owned())
}

fn is_code(text: &str) -> bool {
    let is_sign = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !text.is_empty() && text.chars().all(is_sign)
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

fn page(code: &str) -> String {
    let path = folder().join(format!("{code}.md"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the tables whose head begins with this cell.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut rows = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if !line.starts_with('|') {
            is_inside = false;
        } else if is_inside {
            rows.push(cells(line));
        } else {
            is_inside = cells(line)[0] == head;
        }
    }
    rows.retain(|row| !row[0].starts_with("---"));
    rows
}

/// The lines of every block in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

fn assert_whole(code: &str, page: &str) {
    assert!(page.starts_with(&format!("# {code}\n")), "{code}: another title");
    let parts: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(parts, PARTS, "{code}");
    for part in page.split("\n## ").skip(1) {
        let (title, body) = part.split_once('\n').unwrap();
        assert!(!body.trim().is_empty(), "{code}: nothing under `{title}`");
    }
}

#[test]
fn there_is_a_page_for_every_code_and_no_other() {
    let mut expected: BTreeSet<_> =
        failures().iter().map(|failure| format!("{}.md", failure.code())).collect();
    expected.extend(StateCode::ALL.map(|code| format!("{}.md", code.as_str())));
    expected.insert("README.md".into());
    let found: BTreeSet<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_page_of_an_error_code_has_its_phases_outcomes_messages_and_details_and_no_other() {
    let mut rows: BTreeMap<&str, BTreeSet<Row>> = BTreeMap::new();
    let mut details: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let failures = failures();
    for failure in &failures {
        rows.entry(failure.code()).or_default().insert(row_of(failure));
        details.entry(failure.code()).or_default().extend(detail_code(failure));
    }
    for (code, rows) in rows {
        let page = page(code);
        assert_whole(code, &page);
        let listed = table(&page, "phase");
        assert_eq!(listed.len(), rows.len(), "{code}: a row stands twice");
        let listed = listed.into_iter().map(|row| {
            let [phase, outcome, message] = row.try_into().unwrap();
            (phase, outcome, message)
        });
        assert_eq!(listed.collect::<BTreeSet<Row>>(), rows, "{code}");
        let listed = table(&page, "detail");
        assert_eq!(listed.len(), details[code].len(), "{code}: a detail stands twice");
        let listed = listed.into_iter().map(|row| row[0].trim_matches('`').to_owned());
        assert_eq!(listed.collect::<BTreeSet<_>>(), details[code], "{code}");
    }
    for failure in ExecutionFailure::ALL {
        let row = table(&page("EXECUTION_ERROR"), "detail");
        let meaning = row.iter().find(|row| row[0] == format!("`{}`", failure.code())).unwrap();
        assert!(meaning[1].starts_with(&format!("{}: ", failure.message())), "{failure:?}");
    }
}

#[test]
fn the_example_of_an_error_code_is_an_answer_byte_for_byte() {
    let mut rows: BTreeMap<&str, BTreeSet<(String, String)>> = BTreeMap::new();
    let failures = failures();
    for failure in &failures {
        let (_, outcome, message) = row_of(failure);
        rows.entry(failure.code()).or_default().insert((outcome, message));
    }
    for (code, rows) in rows {
        let page = page(code);
        let examples = blocks(&page, "json");
        assert!(!examples.is_empty(), "{code} has no example");
        for example in examples {
            let answer: Value = serde_json::from_str(example).unwrap();
            let text = |name: &str| canonical::text_of(&answer[name]);
            let composed = format!(
                r#"{{"proposal_id":{},"action":{},"outcome":{},"result":null,"error":{}}}"#,
                text("proposal_id"),
                text("action"),
                text("outcome"),
                text("error"),
            );
            assert_eq!(example, composed, "{code}");
            let error = answer["error"].as_object().unwrap();
            assert_eq!(error["error_code"], code);
            let said = |value: &Value| value.as_str().unwrap().to_owned();
            let row = (said(&answer["outcome"]), said(&error["message"]));
            assert!(rows.contains(&row), "{code}: {row:?}");
            let names: Vec<_> = error.keys().map(String::as_str).collect();
            let expected: &[&str] = match code {
                "SCHEMA_VERSION_INCOMPATIBLE" => {
                    &["error_code", "message", "received_version", "supported_version_range"]
                }
                _ => &["error_code", "message"],
            };
            assert_eq!(names, expected, "{code}");
        }
    }
}

#[test]
fn the_page_of_a_state_code_shows_how_it_is_told() {
    for code in StateCode::ALL.map(StateCode::as_str) {
        let page = page(code);
        assert_whole(code, &page);
        let examples = blocks(&page, "text");
        assert_eq!(examples.len(), 1, "{code}");
        let is_line = !examples[0].contains('\n');
        assert!(is_line && examples[0].starts_with(&format!("{code}: ")), "{code}");
    }
}

#[test]
fn the_index_has_every_row_of_the_closed_table_and_no_other() {
    let page = page("README");
    let link = |code: &str| format!("[{code}]({code}.md)");
    let mut expected: BTreeMap<(String, Row), BTreeSet<String>> = BTreeMap::new();
    for failure in failures() {
        let at = (link(failure.code()), row_of(&failure));
        expected.entry(at).or_default().extend(detail_code(&failure));
    }
    let mut listed = BTreeMap::new();
    for row in table(&page, "error_code") {
        let [code, phase, outcome, message, detail] = row.try_into().unwrap();
        let details: BTreeSet<_> =
            detail.split(", ").filter(|text| is_code(text)).map(str::to_owned).collect();
        let again = listed.insert((code, (phase, outcome, message)), details);
        assert_eq!(again, None, "a row stands twice");
    }
    assert_eq!(listed, expected);
    let states: Vec<_> = table(&page, "state code").into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(states, StateCode::ALL.map(|code| link(code.as_str())));
}
