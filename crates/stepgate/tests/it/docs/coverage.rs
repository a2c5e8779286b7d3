//! `docs/spec-coverage.md` against the tests, and `docs/dependencies.md` against the manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{members, quoted, read, root, rows};

/// The folder of a crate: those of development do not have the prefix.
fn folder_of(krate: &str) -> PathBuf {
    let shipped = root().join("crates").join(krate);
    let development = root().join("dev").join(krate.trim_start_matches("stepgate-"));
    if shipped.exists() { shipped } else { development }
}

/// The tests of a crate, each as `module::name`.
fn tests_of(krate: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for folder in ["src", "tests/it"] {
        let folder = folder_of(krate).join(folder);
        if folder.exists() {
            collect(&folder, &folder, &mut tests);
        }
    }
    tests
}

fn collect(base: &Path, folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(base, &path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module = path.strip_prefix(base).unwrap().with_extension("");
            let module = module.to_str().unwrap().replace('/', "::");
            let text = fs::read_to_string(&path).unwrap();
            tests.extend(test_names(&text).into_iter().map(|name| format!("{module}::{name}")));
        }
    }
}

/// The functions that stand beneath a test attribute, or in a list of tests for every engine.
fn test_names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for list in text.split("over_every_engine! {\n").skip(1) {
        let list = list.split('}').next().unwrap();
        names.extend(list.split(',').map(|name| name.trim().to_owned()));
    }
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test && line.contains("fn ") && !line.starts_with("//") {
            let name = line.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            names.push(name.to_owned());
            is_test = false;
        }
    }
    names
}

/// A reference as crate and test.
fn resolved(reference: &str) -> (&str, &str) {
    match reference.split_once("::") {
        Some((krate, test)) if krate.starts_with("stepgate-") => (krate, test),
        Some(_) | None => ("stepgate", reference),
    }
}

/// Every row of a page names tests in this column, and each of them exists. How many rows there are.
fn tests_exist(page: &str, columns: usize) -> usize {
    let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let rows = rows(&read(page), columns);
    for row in &rows {
        let references = quoted(&row[columns - 1]);
        assert!(!references.is_empty(), "{page}: `{}` has no test", row[columns - 2]);
        for reference in references {
            let (krate, test) = resolved(reference);
            let known = tests.entry(krate.to_owned()).or_insert_with(|| tests_of(krate));
            assert!(known.contains(test), "{page}: there is no test `{reference}`");
        }
    }
    rows.len()
}

#[test]
fn every_requirement_has_a_test_that_exists() {
    let rows = tests_exist("docs/spec-coverage.md", 3);
    println!("requirements with tests: {rows}");
    assert!(rows >= 60, "only {rows} rows");
}

#[test]
fn every_guarantee_has_tests_that_exist() {
    let rows = tests_exist("docs/guarantees.md", 2);
    assert!(rows >= 20, "only {rows} rows");
    let readme = read("README.md");
    let promises = readme.lines().skip_while(|line| *line != "## What it promises");
    let promises: Vec<_> = promises.filter_map(|line| line.split("**").nth(1)).take(4).collect();
    for promise in promises {
        let heading = promise.trim_end_matches('.');
        assert!(read("docs/guarantees.md").contains(&format!(". {heading}\n")), "{heading}");
    }
}

#[test]
fn every_test_of_a_specification_is_listed() {
    let page = read("docs/spec-coverage.md");
    let listed: BTreeSet<_> = rows(&page, 3)
        .iter()
        .flat_map(|row| quoted(&row[2]).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let modules = [
        ("stepgate", "spec_000"),
        ("stepgate", "spec_001"),
        ("stepgate", "spec_002"),
        ("stepgate-agent", "spec_003"),
        ("stepgate", "spec_004"),
    ];
    for (krate, module) in modules {
        let tests: Vec<_> = tests_of(krate)
            .into_iter()
            .filter(|test| test.starts_with(&format!("{module}::")))
            .collect();
        assert!(!tests.is_empty(), "{module} has no test");
        for test in tests {
            let reference = if krate == "stepgate" { test } else { format!("{krate}::{test}") };
            assert!(listed.contains(&reference), "`{reference}` is not in docs/spec-coverage.md");
        }
    }
}

#[test]
fn every_direct_dependency_has_its_row_with_its_version_and_its_users() {
    let page = read("docs/dependencies.md");
    let rows = rows(&page, 5);
    let root: toml::Table = read("Cargo.toml").parse().unwrap();
    let versions = root["workspace"]["dependencies"].as_table().unwrap();
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for manifest in manifests() {
        let table: toml::Table = read(&manifest).parse().unwrap();
        let krate = table["package"]["name"].as_str().unwrap().to_owned();
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = table.get(kind).and_then(toml::Value::as_table) else {
                continue;
            };
            for name in dependencies.keys().filter(|name| !name.starts_with("stepgate")) {
                users.entry(name.clone()).or_default().insert(krate.clone());
            }
        }
    }
    for (name, users) in &users {
        let row = rows.iter().find(|row| quoted(&row[0]) == [name.as_str()]);
        let row = row.unwrap_or_else(|| panic!("`{name}` has no row"));
        let version = match &versions[name] {
            toml::Value::String(version) => version.as_str(),
            other => other["version"].as_str().unwrap(),
        };
        assert_eq!(row[1], version, "{name}");
        let documented: BTreeSet<_> = quoted(&row[3]).into_iter().map(str::to_owned).collect();
        assert_eq!(&documented, users, "{name}");
    }
    for row in &rows {
        assert!(users.contains_key(quoted(&row[0])[0]), "nobody uses {}", row[0]);
    }
}

/// The manifest of every member.
fn manifests() -> Vec<PathBuf> {
    let mut members = members();
    members.push(root().join("examples/home"));
    members.iter().map(|member| member.join("Cargo.toml")).collect()
}
