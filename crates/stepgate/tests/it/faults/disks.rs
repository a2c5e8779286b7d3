//! One gateway with SQLite on a disk that is full, or that does not keep what it was given.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::check::{compare, settle, until, verify};
use super::load::Load;
use super::shim::Shim;
use super::stage::{Front, Tools, start_logged};
use super::{Fault, OUTCOMES, Tally};
use crate::binary::{Output, Place};
use crate::disk::SmallDisk;
use crate::http_client::Gateway;

/// A disk that can be full.
enum Disk {
    /// A small file system of its own.
    Small(SmallDisk),
    /// Where nothing can be mounted: files that do not grow.
    Shim(Shim, Place),
}

impl Disk {
    fn new() -> Self {
        match SmallDisk::mount() {
            Some(small) => Self::Small(small),
            None => {
                println!("no mount namespace here: calls that fail stand for a full disk");
                let shim = Shim::new();
                let place = Place::with(shim.variables());
                Self::Shim(shim, place)
            }
        }
    }

    fn data(&self) -> PathBuf {
        match self {
            Self::Small(disk) => disk.path("data"),
            Self::Shim(_, place) => place.path(),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        match self {
            Self::Small(disk) => disk.command(args),
            Self::Shim(_, place) => place.command(args),
        }
    }

    fn fill(&self) {
        match self {
            Self::Small(disk) => disk.fill(0),
            Self::Shim(shim, place) => shim.fill(&place.path()),
        }
    }

    fn free(&self) {
        match self {
            Self::Small(disk) => fs::remove_file(disk.path("filler")).unwrap(),
            Self::Shim(shim, _) => shim.clear(),
        }
    }
}

/// One gateway that is started again where it was.
struct Single {
    tools: Tools,
    around: TempDir,
    gateway: Gateway,
    data: PathBuf,
}

impl Single {
    fn start(data: &Path, mut command: impl FnMut(&[&str]) -> Command) -> Self {
        let (tools, around) = (Tools::new(), TempDir::new().unwrap());
        fs::create_dir_all(data).unwrap();
        tools.configure(data);
        let mut command = command(&["serve", "--quiet", "--bind", "127.0.0.1:0"]);
        let gateway = start_logged(&mut command, &around.path().join("log"), data);
        Self { tools, around, gateway, data: data.to_owned() }
    }

    fn restart(&mut self, mut command: impl FnMut(&[&str]) -> Command) {
        let address = self.gateway.address.to_string();
        let mut command = command(&["serve", "--quiet", "--bind", &address]);
        self.gateway = start_logged(&mut command, &self.around.path().join("log"), &self.data);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.around.path().join("log")).unwrap()
    }

    fn front(&self) -> Front {
        Front {
            addresses: vec![self.gateway.address],
            agent: self.gateway.agent.clone(),
            operator: self.gateway.operator.clone(),
            sandbox: self.data.join("sandbox"),
            may_be_full: true,
        }
    }

    /// Lets the clients go home, and looks at what is left.
    fn take_stock(&self, tally: &mut Tally, load: Load, verified: impl FnOnce() -> Output) {
        load.until_each_had(OUTCOMES);
        tally.take(1, load.end(), |harvest| {
            settle(&self.front());
            compare(&self.front(), &self.tools, harvest)
        });
        verify(&verified());
    }
}

pub(super) fn a_gateway_on_a_full_disk_goes_on_when_there_is_room() {
    let mut tally = Tally::default();
    for round in 0..Fault::SqliteFull.rounds() {
        let disk = Disk::new();
        let single = Single::start(&disk.data(), |args| disk.command(args));
        let load = Load::begin(&single.front(), &round.to_string());
        load.until_each_had(OUTCOMES);
        disk.fill();
        until("nobody says that the disk is full", || single.log().contains("disk full"));
        disk.free();
        let verified = || crate::binary::finish(&mut disk.command(&["verify"]), b"");
        single.take_stock(&mut tally, load, verified);
    }
    tally.report(Fault::SqliteFull);
}

/// What was not made durable may be gone whatever is done next, so the process ends and recovery decides.
pub(super) fn a_gateway_whose_fsync_fails_ends_and_the_next_one_recovers() {
    let mut tally = Tally::default();
    let shim = Shim::new();
    let variables: Vec<(&'static str, OsString)> = shim.variables();
    let place = Place::with(variables);
    let mut single = Single::start(&place.path(), |args| place.command(args));
    for round in 0..Fault::SqliteFsync.rounds() {
        let load = Load::begin(&single.front(), &round.to_string());
        load.until_each_had(OUTCOMES);
        shim.break_fsync(&place.path());
        let mut ended = None;
        until("it goes on without its disk", || {
            ended = single.gateway.child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(1), "{}", single.log());
        assert!(shim.hits() > 0, "nothing was asked of the disk");
        assert!(single.log().contains("the store cannot go on"), "{}", single.log());
        shim.clear();
        single.restart(|args| place.command(args));
        single.take_stock(&mut tally, load, || place.stepgate(["verify"], ""));
    }
    tally.report(Fault::SqliteFsync);
}
