//! Syslog servers: rsyslog, and one that a test holds in its hands.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;

use crate::scene::until;
use crate::tls::authority::Authority;

/// One message, as rsyslog understood it.
pub(super) struct Message {
    pub(super) priority: String,
    pub(super) program: String,
    pub(super) id: String,
    pub(super) event: Value,
}

/// A real rsyslog that speaks TLS and writes what it gets to a file. It is killed with this value.
pub(super) struct Rsyslog {
    directory: TempDir,
    process: Child,
    pub(super) port: u16,
}

impl Rsyslog {
    pub(super) fn start(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        authority.issue("DNS:localhost", 2, directory.path());
        fs::copy(authority.certificate(), directory.path().join("ca.pem")).unwrap();
        let process = begin(&directory, 0);
        let mut rsyslog = Self { directory, process, port: 0 };
        let port =
            || fs::read_to_string(rsyslog.file("port")).unwrap_or_default().trim().parse().ok();
        until("rsyslog has a port", || port().is_some());
        rsyslog.port = port().unwrap();
        rsyslog
    }

    /// Kills it, and starts it again at the same port.
    pub(super) fn restart(&mut self) {
        self.kill();
        fs::remove_file(self.file("pid")).unwrap();
        self.process = begin(&self.directory, self.port);
        until("rsyslog listens again", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    pub(super) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        let text = fs::read_to_string(self.file("messages")).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| message(line.trim_end())).collect()
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        self.kill();
    }
}

fn begin(directory: &TempDir, port: u16) -> Child {
    let path = directory.path().display();
    let config = format!(
        "global(workDirectory=\"{path}\" maxMessageSize=\"256k\"\n\
         defaultNetstreamDriverCAFile=\"{path}/ca.pem\"\n\
         defaultNetstreamDriverCertFile=\"{path}/gate.pem\"\n\
         defaultNetstreamDriverKeyFile=\"{path}/gate.key\")\n\
         module(load=\"imtcp\" StreamDriver.Name=\"ossl\" StreamDriver.Mode=\"1\"\n\
         StreamDriver.AuthMode=\"anon\")\n\
         input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\" listenPortFileName=\"{path}/port\")\n\
         template(name=\"parts\" type=\"string\"\n\
         string=\"%pri-text% %app-name% %msgid% %msg%\\n\")\n\
         action(type=\"omfile\" file=\"{path}/messages\" template=\"parts\")\n"
    );
    fs::write(directory.path().join("rsyslog.conf"), config).unwrap();
    let mut command = Command::new("/usr/sbin/rsyslogd");
    command.arg("-n").arg("-f").arg(directory.path().join("rsyslog.conf"));
    command.arg("-i").arg(directory.path().join("pid"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn message(line: &str) -> Message {
    let mut parts = line.splitn(4, ' ').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_else(|| panic!("{line}"));
    let (priority, program, id, text) = (next(), next(), next(), next());
    let event = serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("{line}"));
    Message { priority, program, id, event }
}

/// A server over TCP that ends each connection after its first bytes, and loses them, until it is told to be honest.
pub(super) struct Liar {
    pub(super) port: u16,
    state: Arc<Mutex<(bool, Vec<u8>)>>,
}

impl Liar {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new((false, Vec::new())));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let mut part = [0; 4096];
                    // What comes over one connection is together: others are cut off in the middle of a message.
                    let mut bytes = Vec::new();
                    while let Ok(count @ 1..) = stream.read(&mut part) {
                        bytes.extend_from_slice(&part[..count]);
                        let mut state = shared.lock().unwrap();
                        if !state.0 {
                            return;
                        }
                        state.1.clone_from(&bytes);
                    }
                });
            }
        });
        Self { port, state }
    }

    pub(super) fn be_honest(&self) {
        self.state.lock().unwrap().0 = true;
    }

    /// The events of the newest connection: a length, a space, and as many bytes of a message.
    pub(super) fn events(&self) -> Vec<Value> {
        let bytes = self.state.lock().unwrap().1.clone();
        let (mut rest, mut events) = (bytes.as_slice(), Vec::new());
        while let Some(space) = rest.iter().position(|byte| *byte == b' ') {
            let length: usize = std::str::from_utf8(&rest[..space]).unwrap().parse().unwrap();
            let Some(message) = rest.get(space + 1..space + 1 + length) else { break };
            let message = std::str::from_utf8(message).unwrap();
            assert!(message.starts_with('<'), "{message}");
            let (_, text) = message.split_once(" - {").unwrap();
            events.push(serde_json::from_str(&format!("{{{text}")).unwrap());
            rest = &rest[space + 1 + length..];
        }
        events
    }
}
