//! `stepgate policy init`: asks what the tools are, and writes their declarations and the first policies.

mod ask;
mod declaration;
mod edited;
mod first_set;
mod found;
mod guess;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use stepgate_core::facts::FactNames;
use stepgate_exec::servers::ServerSpec;
use stepgate_gateway::durable;
use stepgate_policy::{Nameable, ToolShape};

use self::ask::{Answer, Open, STOPPED};
use self::edited::Addition;
use self::first_set::FirstSet;
use self::found::{Found, FoundTool};
use super::names;
use crate::commands::confirm::Terminal;
use crate::commands::print_one;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::settings;
use crate::show;

/// Asks, shows what it would write, and writes it after a yes. Until then nothing is written.
pub(super) async fn init(
    data: &DataDir,
    directory: Option<PathBuf>,
    suggestions: bool,
) -> anyhow::Result<()> {
    let config = data.load_config()?;
    settings::refuse_open_to_others(data, &config)?;
    let file = ConfigFile::of(data, &config)?;
    let policies = first_set(data, &config, directory)?;
    // Before any server is started: without a terminal nothing can be asked.
    let mut person = match suggestions {
        true => None,
        false => Some(Terminal::open().context(NO_TERMINAL)?),
    };
    let found = found::tools(data, &config).await?;
    found.missing.iter().for_each(|missing| show::note(not_asked(missing)));
    let open = open(&settings::server_specs(data, &config)?, &found);
    let answers = match &mut person {
        Some(terminal) => {
            by_server(&open, |server, tools| ask::about_server(terminal, server, tools))?
        }
        None => by_server(&open, |_, tools| Ok(tools.iter().map(Answer::guessed).collect()))?,
    };
    let plan = Plan::of(file, &answers, policies)?;
    if plan.is_empty() {
        return told(data, &plan, "nothing to write: ");
    }
    if let Some(terminal) = &mut person {
        terminal.say(&plan.shown())?;
        ensure!(terminal.agrees("Write this?")?, STOPPED);
    }
    plan.write(data, &found)?;
    told(data, &plan, "")
}

const NO_TERMINAL: &str = "this asks a person at a terminal, and there is none: do it at a terminal, or let \
                           --suggestions answer, and look at what it wrote";

fn not_asked(missing: &str) -> String {
    format!("not asked about {}", show::printable(missing))
}

struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    fn of(data: &DataDir, config: &Config) -> anyhow::Result<Self> {
        let path = data.config_file().filter(|_| !config.servers.is_empty());
        let path = path.with_context(|| {
            format!(
                "no tool server is configured: name one in `{}`, such as [servers.files] with its command",
                data.config_shown()
            )
        })?;
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        Ok(Self { path, text })
    }
}

/// Where the first policies go: the directory that the command names, or the one in force.
fn first_set(
    data: &DataDir,
    config: &Config,
    directory: Option<PathBuf>,
) -> anyhow::Result<FirstSet> {
    match directory {
        Some(named) => {
            let set = FirstSet::at(named)?;
            first_set::refuse_taken(&set)?;
            Ok(set)
        }
        None => FirstSet::at(data.policies(config)),
    }
}

/// The tools that the configuration does not say enough about. One that is turned off, or cannot be used, is not
/// asked about.
fn open<'a>(specs: &[ServerSpec], found: &'a Found) -> BTreeMap<&'a str, Vec<Open<'a>>> {
    let mut open: BTreeMap<&str, Vec<Open<'a>>> = BTreeMap::new();
    for tool in &found.tools {
        let server = tool.name.server();
        let Some(spec) = specs.iter().find(|spec| spec.name == server) else { continue };
        let said = spec.settings_of(tool.name.tool());
        let is_declared = said.mode.is_some() && (said.reads.is_some() || said.sends.is_some());
        match &tool.trouble {
            Some(trouble) => {
                show::note(not_asked(&format!("`{}`, which cannot be used: {trouble}", tool.name)));
            }
            None if is_declared || said.is_off => {}
            None => open.entry(server).or_default().push(Open { tool, said }),
        }
    }
    open
}

fn by_server<'a>(
    open: &'a BTreeMap<&str, Vec<Open<'a>>>,
    mut asked: impl FnMut(&str, &'a [Open<'a>]) -> anyhow::Result<Vec<Answer<'a>>>,
) -> anyhow::Result<Vec<Answer<'a>>> {
    let mut answers = Vec::new();
    for (server, tools) in open {
        answers.extend(asked(server, tools)?);
    }
    Ok(answers)
}

struct Plan<'a> {
    file: ConfigFile,
    additions: Vec<Addition<'a>>,
    edited: String,
    policies: FirstSet,
}

impl<'a> Plan<'a> {
    fn of(file: ConfigFile, answers: &[Answer<'a>], policies: FirstSet) -> anyhow::Result<Self> {
        let additions = answers.iter().map(|answer| Addition {
            tool: &answer.open.tool.name,
            keys: answer.declaration.keys(&answer.open.said),
            is_guess: answer.is_guess,
        });
        let additions: Vec<Addition<'a>> = additions.collect();
        let edited = edited::edited(&file.text, &additions)
            .with_context(|| format!("`{}`: nothing was written", file.path.display()))?;
        Ok(Self { file, additions, edited, policies })
    }

    fn is_empty(&self) -> bool {
        self.additions.is_empty() && !self.policies.is_open()
    }

    fn shown(&self) -> String {
        let declared = match self.additions.is_empty() {
            true => "Every tool is declared already.".to_owned(),
            false => format!(
                "This is added to `{}`:\n\n{}",
                self.file.path.display(),
                // Names of arguments are the server's words.
                show::printable_lines(&edited::shown(&self.additions))
            ),
        };
        format!("\n{declared}\n{}\n", self.policies.words())
    }

    /// Checks everything first: the configuration as it will be, and the policies against the tools as they will be
    /// declared.
    fn write(&self, data: &DataDir, found: &Found) -> anyhow::Result<()> {
        let config = Config::of_text(&self.edited, |name| std::env::var(name).ok())?;
        let shapes = shapes(&settings::server_specs(data, &config)?, &found.tools);
        let facts: FactNames = names(&config)?;
        if self.policies.is_open() {
            self.policies.check(Nameable { tools: &shapes, facts: &facts })?;
        }
        if !self.additions.is_empty() {
            self.replace_config()?;
        }
        self.policies.write()
    }

    fn replace_config(&self) -> anyhow::Result<()> {
        let ConfigFile { path, text } = &self.file;
        let shown = path.display();
        let now =
            std::fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
        if now != *text {
            bail!("`{shown}` has changed meanwhile: nothing was written; ask again");
        }
        let replaced = durable::replace(path, self.edited.as_bytes());
        replaced.with_context(|| format!("cannot write `{shown}`: nothing was written"))
    }
}

/// The tools as they will be declared.
fn shapes(specs: &[ServerSpec], tools: &[FoundTool]) -> Vec<ToolShape> {
    let shape = |tool: &FoundTool| {
        let spec = specs.iter().find(|spec| spec.name == tool.name.server())?;
        let said = spec.settings_of(tool.name.tool());
        Some(ToolShape {
            name: tool.name.clone(),
            mode: said.mode?,
            input_schema: tool.input_schema.clone(),
            redacted: said.hidden().cloned().collect(),
            flow: said.flow(),
            definition_digest: tool.definition_digest,
            is_accepted: true,
        })
    };
    tools.iter().filter_map(shape).collect()
}

fn told(data: &DataDir, plan: &Plan<'_>, prefix: &str) -> anyhow::Result<()> {
    let Plan { file, additions, policies, .. } = plan;
    let declared: Vec<&str> = additions.iter().map(|addition| addition.tool.as_str()).collect();
    let written = policies.is_open().then(|| policies.directory.display().to_string());
    let report = json!({
        "configuration": file.path.display().to_string(),
        "declared": declared,
        "policies": written,
    });
    print_one(&report, &data.global, || {
        let declared = match declared.len() {
            0 => format!("{prefix}every tool is declared in `{}`", file.path.display()),
            count => format!("declared {count} tool(s) in `{}`", file.path.display()),
        };
        let guesses = additions.iter().filter(|addition| addition.is_guess).count();
        let guesses = match guesses {
            0 => String::new(),
            count => format!("\n{count} of them are guesses: look for `{}`", edited::GUESS),
        };
        let restart = match data.holder() {
            Some(_) if !additions.is_empty() => {
                "\nrestart `stepgate serve`: it reads the configuration when it starts"
            }
            Some(_) | None => "",
        };
        let policies = match &written {
            Some(directory) => format!("the first policies are in `{directory}`"),
            None => policies.words(),
        };
        format!("{declared}{guesses}\n{policies}{restart}")
    })
}
