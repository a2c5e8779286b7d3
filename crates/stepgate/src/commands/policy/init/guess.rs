//! A first guess at what a tool is, from the names of the tool and its arguments and from the server's own hints.
//! It is advice for a person. In doubt it is the answer that makes policies ask more.

use std::collections::BTreeSet;

use stepgate_core::tool::Mode;
use stepgate_exec::servers::ToolSpec;

use super::declaration::{Declaration, Does};
use super::found::{FoundTool, Hints};

// Vocabularies: each is a list of words.

/// Words in the names of tools that only look.
const LOOKING: &str = "
    browse calculate check convert count describe diff download explain fetch find get history
    info inspect list log look lookup ping preview query read retrieve scrape search show snapshot
    stat status time tree view";
/// Words in the names of tools that change something.
const CHANGING: &str = "
    accept add append apply approve archive assign block book buy cancel change charge checkout
    clear click close comment commit copy create delete deploy destroy drop edit erase execute
    fill fork forward import insert install invite kill label lock mark merge modify move open
    order patch pay play post publish purge push put register release remove rename reply reserve
    reset restore revoke run save schedule send set share start stop submit subscribe transfer
    trash type uninstall unsubscribe update upload wipe write";
const MONEY: &str = "
    book booking buy charge checkout deposit donate invoice money order pay payment payments
    payout purchase refund reservation reserve subscribe subscription transaction transfer
    withdraw";
const ACCOUNT: &str = "
    account auth credential credentials login password permission permissions profile role roles
    token tokens";
const DELETE: &str = "
    cancel clear delete destroy drop erase overwrite purge remove reset revoke trash truncate
    uninstall wipe";
/// Words in the names of tools that reach something outside.
const OUTSIDE: &str = "
    browse comment crawl deploy download email fetch forward http invite mail message navigate
    notify post publish push release reply request scrape send share sms submit tweet upload web
    webhook";
/// Of these, words that do so although the tool only looks.
const LOOKING_OUTSIDE: &str = "browse crawl download fetch http navigate request scrape web";
const SECRET: &str = "
    credential credentials passport password passwords secret secrets token tokens vault";
/// Words in the names of arguments that are an address on the web.
const URL: &str = "
    domain endpoint host hostname href link links site uri uris url urls webhook website";
/// Words in the names of arguments that hold an address.
const RECIPIENT: &str = "
    address addresses attendees bcc cc email emails iban invitees participants payee phone
    receiver recipient recipients to";
/// Words in the names of arguments that say what a call acts on.
const ACTED_ON: &str = "
    account branch bucket calendar channel database dest destination directory document element
    event file filename files folder id ids issue key name owner path paths project ref remote
    repo repository resource room selector source table target task thread ticket user username";

/// The guess. What the configuration says already is not guessed.
pub(super) fn guess(tool: &FoundTool, said: &ToolSpec) -> Declaration {
    let name = words(tool.name.tool());
    let has = |vocabulary: &str| name.iter().any(|word| is_in(vocabulary, word));
    let does = match said.mode {
        Some(Mode::ReadOnly) => Does::Looks,
        Some(Mode::Draft | Mode::ExecuteGated) => Does::Changes,
        None => does(tool.hints, has(LOOKING), has(CHANGING)),
    };
    let arguments = Arguments::of(tool);
    let reaches_out = tool.hints.open_world == Some(true) || !arguments.urls.is_empty();
    let sends = match does {
        Does::NeverOffered => BTreeSet::new(),
        Does::Looks => held([("egress", reaches_out || has(LOOKING_OUTSIDE))]),
        Does::Changes => {
            let sends = held([
                ("money", has(MONEY)),
                ("account", has(ACCOUNT)),
                ("delete", has(DELETE) || tool.hints.destructive == Some(true)),
                ("egress", reaches_out || has(OUTSIDE) || !arguments.recipients.is_empty()),
            ]);
            if sends.is_empty() { ["change"].into() } else { sends }
        }
    };
    let targets = arguments.targets(&sends);
    let reads = reads(does, tool.hints, does == Does::Looks && has(SECRET));
    Declaration { does, reads, sends, targets }
}

fn is_in(vocabulary: &str, word: &str) -> bool {
    vocabulary.split_whitespace().any(|known| known == word)
}

fn held<const N: usize>(labels: [(&'static str, bool); N]) -> BTreeSet<&'static str> {
    labels.into_iter().filter(|(_, holds)| *holds).map(|(label, _)| label).collect()
}

/// A server's word that a tool only looks counts where the tool's name does not contradict it.
fn does(hints: Hints, is_looking: bool, is_changing: bool) -> Does {
    match hints.read_only {
        Some(true) if !is_changing => Does::Looks,
        None if is_looking && !is_changing => Does::Looks,
        Some(_) | None => Does::Changes,
    }
}

/// Any text can be a stranger's, except the answer of a tool that changes something and, as its server says, knows
/// nothing of the world outside.
fn reads(does: Does, hints: Hints, is_secret: bool) -> BTreeSet<&'static str> {
    let is_closed = does == Does::Changes && hints.open_world == Some(false);
    held([("untrusted", !is_closed), ("secret", is_secret)])
}

/// The arguments of a tool by what their names say.
struct Arguments<'a> {
    urls: Vec<&'a str>,
    recipients: Vec<&'a str>,
    /// Everything that says where a call goes or what it acts on, the two above included.
    all: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    fn of(tool: &'a FoundTool) -> Self {
        let matching = |vocabularies: &[&str]| {
            let is_named = |word: &String| vocabularies.iter().any(|it| is_in(it, word));
            tool.arguments().filter(|name| words(name).iter().any(is_named)).collect()
        };
        Self {
            urls: matching(&[URL]),
            recipients: matching(&[RECIPIENT]),
            all: matching(&[URL, RECIPIENT, ACTED_ON]),
        }
    }

    /// The arguments that say where a call goes; none if none of them has a telling name. Then a person is asked.
    fn targets(&self, sends: &BTreeSet<&'static str>) -> Option<Vec<String>> {
        let is_known = !sends.is_empty() && !self.all.is_empty();
        is_known.then(|| self.all.iter().map(|name| (*name).to_owned()).collect())
    }
}

/// The words of a name such as `sendEmail`, `send_email` or `send-email`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests;
