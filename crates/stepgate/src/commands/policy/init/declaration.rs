//! What a tool is: in plain words for a person, and as the configuration spells it.

use std::collections::BTreeSet;

use stepgate_exec::servers::ToolSpec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Looks,
    Changes,
    /// The operator does not want agents to have it.
    NeverOffered,
}

/// One of several answers that can hold together.
pub(super) struct Choice {
    /// What a person types for it.
    pub(super) key: char,
    /// The label that policies see.
    pub(super) label: &'static str,
    pub(super) words: &'static str,
}

/// What the result of a tool can bring into a session.
pub(super) const READS: [Choice; 2] = [
    Choice { key: 'u', label: "untrusted", words: "text that strangers can write" },
    Choice { key: 's', label: "secret", words: "secrets" },
];

/// Where a call can go.
pub(super) const SENDS: [Choice; 6] = [
    Choice { key: 'o', label: "egress", words: "outside" },
    Choice { key: 'm', label: "money", words: "to money" },
    Choice { key: 'a', label: "account", words: "to an account or a password" },
    Choice { key: 'd', label: "delete", words: "to something that is then gone" },
    Choice { key: 'i', label: "message", words: "to members inside" },
    Choice { key: 'w', label: "change", words: "to your own things" },
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    pub(super) does: Does,
    /// Labels of [`READS`].
    pub(super) reads: BTreeSet<&'static str>,
    /// Labels of [`SENDS`].
    pub(super) sends: BTreeSet<&'static str>,
    /// The arguments that say where a call goes or what it acts on; none if the operator cannot tell.
    pub(super) targets: Option<Vec<String>>,
}

impl Declaration {
    /// A tool that agents never get.
    pub(super) fn never_offered() -> Self {
        let (reads, sends) = (BTreeSet::new(), BTreeSet::new());
        Self { does: Does::NeverOffered, reads, sends, targets: None }
    }

    /// The declaration in words. Names of arguments are as the server spells them.
    pub(super) fn words(&self) -> String {
        let does = match self.does {
            Does::Looks => "it only looks",
            Does::Changes => "it changes something",
            Does::NeverOffered => return "agents never get it".to_owned(),
        };
        let reads = match listed(&READS, &self.reads) {
            none if none.is_empty() => "its result brings nothing special".to_owned(),
            some => format!("its result may bring {some}"),
        };
        let sends = match listed(&SENDS, &self.sends) {
            none if none.is_empty() => "a call goes nowhere".to_owned(),
            some => format!("a call goes {some}"),
        };
        let targets = match &self.targets {
            _ if self.sends.is_empty() => String::new(),
            None => "; which arguments say where is not known".to_owned(),
            Some(none) if none.is_empty() => "; no argument says where".to_owned(),
            Some(names) => format!("; {} say where", names.join(", ")),
        };
        format!("{does}; {reads}; {sends}{targets}")
    }

    /// The keys of the tool's table that the configuration does not have yet.
    pub(super) fn keys(&self, said: &ToolSpec) -> Vec<(&'static str, toml::Value)> {
        let mode = match self.does {
            Does::Looks => "read_only",
            Does::Changes => "execute_gated",
            Does::NeverOffered => return vec![("mode", "off".into())],
        };
        let mut keys = Vec::new();
        if said.mode.is_none() {
            keys.push(("mode", mode.into()));
        }
        if self.does == Does::Changes && said.delivery.is_none() {
            // Whether a call was done that was cut off is the operator's to say, until they declare more.
            keys.push(("in_doubt", "ask".into()));
        }
        let list = |labels: &BTreeSet<&'static str>| {
            toml::Value::Array(labels.iter().map(|label| (*label).into()).collect())
        };
        if said.reads.is_none() {
            keys.push(("reads", list(&self.reads)));
        }
        if said.sends.is_none() {
            keys.push(("sends", list(&self.sends)));
        }
        if let Some(targets) = self.targets.as_ref().filter(|_| said.targets.is_none()) {
            keys.push(("targets", targets.clone().into()));
        }
        keys
    }
}

fn listed(choices: &[Choice], labels: &BTreeSet<&'static str>) -> String {
    let held = choices.iter().filter(|choice| labels.contains(choice.label));
    let words: Vec<&str> = held.map(|choice| choice.words).collect();
    match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        words => words.concat(),
    }
}
