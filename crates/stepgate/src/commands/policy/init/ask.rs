//! Asks the person at the terminal what each tool is.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use stepgate_exec::servers::ToolSpec;

use super::declaration::{Choice, Declaration, Does, READS, SENDS};
use super::found::FoundTool;
use super::guess::guess;
use crate::commands::confirm::Terminal;
use crate::show;

/// How often a question is asked until an answer can be understood.
const TRIES_MAX: usize = 10;
/// Longest description of a tool that is shown, in characters.
const DESCRIPTION_CHARS_MAX: usize = 240;

pub(super) struct Open<'a> {
    pub(super) tool: &'a FoundTool,
    pub(super) said: ToolSpec,
}

pub(super) struct Answer<'a> {
    pub(super) open: &'a Open<'a>,
    pub(super) declaration: Declaration,
    /// Whether no person has looked at it.
    pub(super) is_guess: bool,
}

impl<'a> Answer<'a> {
    /// The answer that no person has looked at.
    pub(super) fn guessed(open: &'a Open<'a>) -> Self {
        Self { open, declaration: guess(open.tool, &open.said), is_guess: true }
    }
}

pub(super) fn about_server<'a>(
    terminal: &mut Terminal,
    server: &str,
    tools: &'a [Open<'a>],
) -> anyhow::Result<Vec<Answer<'a>>> {
    terminal.say(&format!(
        "\n`{server}` has {} tool(s) that are not declared. Enter takes the guess, e asks question by question, n \
         never\noffers the tool to agents, a takes the guesses for the rest of `{server}`, q stops and writes nothing.",
        tools.len()
    ))?;
    let mut answers = Vec::new();
    for (index, open) in tools.iter().enumerate() {
        let answer = Answer::guessed(open);
        terminal.say(&introduced(open.tool, index, tools.len(), &answer.declaration))?;
        let rest = tools.get(index..).unwrap_or_default();
        let choices = match open.said.mode {
            // The operator has given it a mode: to take the tool away, they change that.
            Some(_) => format!("[Enter, e, a: the other {}, q] ", rest.len()),
            None => format!("[Enter, e, n, a: the other {}, q] ", rest.len()),
        };
        let understood = |line: &str| match (line, open.said.mode) {
            ("", _) => Some(Word::Guess),
            ("e", _) => Some(Word::Edit),
            ("n", None) => Some(Word::Never),
            ("a", _) => Some(Word::All),
            (_, _) => None,
        };
        let declaration = match ask(terminal, &choices, understood)? {
            Word::Guess => answer.declaration,
            Word::Edit => edit(terminal, open, answer.declaration)?,
            Word::Never => Declaration::never_offered(),
            Word::All => {
                answers.extend(rest.iter().map(Answer::guessed));
                return Ok(answers);
            }
        };
        answers.push(Answer { open, declaration, is_guess: false });
    }
    Ok(answers)
}

enum Word {
    Guess,
    Edit,
    Never,
    All,
}

/// A tool and what it seems to be. Everything in it is the server's words, so it is made safe to show.
fn introduced(tool: &FoundTool, index: usize, count: usize, guess: &Declaration) -> String {
    let description = tool.description.as_deref().unwrap_or("no description");
    let description: Vec<&str> = description.split_whitespace().collect();
    let description = show::shortened(&description.join(" "), DESCRIPTION_CHARS_MAX);
    let arguments: Vec<&str> = tool.arguments().collect();
    let arguments = match arguments.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let lines = [
        format!("{} ({} of {count})", tool.name, index + 1),
        format!("  its server says: {description}"),
        format!("  arguments: {arguments}"),
        format!("  guess: {}", guess.words()),
    ];
    format!("\n{}", lines.map(|line| show::printable(&line)).join("\n"))
}

/// Asks question by question. What the configuration says already is not asked.
fn edit(
    terminal: &mut Terminal,
    open: &Open<'_>,
    guess: Declaration,
) -> anyhow::Result<Declaration> {
    let Declaration { mut does, mut reads, mut sends, mut targets } = guess;
    if open.said.mode.is_none() {
        let suggested = if does == Does::Looks { "l" } else { "c" };
        let question = format!("  Does it only look (l), or change something (c)? [{suggested}] ");
        does = ask(terminal, &question, |line| match line {
            "" => Some(does),
            "l" => Some(Does::Looks),
            "c" => Some(Does::Changes),
            _ => None,
        })?;
    }
    if open.said.reads.is_none() {
        let question = "  What can its result bring into a conversation?";
        reads = several(terminal, question, &READS, &reads, true)?;
    }
    if open.said.sends.is_none() {
        // A tool that changes something and is declared to reach nothing would need a person every time.
        let (question, can_be_none) = match does {
            Does::Looks => {
                ("  It only looks. Does a call carry something, such as a URL, with it?", true)
            }
            Does::Changes | Does::NeverOffered => {
                ("  Where does a call go, what does it change?", false)
            }
        };
        let fits = can_be_none || !sends.is_empty();
        let suggested = if fits { sends } else { ["change"].into() };
        sends = several(terminal, question, &SENDS, &suggested, can_be_none)?;
    }
    if sends.is_empty() {
        targets = None;
    } else if open.said.targets.is_none() {
        targets = asked_targets(terminal, open.tool, targets)?;
    }
    Ok(Declaration { does, reads, sends, targets })
}

fn several(
    terminal: &mut Terminal,
    question: &str,
    choices: &[Choice],
    suggested: &BTreeSet<&'static str>,
    can_be_none: bool,
) -> anyhow::Result<BTreeSet<&'static str>> {
    let rows = choices.iter().map(|choice| format!("    {} {}\n", choice.key, choice.words));
    let none = if can_be_none { "    - nothing\n" } else { "" };
    let keys = choices.iter().filter(|choice| suggested.contains(choice.label));
    let keys: String = match suggested.is_empty() {
        true => "-".to_owned(),
        false => keys.map(|choice| choice.key).collect(),
    };
    let rows: String = rows.collect();
    let question = format!("{question} One letter or several:\n{rows}{none}  [{keys}] ");
    ask(terminal, &question, |line| match line {
        "" => Some(suggested.clone()),
        "-" => can_be_none.then(BTreeSet::new),
        letters => letters
            .chars()
            .map(|c| choices.iter().find(|choice| choice.key == c).map(|choice| choice.label))
            .collect(),
    })
}

fn asked_targets(
    terminal: &mut Terminal,
    tool: &FoundTool,
    suggested: Option<Vec<String>>,
) -> anyhow::Result<Option<Vec<String>>> {
    let shown = suggested.as_ref().map_or("?".to_owned(), |names| names.join(", "));
    let question = format!(
        "  Which arguments say where it goes or what it acts on? Their names with commas between them; - if none\n  \
         does, because it is always the same; ? if you cannot tell: then a person is asked.\n  [{}] ",
        show::printable(&shown)
    );
    ask(terminal, &question, |line| match line {
        "" => Some(suggested.clone()),
        "?" => Some(None),
        "-" => Some(Some(Vec::new())),
        names => {
            let names = names.split(',').map(str::trim);
            let known = |name: &str| tool.arguments().any(|it| it == name).then(|| name.to_owned());
            names.map(known).collect::<Option<Vec<_>>>().map(Some)
        }
    })
}

/// Asks until the answer can be understood. `q`, and the end of the input, stop everything.
fn ask<T>(
    terminal: &mut Terminal,
    question: &str,
    understood: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<T> {
    for _ in 0..TRIES_MAX {
        let line = terminal.ask(question)?.context(STOPPED)?;
        let line = line.trim();
        if line == "q" {
            bail!(STOPPED);
        }
        match understood(line) {
            Some(answer) => return Ok(answer),
            None => terminal.say("  That is none of the answers.")?,
        }
    }
    bail!("no answer could be understood: nothing was written")
}

pub(super) const STOPPED: &str = "stopped: nothing was written";
