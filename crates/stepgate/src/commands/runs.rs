//! `stepgate runs`: what happened, as a list, as a timeline, as a bundle.

use anyhow::{Context, bail};
use stepgate_core::bundle::{Bundle, RunObject};
use stepgate_core::ids::RunId;
use stepgate_core::ports::{Dossier, RunQuery, Store};
use stepgate_core::run::{Run, Status};

use crate::cli::{ListArgs, OneRun, RunsArgs, RunsCommand};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, timeline};

pub(super) async fn runs(data: &DataDir, args: RunsArgs, json: bool) -> anyhow::Result<u8> {
    let store = data.read()?;
    match args.command {
        None => list(&*store, args.list, json).await?,
        Some(RunsCommand::Show(one)) => {
            let dossier = dossier(&*store, &one).await?;
            if json {
                show::json(&timeline::object(&dossier)?)?;
            } else {
                timeline::print(&dossier)?;
            }
        }
        Some(RunsCommand::Export(one)) => {
            let bundle = Bundle::of(&dossier(&*store, &one).await?)?;
            show::json(&bundle)?;
        }
    }
    Ok(0)
}

async fn list(store: &dyn Store, args: ListArgs, json: bool) -> anyhow::Result<()> {
    let query = RunQuery {
        principal_id: None,
        before: args.before,
        session_id: args.session,
        status: args.status.as_deref().and_then(Status::parse),
        tool_name: args.tool,
        limit: usize::try_from(args.limit)?,
    };
    let runs = store.runs(query).await?;
    if json {
        for run in &runs {
            show::json(&RunObject::of(run))?;
        }
        return Ok(());
    }
    if runs.is_empty() {
        return show::say("no runs");
    }
    let mut table = Table::new(["RUN", "TIME", "STEP", "TOOL", "STATUS", "MS", "WHAT"]);
    for run in &runs {
        table.add(row(run));
    }
    show::say(table)
}

fn row(run: &Run) -> [Cell; 7] {
    const WHAT_CHARS_MAX: usize = 48;
    let what = match &run.input_json {
        Some(input) => input.clone(),
        None => String::from_utf8_lossy(&run.arrival.payload.bytes).into_owned(),
    };
    let latency = run.ending.as_ref().map(|ending| ending.latency_ms.to_string());
    [
        Cell::plain(run.arrival.run_id),
        Cell::plain(run.arrival.received_at),
        Cell::plain(run.arrival.step_index),
        Cell::plain(show::printable(run.tool_name.as_deref().unwrap_or("-"))),
        show::status(run.status),
        Cell::plain(latency.as_deref().unwrap_or("-")),
        Cell::plain(show::shortened(&show::printable(&what), WHAT_CHARS_MAX)),
    ]
}

async fn dossier(store: &dyn Store, one: &OneRun) -> anyhow::Result<Dossier> {
    let run_id: RunId = if one.run == "last" {
        let newest = store.run_ids(None, 1).await?;
        *newest.first().context("there is no run yet")?
    } else {
        one.run.parse()?
    };
    match store.dossier(run_id).await? {
        Some(dossier) => Ok(dossier),
        None => bail!("there is no run {run_id}: `stepgate runs` lists them"),
    }
}
