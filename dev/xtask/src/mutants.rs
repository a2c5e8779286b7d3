//! Mutation testing: changes the code in one place at a time and runs the tests that reach the
//! place. A change that no test notices is a survivor.
//!
//! All changes are compiled at once, each behind a switch that an environment variable sets, so a
//! change costs the run of its tests and not a build. The work is done in a copy of the repository
//! beside the build's output.

#![allow(clippy::indexing_slicing, reason = "a member that JSON does not have is null")]

mod find;
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, iter};

use anyhow::{Context as _, bail, ensure};
use find::Found;
use serde_json::Value;
use suite::{Outcome, Suite};

const USAGE: &str =
    "cargo xtask mutants FILE... [--tests PACKAGE[:TEST_PREFIX,...]]... [--only NUMBER,...]

Changes these files (of one package) in one place at a time, and runs the tests that reach the place, quick ones
first. Without --tests, the tests are those of the package itself. --only makes the changes of these numbers alone:
the survivors of a run with quick tests, against slow ones.

Examples:
  cargo xtask mutants crates/stepgate-policy/src
  cargo xtask mutants crates/stepgate-core/src/verify.rs crates/stepgate-core/src/verify \\
    --tests stepgate-core --tests stepgate:tamper,spec_";

/// Set to the number of the change that is made.
const SWITCH: &str = "STEPGATE_MUTANT";
/// Set to a file that gets the numbers of the changes that a test reaches.
const REACHED: &str = "STEPGATE_MUTANTS_REACHED";

/// How often changes that do not compile are taken out before the command gives up.
const ROUNDS_MAX: usize = 20;

/// A changed file.
struct File {
    path: PathBuf,
    found: Found,
}

pub(crate) fn run(arguments: impl Iterator<Item = String>, work: &Path) -> anyhow::Result<()> {
    let Options { paths, tests, only } = parse(arguments)?;
    let package = package_of(paths.first().context(USAGE)?)?;
    let copy = work.join("source");
    copy_repository(&copy)?;
    let files = find_all(&paths)?;
    let all = files.iter().map(|file| file.found.changes.len()).sum::<usize>();
    ensure!(all > 0, "there is nothing to change in {paths:?}");
    insert_switch(&copy.join(&package), all)?;
    println!("{all} changes in {} files", files.len());

    let build = Build { copy: &copy, target: work.join("target"), files: &files };
    let own = package.file_name().map(|name| name.to_string_lossy().into_owned());
    let tests = if tests.is_empty() { own.into_iter().collect() } else { tests };
    let dropped = build.drop_what_does_not_compile(&tests)?;
    let suite = Suite::load(build.executables(&tests)?, &tests, &work.join("reached"))?;
    let is_made = |id: &usize| !dropped.contains(id) && (only.is_empty() || only.contains(id));
    let made: Vec<usize> = (1..=all).filter(is_made).collect();
    report(&files, dropped.len(), &suite.run(&made));
    Ok(())
}

#[derive(Default)]
struct Options {
    paths: Vec<PathBuf>,
    tests: Vec<String>,
    /// Numbers of changes; all of them where this is empty.
    only: BTreeSet<usize>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--tests" => options.tests.push(arguments.next().context("--tests needs a package")?),
            "--only" => {
                for number in arguments.next().context("--only needs numbers")?.split(',') {
                    options.only.insert(number.parse().context("--only needs numbers")?);
                }
            }
            option if option.starts_with('-') => bail!("{USAGE}"),
            path => options.paths.push(PathBuf::from(path)),
        }
    }
    Ok(options)
}

/// `crates/NAME` of a path below it.
fn package_of(path: &Path) -> anyhow::Result<PathBuf> {
    let is_package = |path: &&Path| path.join("Cargo.toml").is_file();
    Ok(path.ancestors().find(is_package).context("the path is in no package")?.to_owned())
}

/// Everything that git tracks. Files that did not change keep their time, so that cargo does not
/// build them again.
fn copy_repository(copy: &Path) -> anyhow::Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).output()?;
    ensure!(listed.status.success(), "git ls-files failed");
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let to = copy.join(path);
        fs::create_dir_all(to.parent().context("no directory")?)?;
        write_changed(&to, &fs::read(path)?)?;
        fs::set_permissions(&to, fs::metadata(path)?.permissions())?;
    }
    Ok(())
}

fn write_changed(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).ok().as_deref() != Some(content) {
        fs::write(path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn find_all(paths: &[PathBuf]) -> anyhow::Result<Vec<File>> {
    let mut sources = BTreeSet::new();
    for path in paths {
        collect(path, &mut sources)?;
    }
    let mut first = 1;
    let mut files = Vec::new();
    for path in sources {
        let found = find::find(fs::read_to_string(&path)?, first)
            .with_context(|| path.display().to_string())?;
        first = found.numbers().end;
        files.push(File { path, found });
    }
    Ok(files)
}

fn collect(path: &Path, sources: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let is_tests = path.file_stem().is_some_and(|name| name == "tests");
    if path.is_dir() && !is_tests {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), sources)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && !is_tests {
        sources.insert(path.to_owned());
    }
    Ok(())
}

/// The function that the changes ask, in the copy's `lib.rs`.
fn insert_switch(package: &Path, changes: usize) -> anyhow::Result<()> {
    let root = package.join("src/lib.rs");
    let source = fs::read_to_string(&root)?;
    let switch = format!(
        "
#[allow(missing_docs, unreachable_pub)]
mod __mutants {{
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{{AtomicBool, Ordering}};
    static SEEN: [AtomicBool; {length}] = [const {{ AtomicBool::new(false) }}; {length}];
    static CHANGE: OnceLock<Option<usize>> = OnceLock::new();
    static REACHED: OnceLock<Option<std::fs::File>> = OnceLock::new();
    pub fn on(id: usize) -> bool {{
        let change = CHANGE.get_or_init(|| std::env::var(\"{SWITCH}\").ok()?.parse().ok());
        if let Some(change) = change {{ return *change == id; }}
        if SEEN[id].load(Ordering::Relaxed) {{ return false; }}
        SEEN[id].store(true, Ordering::Relaxed);
        let reached = REACHED.get_or_init(|| {{
            let path = std::env::var_os(\"{REACHED}\")?;
            std::fs::File::options().append(true).create(true).open(path).ok()
        }});
        if let Some(mut file) = reached.as_ref() {{
            let _ = file.write_all(format!(\"{{id}}\\n\").as_bytes());
        }}
        false
    }}
}}
",
        length = changes + 1
    );
    Ok(fs::write(root, source + &switch)?)
}

struct Build<'a> {
    copy: &'a Path,
    target: PathBuf,
    files: &'a [File],
}

impl Build<'_> {
    /// Writes the changed files, and takes changes out until the rest compiles.
    fn drop_what_does_not_compile(&self, tests: &[String]) -> anyhow::Result<BTreeSet<usize>> {
        let mut dropped = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let mut texts = Vec::new();
            for file in self.files {
                let mut text = file.found.write(&|id| !dropped.contains(&id));
                let path = self.copy.join(&file.path);
                if file.path.ends_with("src/lib.rs") {
                    let source = fs::read_to_string(&path)?;
                    let switch =
                        source.find("\n#[allow(missing_docs, unreachable_pub)]\nmod __mutants");
                    text.push_str(source.get(switch.context("no switch")?..).unwrap_or_default());
                }
                write_changed(&path, text.as_bytes())?;
                texts.push((&file.path, text));
            }
            let blamed = self.errors(tests, &texts)?;
            if blamed.is_empty() {
                return Ok(dropped);
            }
            println!("{} changes do not compile", blamed.len());
            dropped.extend(blamed);
        }
        bail!("what does not compile could not be found in {ROUNDS_MAX} rounds")
    }

    /// The changes that the compiler's errors lie in.
    fn errors(
        &self,
        tests: &[String],
        texts: &[(&PathBuf, String)],
    ) -> anyhow::Result<BTreeSet<usize>> {
        let (mut blamed, mut unexplained) = (BTreeSet::new(), Vec::new());
        let messages = self.cargo("check", &["--lib"], tests)?;
        let errors = messages.iter().map(|message| &message["message"]);
        for error in errors.filter(|message| message["level"] == "error") {
            let spans = error["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
            let primary = spans.iter().filter(|span| span["is_primary"] == true);
            match primary.chain(spans).find_map(|span| changes_at(span, texts)) {
                Some(changes) => blamed.extend(changes),
                // The last message only counts the others.
                None if spans.is_empty() => {}
                None => unexplained.push(error["rendered"].as_str().unwrap_or_default()),
            }
        }
        ensure!(unexplained.is_empty() || !blamed.is_empty(), "{}", unexplained.join("\n"));
        Ok(blamed)
    }

    /// The test programs: package, name of the target, path.
    fn executables(&self, tests: &[String]) -> anyhow::Result<Vec<suite::Program>> {
        let messages = self.cargo("test", &["--no-run", "--lib", "--bins", "--tests"], tests)?;
        let programs = messages.iter().filter_map(|message| {
            let path = message["executable"].as_str()?;
            let is_test = message["profile"]["test"] == true;
            let manifest = Path::new(message["manifest_path"].as_str()?);
            is_test.then(|| suite::Program {
                name: name_of(manifest),
                package: manifest.parent().map(Path::to_owned).unwrap_or_default(),
                path: PathBuf::from(path),
            })
        });
        Ok(programs.collect())
    }

    fn cargo(&self, command: &str, flags: &[&str], tests: &[String]) -> anyhow::Result<Vec<Value>> {
        let mut cargo = super::cargo([command, "--message-format=json", "--quiet"]);
        cargo.args(flags).current_dir(self.copy).env("CARGO_TARGET_DIR", &self.target);
        for package in tests {
            cargo.args(["--package", package.split(':').next().unwrap_or_default()]);
        }
        let output = cargo.stderr(Stdio::inherit()).output()?;
        let lines = String::from_utf8(output.stdout)?;
        let messages: Vec<Value> =
            lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let has_errors = || messages.iter().any(|message| message["message"]["level"] == "error");
        ensure!(output.status.success() || has_errors(), "cargo {command} failed");
        Ok(messages)
    }
}

/// The name that a package's manifest begins with.
fn name_of(manifest: &Path) -> String {
    let text = fs::read_to_string(manifest).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.unwrap_or_default().to_owned()
}

/// The changes around the place that a compiler error points to, where there are some.
fn changes_at(span: &Value, texts: &[(&PathBuf, String)]) -> Option<Vec<usize>> {
    let name = Path::new(span["file_name"].as_str()?);
    let (_, text) = texts.iter().find(|(path, _)| path.as_path() == name)?;
    let at = usize::try_from(span["byte_start"].as_u64()?).ok()?;
    Some(find::blamed(text, at)).filter(|changes| !changes.is_empty())
}

fn report(files: &[File], dropped: usize, outcomes: &BTreeMap<usize, Outcome>) {
    let (mut caught, mut timed_out, mut survivors) = (0, Vec::new(), Vec::new());
    for file in files {
        for (id, change) in iter::zip(file.found.numbers(), &file.found.changes) {
            let place = format!("{id} {}:{}: {}", file.path.display(), change.line, change.what);
            match outcomes.get(&id) {
                Some(Outcome::Caught) => caught += 1,
                Some(Outcome::TimedOut) => timed_out.push(format!("{place} (timed out)")),
                Some(Outcome::Survived { tests }) => {
                    survivors.push(format!("{place} (reached by {tests} tests)"));
                }
                None => {}
            }
        }
    }
    let (late, left) = (timed_out.len(), survivors.len());
    println!("\n{caught} caught, {late} timed out, {dropped} not compiled, {left} survived");
    for line in timed_out.iter().chain(&survivors) {
        println!("{line}");
    }
}
