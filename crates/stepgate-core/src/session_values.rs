//! What one session has been given: the user's requests, and the trusted values of results.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::action::Action;
use crate::digest::Digest;
use crate::ids::RunId;
use crate::json::{Value, strict};
use crate::label::Flow;
use crate::origin::{
    Directories, RequestText, Spelled, ValueOrigins, addresses_in, leaves, texts_in,
};
use crate::run::{Run, Status};
use crate::tool::{Tool, ToolName};

/// The values of one session. They follow from its events and runs, so they can be read again at any time.
#[derive(Debug, Default)]
pub(crate) struct SessionValues {
    /// How many reads have begun.
    begun: u64,
    /// How far the session was read.
    read: ReadUpTo,
    requests: Vec<RequestText>,
    /// For each value, the place of its sources in `sources`.
    values: HashMap<ValueKey, u16>,
    /// Every combination of sources that a value has.
    sources: Vec<BTreeSet<Source>>,
}

/// How far a session was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadUpTo {
    /// The number of the read that came last: everything that was recorded before that read began was seen.
    pub(crate) number: u64,
    /// How many requests.
    pub(crate) requests: u64,
    /// The newest run.
    pub(crate) run: Option<RunId>,
    /// Runs up to it that had not ended.
    pub(crate) open: BTreeSet<RunId>,
    /// Tools whose results were passed over, because nothing was known about them.
    pub(crate) unknown: BTreeSet<String>,
}

/// What is new in a session.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The texts of new requests, oldest first.
    requests: Vec<String>,
    /// The newest run, where there is a new one.
    pub(crate) newest: Option<RunId>,
    /// Runs that have not ended.
    open: BTreeSet<RunId>,
    /// Tools of which nothing is known now.
    unknown: BTreeSet<String>,
    /// Whether it takes the place of everything that was read before.
    pub(crate) is_instead: bool,
    /// The values of the results of the others.
    values: Vec<(ValueKey, Source)>,
}

/// Longest value of a result that counts.
const VALUE_BYTES_MAX: usize = 1024;

/// Half of the SHA-256 of a value's spelling: a tenth of the memory that the values themselves would take.
type ValueKey = [u8; 16];

/// What gave a value to a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// A trusted part of a result of this tool.
    Record(ToolName),
    /// An address in a text that `links` names.
    Link,
}

impl SessionValues {
    /// Most values of one session. What comes after them counts as the agent's.
    pub(crate) const VALUES_MAX: usize = 100_000;
    /// Most combinations of sources.
    const SOURCES_MAX: usize = 1000;

    pub(crate) fn read_up_to(&self) -> &ReadUpTo {
        &self.read
    }

    /// The number of a read that begins now, and from where it reads on.
    pub(crate) fn begin(&mut self) -> (u64, ReadUpTo) {
        self.begun += 1;
        (self.begun, self.read.clone())
    }

    /// How many values it has.
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// Takes in what the read of this number found.
    pub(crate) fn take_in(&mut self, number: u64, news: News) {
        let News { requests, newest, open, unknown, is_instead, values } = news;
        if is_instead {
            *self = Self { begun: self.begun, ..Self::default() };
        }
        self.read.number = number;
        for text in &requests {
            self.read.requests += 1;
            self.requests.push(RequestText::of(text));
        }
        for (key, source) in values {
            self.add(key, source);
        }
        self.read.run = newest.or(self.read.run);
        self.read.open = open;
        let room = Self::SOURCES_MAX.saturating_sub(self.read.unknown.len());
        self.read.unknown.extend(unknown.into_iter().take(room));
    }

    fn add(&mut self, key: ValueKey, source: Source) {
        let known = self.values.get(&key).copied();
        if known.is_none() && self.values.len() >= Self::VALUES_MAX {
            return;
        }
        let known = known.and_then(|place| self.sources.get(usize::from(place)));
        let mut sources = known.cloned().unwrap_or_default();
        sources.insert(source);
        let place = match self.sources.iter().position(|there| *there == sources) {
            Some(place) => place,
            None if self.sources.len() >= Self::SOURCES_MAX => return,
            None => {
                self.sources.push(sources);
                self.sources.len() - 1
            }
        };
        if let Ok(place) = u16::try_from(place) {
            self.values.insert(key, place);
        }
    }

    /// Where a leaf of an argument comes from.
    pub(crate) fn origins_of(&self, leaf: &Value, directories: &Directories) -> ValueOrigins {
        let mut origins = ValueOrigins::default();
        let Some(spelled) = Spelled::of_leaf(leaf) else { return origins };
        if self.requests.iter().any(|request| request.has(leaf, &spelled)) {
            origins.is_users();
        }
        for name in directories.having(&spelled) {
            origins.is_in_directory(name);
        }
        let place = self.values.get(&key_of(&spelled));
        let sources = place.and_then(|place| self.sources.get(usize::from(*place)));
        for source in sources.into_iter().flatten() {
            match source {
                Source::Record(tool) => origins.is_recorded_by(tool.as_str()),
                Source::Link => origins.is_linked(),
            }
        }
        origins
    }
}

impl News {
    /// New requests, and no new run yet.
    pub(crate) fn of_requests(requests: Vec<String>) -> Self {
        Self { requests, ..Self::default() }
    }

    /// Notes a run: that it has not ended, or the trusted values of its result. `tool` finds a tool as it is known now.
    pub(crate) fn note(&mut self, run: &Run, tool: impl FnOnce(&str) -> Option<Arc<Tool>>) {
        if !run.status.is_final() {
            self.open.insert(run.arrival.run_id);
            return;
        }
        let output = run.ending.as_ref().and_then(|ending| ending.output_json.as_deref());
        let (Status::Ok, Some(output)) = (run.status, output) else { return };
        let Some(name) = run.tool_name.as_deref() else { return };
        let Some(tool) = tool(name) else {
            // Core actions have results of the sandbox, which the agent itself writes.
            if Action::parse(name).is_none() {
                self.unknown.insert(name.to_owned());
            }
            return;
        };
        if tool.flow.trusted.is_empty() && tool.flow.links.is_empty() {
            return;
        }
        if let Some(result) = result_of(output) {
            self.take_result(run, &tool, &result);
        }
    }

    fn take_result(&mut self, run: &Run, tool: &Tool, result: &Value) {
        let Flow { trusted, links, .. } = &tool.flow;
        let given = run.input_json.as_deref().and_then(|args| strict::stored(args).ok());
        let given: BTreeSet<Spelled> =
            given.iter().flat_map(leaves).filter_map(Spelled::of_leaf).collect();
        let parts = trusted.iter().flat_map(|pointer| pointer.parts_of(result)).flat_map(leaves);
        for value in parts.filter_map(Spelled::of_leaf) {
            // What the call itself said is not vouched for by an answer that repeats it.
            if !given.contains(&value) {
                self.add(&value, Source::Record(tool.name.clone()));
            }
        }
        for part in links.iter().flat_map(|pointer| pointer.parts_of(result)) {
            texts_in(part, &mut |text| {
                for address in addresses_in(text) {
                    self.add(&Spelled::of(&address), Source::Link);
                }
            });
        }
    }

    fn add(&mut self, value: &Spelled, source: Source) {
        if value.as_str().len() <= VALUE_BYTES_MAX && self.values.len() < SessionValues::VALUES_MAX
        {
            self.values.push((key_of(value), source));
        }
    }
}

fn key_of(value: &Spelled) -> ValueKey {
    let digest = Digest::of_bytes(value.as_str().as_bytes());
    let half = digest.as_bytes().first_chunk().copied();
    half.unwrap_or_default()
}

/// The value of a tool's result: its structured content or, where it has none, its one text, where the whole of it
/// is a JSON object or list.
fn result_of(output_json: &str) -> Option<Value> {
    let Ok(Value::Object(mut result)) = strict::stored(output_json) else { return None };
    if let Some(structured) = result.remove("structuredContent") {
        return Some(structured);
    }
    let Some(Value::Array(content)) = result.remove("content") else { return None };
    let [only] = content.as_slice() else { return None };
    let text = only.get("text").filter(|_| only.get("type").is_some_and(|kind| kind == "text"))?;
    let text = text.as_str()?;
    let value = strict::stored(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}
