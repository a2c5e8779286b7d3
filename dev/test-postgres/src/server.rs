//! One server with its directory.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::programs::{self, Programs, User, as_server_user};

/// How long a server may take to answer, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Runs the server, waits for the end of its input, stops the server and removes the directory.
/// The input ends when this process ends. SIGQUIT: nobody will look at the data any more.
const KEEPER: &str = r#"
cd "$1" || exit 1
"$2" -D "$1/data" -k "$1" -c config_file="$1/postgresql.conf" </dev/null >>"$1/log" 2>&1 &
server=$!
read -r farewell
case "$farewell" in
    keep) wait "$server" ;;
    *) kill -QUIT "$server" 2>/dev/null; wait "$server"; cd /; rm -rf "$1" ;;
esac
"#;

/// How a server is set up.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Lines of its configuration, over the defaults.
    pub lines: Vec<String>,
    /// Variables of its environment, beside those of this process.
    pub variables: Vec<(&'static str, OsString)>,
    /// Where the programs of another version are (`bin`, `lib`, `share`); without it, those of [`crate::find`].
    pub version: Option<PathBuf>,
}

/// A running server. Dropping it stops it and removes its directory.
#[derive(Debug)]
pub struct Cluster {
    programs: Programs,
    /// Beneath a directory that the keeper removes.
    directory: PathBuf,
    port: u16,
    variables: Vec<(&'static str, OsString)>,
    keeper: Option<Child>,
    databases: AtomicU32,
}

impl Cluster {
    /// Makes a cluster and starts its server. It listens on a Unix socket in its directory and on a
    /// port of the loopback interface; the user is `postgres` without a password.
    pub fn start(settings: &Settings) -> anyhow::Result<Self> {
        Self::begin(settings, Self::initialize)
    }

    /// Makes a copy of this cluster that follows it, and starts its server, which only reads until it is
    /// promoted. This one goes on meanwhile, and does not wait for the copy unless it is told to.
    pub fn replica(&self, settings: &Settings) -> anyhow::Result<Self> {
        let next = self.databases.load(Ordering::Relaxed);
        Self::begin(settings, |replica| {
            replica.databases = AtomicU32::new(next);
            replica.copy(self.port)
        })
    }

    /// Makes the server of a replica one that writes.
    pub fn promote(&self) -> anyhow::Result<()> {
        let promoted = self.sql("postgres", "SELECT pg_promote(true, 60)")?;
        ensure!(promoted == "t", "the replica was not promoted in time");
        Ok(())
    }

    fn begin(
        settings: &Settings,
        make: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let directory = directory()?;
        let programs = match &settings.version {
            Some(version) => programs::copy(version, &directory.join("programs"))?,
            None => programs::find()?,
        };
        let mut cluster = Self {
            programs,
            directory,
            port: 0,
            variables: settings.variables.clone(),
            keeper: None,
            databases: AtomicU32::new(0),
        };
        let made = make(&mut cluster)
            .and_then(|()| cluster.configure(settings))
            .and_then(|()| cluster.resume());
        match made {
            Ok(()) => Ok(cluster),
            Err(error) => {
                let log = cluster.log();
                // Whoever failed before there was a keeper cleans up itself.
                let _removed = fs::remove_dir_all(&cluster.directory);
                Err(error.context(format!("PostgreSQL did not start; its log says: {log}")))
            }
        }
    }

    /// The URL of a database on the loopback interface.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a database over the Unix socket.
    pub fn socket_url(&self, database: &str) -> String {
        let host = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}:{}/{database}", self.port)
    }

    /// The port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the server keeps everything; its own user can read it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// PostgreSQL's programs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Makes an empty database with a name of its own, and says the name.
    pub fn database(&self) -> anyhow::Result<String> {
        let name = format!("db{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(name)
    }

    /// Runs SQL as the superuser, one statement or several, and answers what `psql` prints.
    pub fn sql(&self, database: &str, text: &str) -> anyhow::Result<String> {
        sql(&self.programs, self.port, database, text)
    }

    /// Sends a signal to the server's first process. SIGKILL there ends all others too.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid()?, signal).context("cannot signal the server")
    }

    /// Ends the server's first process at once, as a crash does, and waits until nothing of it is
    /// left. The data stays.
    pub fn crash(&mut self) -> anyhow::Result<()> {
        self.end(Signal::KILL)
    }

    /// Stops the server in an orderly way, cutting connections off. The data stays.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.end(Signal::INT)
    }

    /// Starts the server again after [`Cluster::crash`] or [`Cluster::stop`], on the same port.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        ensure!(self.keeper.is_none(), "the server is running");
        // What a killed server leaves behind would be taken for a running one.
        let _stale = fs::remove_file(self.directory.join("data/postmaster.pid"));
        let mut keeper = as_server_user(Path::new("/bin/sh"))?;
        keeper.args(["-c", KEEPER, "sh"]).arg(&self.directory).arg(self.programs.path("postgres"));
        keeper.envs(self.variables.iter().map(|(name, value)| (name, value)));
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.keeper = Some(keeper.spawn().context("cannot start the server's keeper")?);
        self.until_ready()
    }

    /// Starts the server again where it gave up by itself; elsewhere waits until it answers.
    pub fn revive(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.sql("postgres", "SELECT 1").is_err() {
            if !self.has_processes()? {
                self.dismiss()?;
                return self.resume();
            }
            ensure!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn initialize(&mut self) -> anyhow::Result<()> {
        let mut initdb = self.programs.command("initdb")?;
        initdb.arg("--pgdata").arg(self.directory.join("data"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "--no-instructions"]).current_dir(&self.directory);
        let output = initdb.output().context("cannot run initdb")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "initdb: {said}");
        Ok(())
    }

    fn copy(&mut self, port: u16) -> anyhow::Result<()> {
        let mut copying = self.programs.command("pg_basebackup")?;
        copying.arg("--pgdata").arg(self.directory.join("data")).arg(format!("--port={port}"));
        copying.args(["--host=127.0.0.1", "--username=postgres", "--checkpoint=fast"]);
        copying.args(["--write-recovery-conf", "--no-sync"]).current_dir(&self.directory);
        let output = copying.output().context("cannot run pg_basebackup")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "pg_basebackup: {said}");
        Ok(())
    }

    fn configure(&mut self, settings: &Settings) -> anyhow::Result<()> {
        self.port = free_port()?;
        let mut lines = vec![
            format!("port = {}", self.port),
            "listen_addresses = '127.0.0.1'".to_owned(),
            format!("data_directory = '{}'", self.directory.join("data").display()),
            format!("hba_file = '{}'", self.directory.join("data/pg_hba.conf").display()),
            "max_connections = 200".to_owned(),
            "log_min_messages = fatal".to_owned(),
        ];
        lines.extend(settings.lines.iter().cloned());
        let configuration = self.directory.join("postgresql.conf");
        fs::write(&configuration, lines.join("\n") + "\n")?;
        give(&configuration)
    }

    fn until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.sql("postgres", "SELECT 1").is_err() {
            let keeper = self.keeper.as_mut().context("no keeper")?;
            if let Some(status) = keeper.try_wait()? {
                bail!("the server ended: {status}");
            }
            ensure!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        let file = self.directory.join("data/postmaster.pid");
        let text = fs::read_to_string(&file).context("the server does not run")?;
        let number = text.lines().next().and_then(|line| line.trim().parse().ok());
        number.and_then(Pid::from_raw).context("the server's pid file is no pid file")
    }

    fn end(&mut self, signal: Signal) -> anyhow::Result<()> {
        if self.keeper.is_none() {
            return Ok(());
        }
        self.signal(signal)?;
        self.dismiss()?;
        // Children of a killed server notice by themselves, and hold its memory until then.
        let deadline = Instant::now() + PATIENCE;
        while self.has_processes()? {
            ensure!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Lets the keeper of a server go that has ended or will, and leaves the data.
    fn dismiss(&mut self) -> anyhow::Result<()> {
        let Some(mut keeper) = self.keeper.take() else { return Ok(()) };
        if let Some(mut input) = keeper.stdin.take() {
            std::io::Write::write_all(&mut input, b"keep\n")?;
        }
        keeper.wait()?;
        Ok(())
    }

    /// Whether any process still works in the data directory.
    fn has_processes(&self) -> anyhow::Result<bool> {
        let data = self.directory.join("data");
        let processes = fs::read_dir("/proc")?.flatten();
        Ok(processes.into_iter().any(|process| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|directory| directory == data)
        }))
    }

    fn log(&self) -> String {
        let mut text = String::new();
        let log = fs::File::open(self.directory.join("log"));
        // Without a log there is nothing to add to the error.
        let _read = log.and_then(|mut log| log.read_to_string(&mut text));
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        match self.keeper.take() {
            Some(mut keeper) => {
                drop(keeper.stdin.take());
                let _ended = keeper.wait();
            }
            None => {
                let _removed = fs::remove_dir_all(&self.directory);
            }
        }
    }
}

/// Runs SQL as the superuser of the server at this port, and answers what `psql` prints.
pub(crate) fn sql(
    programs: &Programs,
    port: u16,
    database: &str,
    text: &str,
) -> anyhow::Result<String> {
    let mut psql = Command::new(programs.path("psql"));
    psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
    psql.args(["--set=ON_ERROR_STOP=1", "--host=127.0.0.1", "--username=postgres"]);
    psql.arg(format!("--port={port}")).arg(format!("--dbname={database}"));
    // A server that is stopped or cut off takes connections and never answers.
    psql.env("PGCONNECT_TIMEOUT", "10");
    let output = psql.arg(format!("--command={text}")).output().context("cannot run psql")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "`{text}`: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A port of the loopback interface that is free now. Another process may take it before the server does; then the
/// server says so, and the test fails.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A directory for a cluster, which the server's user owns. The path is short: a socket's may have no
/// more than 107 bytes.
pub(crate) fn directory() -> anyhow::Result<PathBuf> {
    let directory = tempfile::Builder::new().prefix("stepgate-pg-").tempdir()?.keep();
    give(&directory)?;
    Ok(directory)
}

/// Gives a file to the server's user.
pub(crate) fn give(path: &Path) -> anyhow::Result<()> {
    if programs::is_root() {
        let User { uid, gid } = programs::server_user()?;
        chown(path, Some(uid), Some(gid))
            .with_context(|| format!("cannot give away `{}`", path.display()))?;
    }
    Ok(())
}
