//! The process, under the names that Prometheus's own clients use, and the build.

use std::fs;

use rustix::param;
use rustix::process::{Resource, getrlimit};

use super::families::{Families, counter, gauge, gauges};

/// Fields of `/proc/self/stat` after the name of the program, which stands in parentheses and may have spaces: see
/// proc_pid_stat(5), where the first of them is number 3.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;
const VIRTUAL_BYTES: usize = 20;
const RESIDENT_PAGES: usize = 21;

/// What cannot be read is left out.
pub(super) fn add(families: &mut Families) {
    if let Some(stat) = Stat::read() {
        let text = "Processor time that the process has used, in seconds";
        families.add("process_cpu_seconds", text, counter(stat.cpu_seconds));
        let text = "Memory that the process has in use, in bytes";
        families.add("process_resident_memory_bytes", text, gauge(stat.resident_bytes));
        let text = "Addresses that the process has reserved, in bytes";
        families.add("process_virtual_memory_bytes", text, gauge(stat.virtual_bytes));
        if let Some(at) = stat.start_time_seconds {
            let text = "When the process was started, in seconds since 1970";
            families.add("process_start_time_seconds", text, gauge(at));
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The directory itself is one of them while it is read.
        let count = open.count().saturating_sub(1);
        families.add("process_open_fds", "Open files and connections", gauge(count));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let text = "Most files and connections that may be open";
        families.add("process_max_fds", text, gauge(most));
    }
    let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
    let build = vec![version, ("arch", std::env::consts::ARCH.to_owned())];
    families.add("stepgate_build_info", "What was built; always 1", gauges([(build, true)]));
}

struct Stat {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    start_time_seconds: Option<f64>,
}

impl Stat {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok();
        let booted_at = boot.as_deref().and_then(booted_at);
        let pages = u64::try_from(param::page_size()).ok()?;
        Self::parse(&stat, param::clock_ticks_per_second(), pages, booted_at)
    }

    fn parse(stat: &str, ticks: u64, page_bytes: u64, booted_at: Option<u64>) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let seconds = |of: u64| seconds(of, ticks);
        Some(Self {
            cpu_seconds: seconds(number(USER_TICKS)?.saturating_add(number(SYSTEM_TICKS)?)),
            virtual_bytes: number(VIRTUAL_BYTES)?,
            resident_bytes: number(RESIDENT_PAGES)?.saturating_mul(page_bytes),
            start_time_seconds: booted_at
                .zip(number(START_TICKS))
                .map(|(boot, start)| seconds(boot.saturating_mul(ticks).saturating_add(start))),
        })
    }
}

/// When the machine was started, in seconds since 1970.
fn booted_at(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[expect(clippy::cast_precision_loss, reason = "figures are shown as 64-bit floats")]
fn seconds(of: u64, ticks: u64) -> f64 {
    of as f64 / ticks.max(1) as f64
}

#[cfg(test)]
mod tests;
