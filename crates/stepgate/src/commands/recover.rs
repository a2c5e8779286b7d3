//! `stepgate recover`: what every open does, with a report.

use serde_json::json;
use stepgate_core::recover::Report;

use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn recover(data: &DataDir, json: bool) -> anyhow::Result<u8> {
    let held = data.hold().await?;
    let Report { finished, waiting, quarantined } = &held.recovered;
    if json {
        let quarantined: Vec<_> =
            quarantined.iter().map(|(run, why)| json!({ "run_id": run, "reason": why })).collect();
        show::json(&json!({
            "finished": finished,
            "waiting": waiting,
            "quarantined": quarantined,
        }))?;
    } else {
        anstream::println!(
            "{} brought to their end, {} waiting for a person, {} quarantined",
            finished.len(),
            waiting.len(),
            quarantined.len()
        );
        for (run, why) in quarantined {
            anstream::println!("  {run}: {why}");
        }
    }
    Ok(if held.recovered.quarantined.is_empty() { 0 } else { super::FAULT })
}

/// Tells people, on standard error, what an open had to recover.
pub(super) fn tell(report: &Report) {
    if !report.finished.is_empty() {
        let count = report.finished.len();
        anstream::eprintln!("recovered {count} interrupted run(s); `stepgate runs` shows them");
    }
    for (run, why) in &report.quarantined {
        anstream::eprintln!("{}quarantined:{:#} {run}: {why}", show::ERROR, show::ERROR);
    }
}
