//! Times, sizes and counts that were noted where things happen.

use std::sync::atomic::Ordering;

use stepgate_gateway::meters::{ActionLabel, METERS};

use super::families::{Families, counter, counters, histogram, histograms, labelled};

pub(super) fn add(families: &mut Families) {
    let phases = METERS.phases().map(|(phase, it)| (labelled("phase", phase.as_str()), it));
    let text = "How long the phases of steps take";
    families.add("stepgate_phase_duration_seconds", text, histograms(phases));
    let tools = METERS.tools().into_iter().map(|(name, it)| {
        let ActionLabel { action, server, tool } = ActionLabel::of(&name);
        (vec![("action", action), ("server", server), ("tool", tool)], it)
    });
    let text = "How long calls take, in the sandbox and of tool servers";
    families.add("stepgate_tool_duration_seconds", text, histograms(tools));
    let text = "How long the model takes to answer, with its retries";
    let models = METERS.model_calls.snapshot();
    families.add("stepgate_model_duration_seconds", text, histogram(models));
    let text = "How long commits take, as steps wait for them";
    let commits = METERS.commits.snapshot();
    families.add("stepgate_store_commit_duration_seconds", text, histogram(commits));
    let text = "How many writes share a transaction of the store";
    let batches = METERS.batch_writes.snapshot();
    families.add("stepgate_store_batch_writes", text, histogram(batches));
    let text = "Runs that this node took over from a node that is gone";
    families.add("stepgate_takeovers", text, counter(METERS.takeovers.load(Ordering::Relaxed)));
    let text = "Runs that recovery finished in this process";
    families.add(
        "stepgate_recovered_runs",
        text,
        counter(METERS.recovered.load(Ordering::Relaxed)),
    );
    let exports = METERS.exports.all().map(|(signal, outcome, count)| {
        let signal = ("signal", signal.as_str().to_owned());
        (vec![signal, ("outcome", outcome.to_owned())], count)
    });
    let text = "Spans, lines and metrics for the OTLP collector: sent, and dropped";
    families.add("stepgate_otlp_records", text, counters(exports));
}
