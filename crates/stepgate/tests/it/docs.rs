//! The documentation, held to what it says: tables against the code, links against the files, and
//! the README's commands against the binary.

mod clients;
mod coverage;
mod faults;
mod limits;
pub(crate) mod readme;
mod tutorial;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stepgate_core::failure::{ExecutionFailure, Failure, OpenLimit, Phase};
use stepgate_core::ids::{PrincipalId, RunId};
use stepgate_core::json::strict::Refusal;
use stepgate_core::limits::Limits;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders of all crates, shipped and for development. Not all of `dev` is a crate: `dev/agentdojo` is Python.
pub(crate) fn members() -> Vec<PathBuf> {
    let entries = ["crates", "dev"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let folders = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("Cargo.toml").is_file()).collect()
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of all tables of a page whose head has so many columns.
pub(crate) fn rows(page: &str, columns: usize) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut head: Option<usize> = None;
    for line in page.lines() {
        let Some(line) = line.strip_prefix('|') else {
            head = None;
            continue;
        };
        let cells: Vec<_> = line.strip_suffix('|').unwrap().split('|').map(str::trim).collect();
        let Some(count) = head else {
            head = Some(cells.len());
            continue;
        };
        assert_eq!(cells.len(), count, "a row unlike its head: {line}");
        let is_line = cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-'));
        if count == columns && !is_line {
            rows.push(cells.into_iter().map(str::to_owned).collect());
        }
    }
    assert!(!rows.is_empty(), "no table with {columns} columns");
    rows
}

/// What stands in backticks.
pub(crate) fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_phases_of_the_documentation_the_folder_and_the_code_agree() {
    let code: Vec<_> = Phase::ALL
        .iter()
        .zip(1..)
        .map(|(phase, number)| {
            let name = phase.as_str();
            (name.to_owned(), format!("p{number}_{}.rs", name.to_lowercase()))
        })
        .collect();
    let documented: Vec<_> = rows(&read("docs/phases.md"), 4)
        .iter()
        .map(|row| (quoted(&row[0])[0].to_owned(), quoted(&row[1])[0].to_owned()))
        .collect();
    assert_eq!(documented, code);
    let mut files: Vec<_> = fs::read_dir(root().join("crates/stepgate-core/src/step"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('p') && name.ends_with(".rs"))
        .collect();
    files.sort();
    assert_eq!(files, code.into_iter().map(|(_, file)| file).collect::<Vec<_>>());
}

/// One failure of each kind. `match` makes whoever adds one come here.
fn failures() -> Vec<Failure> {
    let text = String::new;
    let mut failures = vec![
        Failure::EmptyPayload,
        Failure::PayloadTooLarge,
        Failure::InvalidJson(Refusal::Syntax),
        Failure::SchemaVersionIncompatible(text()),
        Failure::InvalidProposal(text()),
        Failure::CommandExecution,
        Failure::ActionNotAllowed,
        Failure::InvalidArgs(text()),
        Failure::IdempotencyConflict,
        Failure::ResultArchived(RunId::new(uuid::Uuid::nil())),
        Failure::PolicyViolation(text()),
        Failure::DeniedByOperator { approver_id: PrincipalId::parse("ann").unwrap(), note: None },
        Failure::ApprovalExpired,
        Failure::TooManyApprovals(OpenLimit::OfPrincipal(100)),
        Failure::RefusedAtExecution(text()),
    ];
    failures.extend(ExecutionFailure::ALL.map(|failure| Failure::Execution(failure, None)));
    for failure in &failures {
        match failure {
            Failure::EmptyPayload
            | Failure::PayloadTooLarge
            | Failure::InvalidJson(_)
            | Failure::SchemaVersionIncompatible(_)
            | Failure::InvalidProposal(_)
            | Failure::CommandExecution
            | Failure::ActionNotAllowed
            | Failure::InvalidArgs(_)
            | Failure::IdempotencyConflict
            | Failure::ResultArchived(_)
            | Failure::PolicyViolation(_)
            | Failure::DeniedByOperator { .. }
            | Failure::ApprovalExpired
            | Failure::TooManyApprovals(_)
            | Failure::RefusedAtExecution(_)
            | Failure::Execution(..) => {}
        }
    }
    failures
}

#[test]
fn every_error_code_and_every_message_stands_beside_its_phase() {
    let page = read("docs/phases.md");
    let rows = rows(&page, 4);
    for failure in failures() {
        let phase = format!("`{}`", failure.phase().as_str());
        let row = rows.iter().find(|row| row[0] == phase).unwrap();
        let codes: BTreeSet<_> = row[3].split(", ").collect();
        assert!(codes.contains(failure.code()), "{} is missing at {phase}", failure.code());
        assert!(page.contains(failure.message()), "`{}` is not explained", failure.message());
    }
    let known: BTreeSet<_> = failures().iter().map(Failure::code).collect();
    for code in rows.iter().flat_map(|row| row[3].split(", ")).filter(|code| !code.is_empty()) {
        assert!(known.contains(code), "there is no code {code}");
    }
    for failure in ExecutionFailure::ALL {
        assert!(page.contains(failure.code()), "{} is not explained", failure.code());
    }
}

#[test]
fn every_code_of_the_agent_has_its_row() {
    let documented: BTreeSet<String> = rows(&read("docs/agent.md"), 3)
        .iter()
        .filter_map(|row| quoted(&row[0]).first().map(|code| (*code).to_owned()))
        .filter(|code| code.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .collect();
    let codes = stepgate_agent::stop::Code::ALL.map(|code| code.as_str().to_owned());
    assert_eq!(documented, BTreeSet::from(codes));
}

#[test]
fn every_key_of_the_configuration_has_its_row_with_its_default_and_its_most() {
    let page = read("docs/limits.md");
    let schema: Value = serde_json::from_str(&read("schemas/stepgate.schema.json")).unwrap();
    let documented: Vec<_> = rows(&page, 4);
    let mut keys = BTreeSet::new();
    let sections = [
        ("limits", "LimitsConfig"),
        ("sandbox", "SandboxConfig"),
        ("serve", "ServeConfig"),
        ("mcp", "McpConfig"),
        ("agent", "AgentConfig"),
        ("policy", "PolicyConfig"),
        ("store", "StoreConfig"),
        ("retention", "RetentionConfig"),
        ("otlp", "OtlpConfig"),
    ];
    for (section, definition) in sections {
        let properties = schema["$defs"][definition]["properties"].as_object().unwrap();
        for (key, property) in properties {
            let key = format!("{section}.{key}");
            let row = documented.iter().find(|row| quoted(&row[1]).contains(&key.as_str()));
            let row = row.unwrap_or_else(|| panic!("{key} has no row"));
            if let Some(most) = property["maximum"].as_u64() {
                let shown = [row[2].clone(), row[2].replace(',', "")];
                let most = written(&key, most);
                assert!(
                    shown.iter().any(|text| text.contains(&format!("at most {most})"))),
                    "{key}: {most} is not in `{}`",
                    row[2]
                );
                let default = written(&key, property["default"].as_u64().unwrap());
                assert!(shown.iter().any(|text| text.starts_with(&default)), "{key}: {default}");
            }
            keys.insert(key);
        }
    }
    for key in documented.iter().flat_map(|row| quoted(&row[1])).filter(|key| key.contains('.')) {
        assert!(keys.contains(key), "there is no key {key}");
    }
    assert!(page.contains(&format!("at most {}", Limits::JSON_DEPTH_CEILING)));
}

/// A number as people read it.
fn written(key: &str, value: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")];
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    if key.ends_with("_ms") {
        match value {
            0 => "0 s".into(),
            _ if value.is_multiple_of(DAY_MS) => format!("{} d", value / DAY_MS),
            _ if value.is_multiple_of(1000) => format!("{} s", value / 1000),
            _ => format!("{value} ms"),
        }
    } else if key.contains("_bytes_") {
        match UNITS.iter().find(|(unit, _)| value.is_multiple_of(*unit)) {
            Some((unit, name)) => format!("{} {name}", value / unit),
            None => format!("{value} bytes"),
        }
    } else {
        value.to_string()
    }
}

/// Every page, from the root of the repository.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "SECURITY.md",
        "dev/fuzz/README.md",
    ]
    .map(PathBuf::from)
    .to_vec();
    let examples = fs::read_dir(root().join("policies/examples")).unwrap();
    let examples =
        examples.map(|entry| Path::new("policies/examples").join(entry.unwrap().file_name()));
    pages.extend(examples.map(|example| example.join("README.md")));
    for folder in ["docs", "docs/clients", "docs/decisions", "docs/errors"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
        pages.extend(names.filter(|name| name.extension().is_some_and(|kind| kind == "md")));
    }
    pages
}

#[test]
fn every_relative_link_leads_to_a_file_and_its_heading() {
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        // A link may be broken over two lines.
        let text = text.replace('\n', " ");
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(root().join(&target).exists(), "{}: `{link}` leads nowhere", page.display());
            let headings = || read(&target).lines().map(anchor).collect::<Vec<_>>();
            assert!(
                heading.is_empty() || headings().contains(&heading.to_owned()),
                "{}: `{link}` has no such heading",
                page.display()
            );
            count += 1;
        }
    }
    assert!(count >= 10, "{count} links");
}

#[test]
fn every_page_of_the_documentation_is_in_the_summary_of_the_site() {
    let summary = read("docs/SUMMARY.md");
    for page in pages().into_iter().filter(|page| page.starts_with("docs")) {
        let page = page.strip_prefix("docs").unwrap().to_str().unwrap();
        let is_listed = summary.contains(&format!("]({page})"));
        assert!(is_listed || page == "SUMMARY.md", "docs/{page} is not in docs/SUMMARY.md");
    }
}

/// The name under which a heading is linked.
fn anchor(line: &str) -> String {
    let heading = line.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_file_that_a_page_names_in_backticks_exists() {
    for page in pages() {
        let text = read(&page);
        for name in quoted(&text).into_iter().filter(|name| is_path(name)) {
            assert!(root().join(name).exists(), "{}: there is no `{name}`", page.display());
        }
    }
}

#[test]
fn every_decision_that_the_code_cites_has_its_page() {
    let names = fs::read_dir(root().join("docs/decisions")).unwrap();
    let names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut list = Command::new("git");
    let listed = list.args(["ls-files", "crates", "dev"]).current_dir(root()).output().unwrap();
    let mut count = 0;
    for file in String::from_utf8(listed.stdout).unwrap().lines().filter(|f| f.ends_with(".rs")) {
        // A comment may break between the two words.
        let text = read(file).replace("///", " ").replace("//!", " ");
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0].ends_with("decision")) {
            let digits: String = pair[1].chars().take_while(char::is_ascii_digit).collect();
            let Ok(number) = digits.parse::<u32>() else { continue };
            let page = format!("{number:02}-");
            assert!(names.iter().any(|name| name.starts_with(&page)), "{file}: decision {number}");
            count += 1;
        }
        let elsewhere = ["DESIGN section", "Facts, 0"];
        let cites =
            elsewhere.iter().find(|words| text.contains(**words) && !file.ends_with("docs.rs"));
        assert_eq!(cites, None, "{file} cites what is not in the repository");
    }
    assert!(count >= 20, "{count} citations");
}

/// Whether a quoted text is meant as a path of the repository.
fn is_path(text: &str) -> bool {
    let first = text.split('/').next().unwrap();
    let is_plain = !text.contains([' ', '*', '…', '<', '?', '{', '\n']);
    let top = ["crates", "deploy", "dev", "docs", "schemas", "test_vectors"];
    is_plain && text.contains('/') && top.contains(&first) && !text.contains("TARGET")
}
