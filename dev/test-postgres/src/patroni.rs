//! Two PostgreSQL servers that Patroni keeps available: one of them writes, the other one follows, and an etcd says
//! which one writes. Commits wait for the one that follows.
//!
//! Patroni uses etcd's v2 interface. Over v3, 3.0.2 writes the leader key without looking whose it is: a primary that was
//! stopped and goes on takes it back, and what the other server has acknowledged is lost.
//!
//! A shell runs etcd and reads from a pipe of ours, which ends with this process: then it kills everything that names
//! the directory, and removes it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::programs::{self, Programs, as_server_user};
use crate::server::{directory, free_port, give, sql};

/// Patroni's smallest: how long the lock of the server that writes is good without a renewal.
pub const TTL: Duration = Duration::from_secs(20);

/// How long the servers may take to agree.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The directory is in the environment: `pkill` finds processes by their arguments, and must not find this shell.
const KEEPER: &str = r#"
etcd --enable-v2 --data-dir "$PLACE/etcd" --listen-client-urls "$CLIENTS" --advertise-client-urls "$CLIENTS" \
    --listen-peer-urls "$PEERS" --initial-advertise-peer-urls "$PEERS" --initial-cluster "default=$PEERS" \
    </dev/null >>"$PLACE/log" 2>&1 &
read -r farewell
pkill -KILL -f "$PLACE"
until rm -rf "$PLACE" 2>/dev/null; do sleep 0.1; done
"#;

/// Which port of a member others connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Where the other member and clients reach its PostgreSQL.
    Server,
    /// Where the other member asks how it is.
    Api,
    /// Where it reaches etcd itself.
    Etcd,
}

/// One server with the Patroni that runs it.
#[derive(Debug)]
struct Member {
    name: &'static str,
    port: u16,
    api: u16,
    patroni: Option<Child>,
}

/// The servers and their etcd. Dropping it stops everything and removes the directory.
#[derive(Debug)]
pub struct Patroni {
    programs: Programs,
    directory: PathBuf,
    members: [Member; 2],
    keeper: Child,
}

impl Patroni {
    /// Starts everything, and waits until commits wait for the server that follows. `way` gives, for a member and one
    /// of its ports, the port that is used instead: that of a proxy.
    pub fn start(mut way: impl FnMut(usize, Port, u16) -> u16) -> anyhow::Result<Self> {
        let (directory, etcd) = (directory()?, free_port()?);
        let mut keeper = as_server_user(Path::new("/bin/sh"))?;
        keeper.args(["-c", KEEPER]).env("PLACE", &directory).current_dir(&directory);
        keeper.env("CLIENTS", format!("http://127.0.0.1:{etcd}"));
        keeper.env("PEERS", format!("http://127.0.0.1:{}", free_port()?));
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let member = |name| -> anyhow::Result<Member> {
            Ok(Member { name, port: free_port()?, api: free_port()?, patroni: None })
        };
        let mut patroni = Self {
            programs: programs::find()?,
            // Not `first`: a word of PostgreSQL's own where Patroni writes the names down.
            members: [member("alpha")?, member("beta")?],
            keeper: keeper.spawn().context("cannot start etcd's keeper")?,
            directory,
        };
        until_decided(etcd)?;
        for index in 0..patroni.members.len() {
            patroni.configure(index, |port, number| way(index, port, number), etcd)?;
            patroni.resume(index)?;
        }
        patroni.until_replicated()?;
        Ok(patroni)
    }

    /// The ports of the two servers, without a proxy.
    pub fn ports(&self) -> [u16; 2] {
        self.members.each_ref().map(|member| member.port)
    }

    /// Runs SQL on one of the servers.
    pub fn sql(&self, index: usize, database: &str, text: &str) -> anyhow::Result<String> {
        sql(&self.programs, self.member(index)?.port, database, text)
    }

    /// Waits until exactly one server writes and its commits wait for the other one. Which one writes.
    pub fn until_replicated(&self) -> anyhow::Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let replicated = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            let state = |index| {
                let writes = self.sql(index, "postgres", "SELECT NOT pg_is_in_recovery()");
                (writes.ok(), self.sql(index, "postgres", replicated).ok())
            };
            let states @ [first, second] = &[state(0), state(1)];
            let writes = |one: &(Option<String>, Option<String>), other: &(Option<String>, _)| {
                (one.0.as_deref(), one.1.as_deref()) == (Some("t"), Some("1"))
                    && other.0.as_deref() == Some("f")
            };
            match (writes(first, second), writes(second, first)) {
                (true, _) => return Ok(0),
                (_, true) => return Ok(1),
                (false, false) => {}
            }
            ensure!(
                Instant::now() < deadline,
                "the servers do not agree: {states:?}\n{}",
                self.log()
            );
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Sends a signal to every process of a member: Patroni's and PostgreSQL's.
    pub fn signal(&self, index: usize, signal: Signal) -> anyhow::Result<()> {
        for process in self.processes(index)? {
            // One that has ended meanwhile needs no signal.
            let _sent = kill_process(process, signal);
        }
        Ok(())
    }

    /// Ends every process of a member at once, as when its machine loses power.
    pub fn crash(&mut self, index: usize) -> anyhow::Result<()> {
        while !self.processes(index)?.is_empty() {
            self.signal(index, Signal::KILL)?;
            if let Some(mut patroni) = self.member_mut(index)?.patroni.take() {
                patroni.wait()?;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Starts a member, for the first time or after [`Patroni::crash`].
    pub fn resume(&mut self, index: usize) -> anyhow::Result<()> {
        let place = self.place(index)?;
        let log = fs::File::options().create(true).append(true).open(place.join("log"))?;
        let mut patroni = as_server_user(Path::new("patroni"))?;
        // In a directory that its user can read.
        patroni.arg(place.join("patroni.yml")).env("HOME", &place).current_dir(&place);
        patroni.stdin(Stdio::null());
        patroni.stdout(log.try_clone()?).stderr(log);
        let patroni = patroni.spawn().context("cannot start Patroni")?;
        self.member_mut(index)?.patroni = Some(patroni);
        Ok(())
    }

    fn member(&self, index: usize) -> anyhow::Result<&Member> {
        self.members.get(index).context("there are two members")
    }

    fn member_mut(&mut self, index: usize) -> anyhow::Result<&mut Member> {
        self.members.get_mut(index).context("there are two members")
    }

    fn place(&self, index: usize) -> anyhow::Result<PathBuf> {
        Ok(self.directory.join(self.member(index)?.name))
    }

    fn configure(
        &self,
        index: usize,
        mut way: impl FnMut(Port, u16) -> u16,
        etcd: u16,
    ) -> anyhow::Result<()> {
        let place = self.place(index)?;
        fs::create_dir(&place)?;
        give(&place)?;
        let Member { name, port, api, .. } = self.member(index)?;
        let (by_server, by_api) = (way(Port::Server, *port), way(Port::Api, *api));
        let by_etcd = way(Port::Etcd, etcd);
        let programs = self.programs.path("");
        let (programs, shown) = (programs.display(), place.display());
        let ttl = TTL.as_secs();
        let configuration = format!(
            r#"scope: stepgate
name: {name}
restapi: {{listen: "127.0.0.1:{api}", connect_address: "127.0.0.1:{by_api}"}}
etcd: {{hosts: ["127.0.0.1:{by_etcd}"], use_proxies: true}}
bootstrap:
  dcs:
    ttl: {ttl}
    loop_wait: 1
    retry_timeout: 3
    primary_start_timeout: 0
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {{max_connections: 200, wal_keep_size: 256MB}}
  initdb: [{{auth: trust}}, {{encoding: UTF8}}, {{locale: C}}]
  pg_hba:
    - local all all trust
    - host all all 127.0.0.1/32 trust
    - host replication all 127.0.0.1/32 trust
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{by_server}"
  data_dir: "{shown}/data"
  bin_dir: "{programs}"
  pgpass: "{shown}/pgpass"
  parameters: {{unix_socket_directories: "{shown}"}}
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: postgres}}
    rewind: {{username: postgres}}
"#
        );
        fs::write(place.join("patroni.yml"), configuration)?;
        let log = place.join("log");
        fs::write(&log, "")?;
        give(&log)
    }

    /// The processes of a member: those that name its directory, and those that work there.
    fn processes(&self, index: usize) -> anyhow::Result<Vec<Pid>> {
        let place = self.place(index)?;
        let named = format!("{}/", place.display());
        let is_of_member = |process: &Path| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let works_there =
                fs::read_link(process.join("cwd")).is_ok_and(|it| it.starts_with(&place));
            works_there || String::from_utf8_lossy(&line).contains(&named)
        };
        let number = |process: &Path| process.file_name()?.to_str()?.parse().ok();
        let processes = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
        let found = processes.filter(|process| number(process).is_some() && is_of_member(process));
        Ok(found.filter_map(|process| Pid::from_raw(number(&process)?)).collect())
    }

    /// The end of both members' logs.
    fn log(&self) -> String {
        let end = |index: usize| {
            let log = self.place(index).and_then(|it| Ok(fs::read_to_string(it.join("log"))?));
            let text = log.unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(20).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        format!("{}\n\n{}", end(0), end(1))
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            let _ended = self.crash(index);
        }
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
    }
}

/// Waits until etcd knows the version of its cluster: while it says `not_decided`, Patroni ends at its start.
fn until_decided(port: u16) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let version = || -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /version HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    loop {
        let answer = version().unwrap_or_default();
        if answer.contains("etcdcluster") && !answer.contains("not_decided") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "etcd has no version: {answer}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Whether Patroni and etcd are installed.
pub fn has_patroni() -> bool {
    let is_there = |program: &str| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    is_there("patroni") && is_there("etcd")
}
