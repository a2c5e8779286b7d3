//! A gateway with a data directory of its own, started as people start it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// What is read; small, so that the step is the cost and not the file.
pub(super) const CONTENT: &str = "The quick brown fox jumps over the lazy dog.\n";

/// How long a node may take to end.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Who is asked before a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Nobody,
    Person,
}

impl Policy {
    fn text(self) -> &'static str {
        match self {
            Self::Nobody => r#"@id("all") permit (principal, action in Action::"core", resource);"#,
            Self::Person => {
                r#"@id("ask") @approval("everything is asked")
                   permit (principal, action in Action::"core", resource);"#
            }
        }
    }
}

/// A process that serves. It ends when it goes out of sight.
pub(super) struct Node {
    child: Child,
    pub(super) data: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) agent: String,
    pub(super) operator: String,
}

impl Node {
    /// Starts one in this directory, on this PostgreSQL or with a store in the directory.
    pub(super) fn start(
        stepgate: &Path,
        data: &Path,
        store: Option<&str>,
        policy: Policy,
    ) -> anyhow::Result<Self> {
        Self::start_with(stepgate, data, store, policy, "")
    }

    /// The same, with these lines in its configuration.
    pub(super) fn start_with(
        stepgate: &Path,
        data: &Path,
        store: Option<&str>,
        policy: Policy,
        more: &str,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(data.join("policies"))?;
        fs::create_dir_all(data.join("sandbox"))?;
        fs::write(data.join("sandbox/read.txt"), CONTENT)?;
        fs::write(data.join("policies/all.cedar"), policy.text())?;
        let limits = "[serve]\nrequests_per_second_max = 1000000\nrequests_burst_max = 1000000\n";
        fs::write(data.join("stepgate.toml"), [limits, more].concat())?;
        let mut serve = Command::new(stepgate);
        serve.env_clear().arg("--data").arg(data);
        if let Some(url) = store {
            let name = data.file_name().unwrap_or_default();
            serve.env("STEPGATE_STORE", url).env("STEPGATE_STORE_NODE_ID", name);
        }
        serve.args(["serve", "--bind", "127.0.0.1:0", "--quiet"]);
        let log = data.join("stderr");
        serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = serve.spawn()?;
        let greeting = greeting(&mut child)?;
        let address = greeting.split("http://").nth(1);
        let address = address.with_context(|| {
            format!("it does not serve: {}", fs::read_to_string(&log).unwrap_or_default())
        })?;
        let token = |role: &str| -> anyhow::Result<String> {
            Ok(fs::read_to_string(data.join(format!("{role}.token")))?.trim().to_owned())
        };
        Ok(Self {
            address: address.trim().parse()?,
            agent: token("agent")?,
            operator: token("operator")?,
            data: data.to_owned(),
            child,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it in an orderly way: it gives its lease back, and closes its connections.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(asked.elapsed() < STOP_MAX, "a node does not end");
            thread::sleep(Duration::from_millis(20));
        };
        ensure!(status.success(), "a node ended with {status}");
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line; the rest is read and dropped.
fn greeting(child: &mut Child) -> anyhow::Result<String> {
    let mut output = BufReader::new(child.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok(line)
}
