//! Which modules of a crate know which. Modules that know each other in a circle can only be read
//! together: two may, more may not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::docs::{members, read};

/// Most modules of a circle.
const CIRCLE_MAX: usize = 2;

/// Crates whose circles still have to be taken apart, with how many modules are in one. A number may
/// only become smaller.
const OPEN: [(&str, usize); 0] = [];

#[test]
fn modules_know_each_other_in_no_circle() {
    let mut found = BTreeMap::new();
    for path in members() {
        let edges = edges(&path.join("src"));
        let largest = edges.keys().map(|module| circle(&edges, module)).max_by_key(BTreeSet::len);
        let largest = largest.unwrap_or_default();
        if largest.len() > CIRCLE_MAX {
            found.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), largest);
        }
    }
    for (name, circle) in &found {
        let open = OPEN.iter().find(|(open, _)| open == name);
        let most = open.map_or(CIRCLE_MAX, |(_, most)| *most);
        assert!(circle.len() <= most, "{name}: a circle of {}: {circle:?}", circle.len());
    }
    for (name, most) in OPEN {
        let len = found.get(name).map(BTreeSet::len);
        assert_eq!(len, Some(most), "{name} has improved: write it into `OPEN`");
    }
}

/// Most stations of the first walk.
const STATIONS_MAX: usize = 20;

#[test]
fn every_station_of_the_walks_is_in_the_code() {
    let page = read("ARCHITECTURE.md");
    let walks = page.split("\n## Four walks\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let walks: Vec<Vec<&str>> = walks
        .split("\n### ")
        .skip(1)
        .map(|walk| {
            walk.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect()
        })
        .collect();
    assert_eq!(walks.len(), 4);
    assert!(walks[0].len() <= STATIONS_MAX, "{}", walks[0].len());
    for station in walks.concat() {
        let named: Vec<&str> = station.split('`').skip(1).step_by(2).collect();
        let text = read(named[0]);
        for function in &named[1..] {
            assert!(text.contains(&format!("fn {function}")), "{station}");
        }
    }
}

type Edges = BTreeMap<String, BTreeSet<String>>;

/// The top modules of a crate, each with those that it names.
fn edges(src: &Path) -> Edges {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for entry in fs::read_dir(src).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !["lib", "main", "tests"].contains(&name.as_str()) {
            gather(&path, texts.entry(name).or_default());
        }
    }
    let modules: BTreeSet<String> = texts.keys().cloned().collect();
    let named = |(module, text): (&String, &String)| {
        let mut named = named(text);
        named.retain(|other| other != module && modules.contains(other));
        (module.clone(), named)
    };
    texts.iter().map(named).collect()
}

fn gather(path: &Path, text: &mut String) {
    if path.file_stem().is_some_and(|name| name == "tests") {
        return;
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            gather(&entry.unwrap().path(), text);
        }
    } else if path.extension().is_some_and(|kind| kind == "rs") {
        text.push_str(&fs::read_to_string(path).unwrap());
    }
}

/// `crate::name`, and the first words of `use crate::{…}`.
fn named(text: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut named = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(group) => {
                let group = group.split("};").next().unwrap_or_default();
                named.extend(group.split(',').map(|one| word(one.trim())));
            }
            None => {
                named.insert(word(rest));
            }
        }
    }
    named
}

/// The modules that this one leads to and that lead back to it.
fn circle(edges: &Edges, module: &str) -> BTreeSet<String> {
    let there = reached(edges, module);
    let is_back = |other: &String| reached(edges, other).contains(module);
    there.into_iter().filter(is_back).collect()
}

fn reached(edges: &Edges, from: &str) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = next.pop() {
        for other in edges.get(&module).into_iter().flatten() {
            if reached.insert(other.clone()) {
                next.push(other.clone());
            }
        }
    }
    reached
}
