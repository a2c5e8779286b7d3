//! The origins of a call's arguments, from what its session has been given.
//!
//! What a session has been given is kept in memory for the sessions that were used last, and read on from the store
//! before each use: the requests by their ids, the runs from the newest one that was read. So a decision in a session with
//! ten thousand steps reads what is new, and a result that was recorded before the call came is always seen.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::call::Call;
use crate::gate::Gate;
use crate::ids::{RunId, SessionId};
use crate::json::Value;
use crate::origin::{Directories, Origin, addresses_in, agents, none, said_in, shared, texts_in};
use crate::ports::{RunQuery, StoreError};
use crate::requests;
use crate::session_cache::Given;
use crate::session_values::{News, ReadUpTo};
use crate::tool::ToolName;

/// Runs that are read at once.
const PAGE_RUNS: usize = 32;
/// Most leaves of a call's arguments that are looked up. The arguments of a call with more come from the agent.
const LEAVES_MAX: usize = 1000;
/// Most bytes of a call's arguments that are searched for addresses.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The session's values, read on from the store.
pub async fn given(gate: &Gate, session_id: SessionId) -> Result<Given, StoreError> {
    let sessions = &gate.facts.sessions;
    let given = sessions.given(session_id);
    let mut first = None;
    loop {
        let (number, before) = given.values().begin();
        let first = *first.get_or_insert(number);
        let is_known =
            |name: &String| ToolName::parse(name).is_ok_and(|it| gate.tools.tool(&it).is_some());
        // The server of a tool has come up since its results were passed over: everything is read again.
        let is_instead = before.unknown.iter().any(is_known);
        let from = if is_instead { &ReadUpTo::default() } else { &before };
        let mut news = news(gate, session_id, from).await?;
        news.is_instead = is_instead;
        match sessions.take_in(session_id, &given, (number, &before), news) {
            Ok(()) => return Ok(given),
            // Another call of the session has read on meanwhile. A read that began after this one has seen what this one
            // must see.
            Err(other) if other > first => return Ok(given),
            Err(_) => {}
        }
    }
}

/// What the store has that was not read yet.
async fn news(gate: &Gate, session_id: SessionId, before: &ReadUpTo) -> Result<News, StoreError> {
    let requests = requests::after(&*gate.store, session_id, before.requests).await?;
    let mut news = News::of_requests(requests);
    let tool = |name: &str| gate.tools.tool(&ToolName::parse(name).ok()?);
    if !before.open.is_empty() {
        let open: Vec<RunId> = before.open.iter().copied().collect();
        for recalled in gate.store.recollections(&open).await? {
            news.note(&recalled.run, tool);
        }
    }
    let mut query = RunQuery {
        session_id: Some(session_id),
        after: before.run,
        limit: PAGE_RUNS,
        ..RunQuery::default()
    };
    loop {
        // Newest first.
        let page = gate.store.runs(query.clone()).await?;
        news.newest = news.newest.or(page.first().map(|run| run.arrival.run_id));
        page.iter().for_each(|run| news.note(run, tool));
        match page.last() {
            Some(last) if page.len() == PAGE_RUNS => query.before = Some(last.arrival.run_id),
            Some(_) | None => return Ok(news),
        }
    }
}

/// The origins that every target of a call has, and those that every address in its other arguments has; `none` where
/// there is no target, or no address. Redacted targets come from the agent: policies do not see them either.
pub(crate) fn origins_of(
    given: &Given,
    call: &Call,
    directories: &Directories,
) -> (BTreeSet<Origin>, BTreeSet<Origin>) {
    let args = arguments(call);
    let declared = targets(call);
    let is_target = |name: &str| declared.iter().flatten().any(|target| *target == name);
    let (at, others): (Vec<_>, Vec<_>) = args.iter().partition(|(name, _)| is_target(name));
    let values = given.values();
    let common = |said: &[Cow<'_, Value>]| match said.len() <= LEAVES_MAX {
        true => shared(said.iter().map(|leaf| values.origins_of(leaf, directories))),
        false => agents(),
    };
    let redacted: &[String] = match call {
        Call::Core(_) => &[],
        Call::Server(call) => &call.tool.redacted,
    };
    let is_redacted = |name: &str| redacted.iter().any(|redacted| redacted == name);
    let said: Vec<_> = at.iter().flat_map(|(_, value)| said_in(value)).collect();
    let targets = match declared.as_deref() {
        Some([]) => none(),
        Some(_) if said.is_empty() || at.iter().any(|(name, _)| is_redacted(name)) => agents(),
        Some(_) => common(&said),
        None => agents(),
    };
    let addresses = match found_in(others.iter().map(|(_, value)| &**value)) {
        Some(found) => common(&found),
        None => agents(),
    };
    (targets, addresses)
}

/// The addresses in some arguments; none where their texts are too long to be searched.
fn found_in<'a>(args: impl Iterator<Item = &'a Value>) -> Option<Vec<Cow<'a, Value>>> {
    let (mut bytes, mut found) = (0, BTreeSet::new());
    for value in args {
        texts_in(value, &mut |text| {
            bytes += text.len();
            if bytes <= TEXT_BYTES_MAX {
                found.extend(addresses_in(text));
            }
        });
    }
    let found = || found.into_iter().map(|address| Cow::Owned(Value::String(address))).collect();
    (bytes <= TEXT_BYTES_MAX).then(found)
}

/// The arguments of a call.
fn arguments(call: &Call) -> Vec<(&str, Cow<'_, Value>)> {
    match call {
        Call::Server(call) => {
            call.args.iter().map(|(name, value)| (name.as_str(), Cow::Borrowed(value))).collect()
        }
        Call::Core(call) => {
            let value = |(name, text)| (name, Cow::Owned(Value::from(text)));
            call.arguments().into_iter().map(value).collect()
        }
    }
}

/// The arguments that say where a call goes, or what it acts on; none where the configuration does not say which.
fn targets(call: &Call) -> Option<Vec<&str>> {
    match call {
        Call::Core(_) => Some(vec!["path", "source", "destination"]),
        Call::Server(call) => {
            let targets = call.tool.flow.targets.as_ref()?;
            Some(targets.iter().map(String::as_str).collect())
        }
    }
}
