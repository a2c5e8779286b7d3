//! AgentDojo, a benchmark of attacks on agents, through the real gateway and without a model; then our own cases. The result is
//! `docs/agentdojo.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{cargo, ecosystem, run};

/// From PyPI. The version of the benchmark inside it is named in `dev/agentdojo/suites.py`.
const AGENTDOJO: &str = "agentdojo==0.1.35";
const SCRIPTS: &str = "dev/agentdojo";
const DOCUMENT: &str = "docs/agentdojo.md";

/// Measures, and writes the document. With arguments only a part is measured, and nothing is written.
pub(crate) fn measure(target: &Path, args: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let args: Vec<String> = args.collect();
    let python = installed(&target.join("tools/agentdojo"))?;
    run("the gateway", cargo(["build", "--quiet", "--package", "stepgate"]))?;
    let binary = target.join("debug/stepgate");
    let results = target.join("agentdojo");
    fs::create_dir_all(&results)?;
    let (cases, pairs) = (results.join("cases.json"), results.join("pairs.json"));
    let script = |name: &str| {
        let mut command = Command::new(&python);
        command.arg(Path::new(SCRIPTS).join(name));
        command
    };
    let mut own = script("cases.py");
    own.arg("--binary").arg(&binary).arg("--results").arg(&cases);
    run("our own cases", own)?;
    let mut measure = script("measure.py");
    measure.arg("--binary").arg(&binary).arg("--results").arg(&pairs).args(&args);
    run("AgentDojo", measure)?;
    if !args.is_empty() {
        println!("only a part was measured: {DOCUMENT} stays as it is");
        return Ok(());
    }
    let mut report = script("report.py");
    report.arg("--pairs").arg(&pairs).arg("--cases").arg(&cases).arg("--document").arg(DOCUMENT);
    run(DOCUMENT, report)
}

/// The Python that has AgentDojo, in an environment of its own beside the build's output.
fn installed(environment: &Path) -> anyhow::Result<PathBuf> {
    let stamp = environment.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == AGENTDOJO) {
        return Ok(environment.join("bin/python3"));
    }
    ecosystem::pip("AgentDojo", environment, &[AGENTDOJO])?;
    fs::write(&stamp, AGENTDOJO)?;
    Ok(environment.join("bin/python3"))
}
