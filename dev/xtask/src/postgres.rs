//! PostgreSQL for the tests, which start servers of their own: only the programs are needed.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::apt;

/// Debian makes a cluster and starts it when the package comes, unless this file says otherwise.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/stepgate.conf";

/// Installs PostgreSQL where it is missing, without a cluster of the system's.
pub(crate) fn install() -> anyhow::Result<()> {
    if stepgate_test_postgres::find().is_ok() {
        return Ok(());
    }
    let by_hand = "install PostgreSQL by hand, or run this command as root on Debian";
    let file = Path::new(NO_CLUSTER);
    let was_there = file.exists();
    if !was_there {
        let directory = file.parent().context("no directory")?;
        fs::create_dir_all(directory).context(by_hand)?;
        fs::write(file, "create_main_cluster = false\n").context(by_hand)?;
    }
    let installed = apt::install("PostgreSQL, which the tests start (once)", &["postgresql"]);
    let installed = installed.context(by_hand);
    if !was_there {
        fs::remove_file(file).with_context(|| format!("cannot remove `{NO_CLUSTER}`"))?;
    }
    installed?;
    stepgate_test_postgres::find().map(drop)
}

/// Installs Patroni and etcd where they are missing. The tests start their own.
pub(crate) fn install_patroni() -> anyhow::Result<()> {
    if stepgate_test_postgres::has_patroni() {
        return Ok(());
    }
    apt::install("Patroni and etcd, which the tests start (once)", &["patroni", "etcd-server"])
        .context("install Patroni and etcd by hand, or run this command as root on Debian")
}
