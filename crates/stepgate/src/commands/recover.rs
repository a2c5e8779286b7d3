//! `stepgate recover`: what every open does, with a report.

use anyhow::bail;
use serde_json::{Value, json};
use stepgate_core::ids::RunId;
use stepgate_core::recover::Report;

use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn recover(data: &DataDir, json: bool) -> anyhow::Result<u8> {
    if let Some(holder) = data.holder() {
        bail!(
            "`{}` is in use by {holder}, which recovers by itself; `stepgate doctor` says what is left",
            data.root().display()
        );
    }
    let held = data.hold().await?;
    let Report { finished, waiting, in_doubt, quarantined, stuck } = &held.recovered;
    if json {
        show::json(&json!({
            "finished": finished,
            "waiting": waiting,
            "in_doubt": in_doubt,
            "quarantined": with_reasons(quarantined),
            "stuck": with_reasons(stuck),
        }))?;
    } else {
        show::say(format!(
            "{} brought to their end, {} waiting for a person, {} in doubt, {} quarantined, {} stuck",
            finished.len(),
            waiting.len(),
            in_doubt.len(),
            quarantined.len(),
            stuck.len()
        ))?;
        for line in troubles(&held.recovered) {
            show::say(line)?;
        }
    }
    Ok(if quarantined.is_empty() && stuck.is_empty() { 0 } else { super::FAULT })
}

/// Tells people, on standard error, what an open had to recover.
pub(crate) fn tell(report: &Report) {
    if !report.finished.is_empty() {
        let count = report.finished.len();
        show::note(format!("recovered {count} interrupted run(s); `stepgate runs` shows them"));
    }
    for line in troubles(report) {
        show::note(line);
    }
}

/// What recovery left as it was: a line for each run, with the way out.
fn troubles(report: &Report) -> impl Iterator<Item = String> {
    let line = |word: &str, way_out: &str, (run, why): &(RunId, String)| {
        // Whatever does not verify may be anybody's text.
        let why = show::printable(why);
        format!("{}{word}:{:#} {run}: {why}; {way_out}", show::ERROR, show::ERROR)
    };
    let quarantined = report.quarantined.iter().map(move |trouble| {
        line("quarantined", "`stepgate verify` names what does not hold", trouble)
    });
    let stuck = report
        .stuck
        .iter()
        .map(move |trouble| line("stuck", "the next command tries again", trouble));
    quarantined.chain(stuck)
}

fn with_reasons(runs: &[(RunId, String)]) -> Vec<Value> {
    runs.iter().map(|(run, why)| json!({ "run_id": run, "reason": why })).collect()
}

#[cfg(test)]
mod tests;
