//! Origins: where the value of an argument comes from, as far as the gate knows.
//!
//! The gate knows what the user asked for in the session, the operator's directories, and those parts of earlier
//! results that the configuration trusts. A value that stands in none of them comes from the agent, whatever the agent
//! took it from: a value that was transformed is another value.

mod addresses;
mod spelling;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;

use crate::ids::{InvalidId, checked_text};
use crate::json::Value;

pub(crate) use addresses::addresses_in;
pub(crate) use spelling::{RequestText, Spelled};

/// Where a value comes from. Some origins include others, so that "each recipient is one that the user or a
/// directory names" can be said of a list whose elements come from both.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(inline)]
pub struct Origin(String);

checked_text!(Origin, 0);

impl Origin {
    /// It stands in what the user asked for.
    pub const USER: &str = "user";
    /// The user or a directory names it.
    pub const KNOWN: &str = "known";
    /// A trusted value of an earlier result, or known.
    pub const RECORD: &str = "record";
    /// An address in a text that `links` names, or known.
    pub const LINK: &str = "link";
    /// None of these: the agent made it up, or took it from something that is not trusted.
    pub const AGENT: &str = "agent";
    /// There is no value.
    pub const NONE: &str = "none";

    /// The origins that exist in every configuration.
    pub const COMMON: [&str; 6] =
        [Self::USER, Self::KNOWN, Self::RECORD, Self::LINK, Self::AGENT, Self::NONE];

    /// What the origin of a directory begins with.
    const DIRECTORY: &str = "directory/";

    fn common(name: &'static str) -> Self {
        Self(name.to_owned())
    }

    /// An entry of this directory.
    pub fn directory(name: &str) -> Self {
        Self(format!("{}{name}", Self::DIRECTORY))
    }

    /// A trusted value of a result of this tool.
    pub fn tool(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Takes one of the common names, `directory/NAME` or `SERVER.TOOL`.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let is_directory = || text.strip_prefix(Self::DIRECTORY).is_some_and(is_directory_name);
        let is_tool = || {
            let (server, tool) = text.split_once('.').unwrap_or_default();
            is_directory_name(server) && !tool.is_empty()
        };
        let is_valid = Self::COMMON.contains(&text) || is_directory() || is_tool();
        match is_valid {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidId::new(
                text,
                "an origin: `user`, `known`, `record`, `link`, `agent`, `none`, `directory/NAME` or `SERVER.TOOL`",
            )),
        }
    }
}

/// Whether a directory can have this name.
pub fn is_directory_name(text: &str) -> bool {
    let is_of_name =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    (1..=32).contains(&text.len()) && text.bytes().all(is_of_name)
}

/// The operator's lists of values, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directories(BTreeMap<String, Directory>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Directory {
    entries: BTreeSet<Spelled>,
    /// The domains of `*@DOMAIN`.
    domains: BTreeSet<String>,
}

impl Directories {
    /// Most entries of one directory.
    pub const ENTRIES_MAX: usize = 100_000;

    /// These lists. An entry `*@DOMAIN` stands for every address of a domain.
    pub fn new(directories: BTreeMap<String, Vec<String>>) -> Self {
        let directory = |entries: Vec<String>| {
            let mut directory = Directory::default();
            for entry in entries {
                let entry = Spelled::of(&entry);
                match entry.as_str().strip_prefix("*@") {
                    Some(domain) => drop(directory.domains.insert(domain.to_owned())),
                    None => drop(directory.entries.insert(entry)),
                }
            }
            directory
        };
        Self(directories.into_iter().map(|(name, entries)| (name, directory(entries))).collect())
    }

    /// The names of the lists.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The lists that have a value.
    pub(crate) fn having<'a>(&'a self, value: &'a Spelled) -> impl Iterator<Item = &'a str> {
        let having = self.0.iter().filter(|(_, directory)| directory.has(value));
        having.map(|(name, _)| name.as_str())
    }
}

impl Directory {
    fn has(&self, value: &Spelled) -> bool {
        let is_of_domain = || {
            let (name, domain) = value.as_str().split_once('@').unwrap_or_default();
            // Letters that a mail program could take for the border of another address are not allowed.
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._%+'-".contains(c);
            !name.is_empty() && name.chars().all(is_plain) && self.domains.contains(domain)
        };
        self.entries.contains(value) || is_of_domain()
    }
}

/// The origins of one value, before they are compared with those of others.
#[derive(Debug, Default)]
pub(crate) struct ValueOrigins(BTreeSet<Origin>);

impl ValueOrigins {
    pub(crate) fn is_users(&mut self) {
        self.0.insert(Origin::common(Origin::USER));
        self.is_known();
    }

    pub(crate) fn is_in_directory(&mut self, name: &str) {
        self.0.insert(Origin::directory(name));
        self.is_known();
    }

    /// A policy that accepts a record, or a link, accepts the user's word and the operator's too.
    fn is_known(&mut self) {
        self.0.extend([Origin::KNOWN, Origin::RECORD, Origin::LINK].map(Origin::common));
    }

    pub(crate) fn is_recorded_by(&mut self, tool: &str) {
        self.0.extend([Origin::tool(tool), Origin::common(Origin::RECORD)]);
    }

    pub(crate) fn is_linked(&mut self) {
        self.0.insert(Origin::common(Origin::LINK));
    }
}

/// The origin of nothing.
pub fn none() -> BTreeSet<Origin> {
    BTreeSet::from([Origin::common(Origin::NONE)])
}

/// The origins that all values have. Where there is no value: `none`. Where they share none: `agent`.
pub(crate) fn shared(values: impl IntoIterator<Item = ValueOrigins>) -> BTreeSet<Origin> {
    let shared = values.into_iter().map(|ValueOrigins(origins)| origins);
    let shared = shared.reduce(|all, one| all.intersection(&one).cloned().collect());
    match shared {
        None => none(),
        Some(shared) if shared.is_empty() => agents(),
        Some(shared) => shared,
    }
}

/// These origins with those that include them, as a value has them that comes from there.
pub fn widened(origins: &BTreeSet<Origin>) -> BTreeSet<Origin> {
    let mut value = ValueOrigins(origins.clone());
    for origin in origins {
        match origin.as_str() {
            Origin::RECORD | Origin::LINK | Origin::AGENT | Origin::NONE => {}
            Origin::USER | Origin::KNOWN => value.is_known(),
            directory if directory.starts_with(Origin::DIRECTORY) => value.is_known(),
            _tool => drop(value.0.insert(Origin::common(Origin::RECORD))),
        }
    }
    value.0
}

/// The origins of a value that nothing vouches for.
pub fn agents() -> BTreeSet<Origin> {
    BTreeSet::from([Origin::common(Origin::AGENT)])
}

/// What an argument says: its texts, numbers and truth values, and the names of members, which a tool may take for
/// values. Null says nothing.
pub(crate) fn said_in(value: &Value) -> Vec<Cow<'_, Value>> {
    match value {
        Value::Null => Vec::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![Cow::Borrowed(value)],
        Value::Array(items) => items.iter().flat_map(said_in).collect(),
        Value::Object(members) => {
            let member = |(name, item)| {
                let name = Cow::Owned(Value::String(String::clone(name)));
                [name].into_iter().chain(said_in(item))
            };
            members.iter().flat_map(member).collect()
        }
    }
}

/// The texts, numbers and truth values of a part of a result, without the names of members.
pub(crate) fn leaves(value: &Value) -> Vec<&Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![value],
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::Object(members) => members.values().flat_map(leaves).collect(),
    }
}

/// The texts of a value: those of its leaves, and the names of members.
pub(crate) fn texts_in(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => each(&spelling::number_text(number)),
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| texts_in(item, each)),
        Value::Object(members) => members.iter().for_each(|(name, item)| {
            each(name);
            texts_in(item, each);
        }),
    }
}

#[cfg(test)]
mod tests;
