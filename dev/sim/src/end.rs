//! What must hold when everything has come to rest: effects against records, answers against rows, and
//! `verify` over all of it.

use std::collections::BTreeMap;

use serde_json::Value;
use stepgate_core::ids::RunId;
use stepgate_core::journal::artifact::Guarantee;
use stepgate_core::machine::State;
use stepgate_core::ports::{Dossier, Runs};
use stepgate_core::step::response_of;
use stepgate_core::verify::verify;
use stepgate_store::MemoryStore;

use crate::database::at_once;
use crate::node::Shared;
use crate::servers::{CHANGING, Servers};
use crate::trace::short;
use crate::world::Sim;

/// Everything once more, over the rows as they are.
pub(crate) fn check(sim: &Sim) {
    let Shared { env, ledger, database, servers, .. } = &sim.shared;
    let rows = database.tables().rows().clone();
    let mut broken = Vec::new();
    let dossiers = dossiers(&rows);
    for dossier in dossiers.values() {
        broken.extend(effects_of(servers, dossier));
    }
    broken.extend(sandbox(&ledger.sandbox_acts(), &dossiers));
    broken.extend(answers(&ledger.answers(), &dossiers));
    match at_once(verify(&rows, &[], |_| ())) {
        Ok(report) => {
            let said = report.problems.iter();
            broken.extend(said.map(|found| format!("verify: {}: {}", found.place, found.what)));
        }
        Err(error) => broken.push(format!("verify: {error}")),
    }
    broken.into_iter().for_each(|broken| env.violated(broken));
}

/// Whether a tool counts as many effects as the record says.
fn effects_of(servers: &Servers, dossier: &Dossier) -> Option<String> {
    let action = dossier.run.tool_name.as_deref().unwrap_or_default();
    let (record, _) = dossier.record.as_ref()?;
    if !CHANGING.contains(&action) {
        return None;
    }
    let name = short(dossier.run.arrival.run_id);
    let Ok(body) = record.body() else { return Some(format!("run {name}: no record")) };
    let key = dossier.binding.as_ref()?.idempotency_key.to_string();
    let acts = servers.acts(&key);
    let effect = effect_of(dossier);
    // `settled` tells who said so: what a person believed is the person's.
    let (status, is_settled_by_person) = match &effect {
        Some(effect) => (status_of(effect), resolved_by(effect)),
        None => (None, false),
    };
    let expected = match (status.as_deref(), body.guarantee) {
        (None | Some("DENIED"), _) | (_, None) => acts == 0,
        (Some("SUCCESS"), Some(Guarantee::ExactlyOnce)) => acts == 1,
        (Some("SUCCESS"), Some(Guarantee::AtLeastOnce)) => acts >= 1,
        (Some("SUCCESS"), Some(Guarantee::AtMostOnce)) => acts == 1,
        (Some("FAILURE"), Some(Guarantee::ExactlyOnce)) => acts == 0 || is_settled_by_person,
        (Some(_), Some(Guarantee::ExactlyOnce | Guarantee::AtMostOnce)) => acts <= 1,
        (Some(_), Some(Guarantee::AtLeastOnce)) => true,
    };
    (!expected).then(|| {
        let guarantee = body.guarantee;
        format!("run {name} ({action}) had {acts} effects; its record: {status:?}, {guarantee:?}")
    })
}

/// Whether the sandbox did each thing as often as runs say that it was done.
fn sandbox(acted: &BTreeMap<String, u32>, dossiers: &BTreeMap<String, Dossier>) -> Vec<String> {
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    for dossier in dossiers.values() {
        let action = dossier.run.tool_name.clone().unwrap_or_default();
        let changes = ["WRITE_FILE", "DELETE_FILE", "RENAME_FILE"].contains(&action.as_str());
        let last = dossier.entries.last().map(|last| last.entry.to_state);
        if changes && last == Some(State::Completed) {
            let args = dossier.run.input_json.clone().unwrap_or_default();
            *done.entry(format!("{action} {args}")).or_default() += 1;
        }
    }
    let all = done.keys().chain(acted.keys());
    let differs = all.filter_map(|what| {
        let said = done.get(what).copied().unwrap_or(0);
        let acts = acted.get(what).copied().unwrap_or(0);
        let others = || acted.keys().filter(|other| *other != what);
        let touches = |other: &&String| paths(what).any(|path| other.contains(path));
        let is_removal = |other: &&String| !other.starts_with("WRITE_FILE");
        let is_sound = if acts < said {
            // What another run wrote over in the meantime need not be done any more.
            others().any(|other| touches(&other))
        } else if acts > said && what.starts_with("WRITE_FILE") {
            // A file that another run removed in the meantime looks as if it had never been written.
            acts == said + 1 && others().filter(is_removal).any(|other| touches(&other))
        } else {
            acts == said
        };
        let told = || format!("`{what}` was done {acts} times, and {said} runs say so");
        (!is_sound).then(told)
    });
    differs.collect()
}

/// Whether everything that was answered is there, word for word.
fn answers(answers: &BTreeMap<RunId, String>, dossiers: &BTreeMap<String, Dossier>) -> Vec<String> {
    let lost = answers.iter().filter_map(|(run_id, response)| {
        let there = dossiers.get(&run_id.to_string()).and_then(|dossier| {
            let (record, _) = dossier.record.as_ref()?;
            Some(response_of(&dossier.run, &record.body().ok()?))
        });
        let name = short(*run_id);
        (there.as_ref() != Some(response))
            .then(|| format!("run {name} was answered `{response}`, and is {there:?}"))
    });
    lost.collect()
}

/// The paths in the words for a core action.
fn paths(what: &str) -> impl Iterator<Item = &str> {
    what.split('"').filter(|word| word.starts_with("/sandbox/"))
}

fn dossiers(rows: &MemoryStore) -> BTreeMap<String, Dossier> {
    let ids = at_once(rows.run_ids(None, usize::MAX)).unwrap_or_default();
    let dossier =
        |run_id: RunId| Some((run_id.to_string(), at_once(rows.dossier(run_id)).ok().flatten()?));
    ids.into_iter().filter_map(dossier).collect()
}

/// The tool_effect of a run.
fn effect_of(dossier: &Dossier) -> Option<Value> {
    let last = dossier.entries.last()?;
    let artifact: Value = serde_json::from_str(&last.artifact.text).ok()?;
    artifact.get("outcome").is_some().then_some(artifact)
}

fn status_of(effect: &Value) -> Option<String> {
    Some(effect.get("outcome")?.get("status")?.as_str()?.to_owned())
}

fn resolved_by(effect: &Value) -> bool {
    effect.get("meta").is_some_and(|meta| meta.get("resolved_by").is_some())
}
