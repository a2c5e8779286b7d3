//! The page that a run of these tests writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use super::Fault;
use super::check::Found;
use crate::docs::root;

/// Everything on the page but its table, which stands in the place of `{table}`.
pub(crate) const PAGE: &str = include_str!("page.md");

/// What a fault came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) times: usize,
    pub(super) found: Found,
    pub(super) longest_pause: Duration,
}

static ROWS: Mutex<BTreeMap<Fault, Row>> = Mutex::new(BTreeMap::new());

/// Adds a fault, and writes the page with what is known so far. It becomes the documentation where that is asked
/// for (`STEPGATE_BLESS=1`) and nothing is missing.
pub(super) fn add(fault: Fault, row: Row) {
    let mut rows = ROWS.lock().unwrap();
    rows.insert(fault, row);
    let page = PAGE.replace("{table}", &table(&rows));
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults.md"), &page).unwrap();
    let is_whole = rows.len() == Fault::ALL.len();
    if is_whole && std::env::var_os("STEPGATE_BLESS").is_some() {
        fs::write(root().join("docs/faults.md"), &page).unwrap();
    }
    if is_whole {
        println!("{}", table(&rows));
    }
}

fn table(rows: &BTreeMap<Fault, Row>) -> String {
    let mut text = String::from(
        "| fault | times | steps | lost | repeated | sent again | longest pause |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (fault, Row { times, found, longest_pause }) in rows {
        let Found { steps, lost, repeated, sent_again } = found;
        let (name, seconds) = (fault.name(), longest_pause.as_secs_f64());
        text += &format!(
            "| {name} | {times} | {steps} | {lost} | {repeated} | {sent_again} | {seconds:.1} s |\n"
        );
    }
    let processors = std::thread::available_parallelism().unwrap();
    text + &format!("\nOn {processors} processors ({}), a debug build.", std::env::consts::ARCH)
}
