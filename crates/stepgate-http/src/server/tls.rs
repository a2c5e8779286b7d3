//! TLS for the listen address: a certificate and its key, reloaded when their files change.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{InconsistentKeys, ServerConfig, crypto::aws_lc_rs};
use stepgate_core::lock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{error, warn};
use x509_cert::der::Decode;
use x509_cert::time::Validity;

use super::wire;

/// Largest file of a certificate with its chain, or of a key.
const PEM_BYTES_MAX: u64 = 1024 * 1024;
/// How often to poll the files. A change is loaded only if two polls in a row see the same state, because one of the
/// two files may not be written yet.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Most bytes that are read after the answer from a client that does not use TLS.
const PLAIN_BYTES_MAX: u64 = 64 * 1024;
/// A certificate that ends earlier than this, and of whose life less than one part in [`RENEWED_PART`] is left, should have been
/// renewed. Those that live for days are renewed late.
const RENEWED_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
const RENEWED_PART: u32 = 3;
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// Where a certificate and its key are, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// The certificate, followed by its chain.
    pub certificate: PathBuf,
    /// The key of the certificate, in PEM.
    pub key: PathBuf,
}

/// The certificate in force.
pub struct Tls {
    files: PairFiles,
    loaded: RwLock<Loaded>,
    /// The state of the files before they were read.
    look: Look,
}

struct Loaded {
    acceptor: TlsAcceptor,
    life: Option<Validity>,
    warnings: Vec<String>,
}

impl Tls {
    /// Loads both files. Without them the gateway does not listen.
    pub fn load(files: PairFiles) -> anyhow::Result<Self> {
        let look = Look::at(&files);
        let loaded = RwLock::new(load(&files)?);
        Ok(Self { files, loaded, look })
    }

    /// Warnings for the operator about files that can still be used.
    pub fn warnings(&self) -> Vec<String> {
        lock::read(&self.loaded).warnings.clone()
    }

    /// What is wrong with the certificate's time, if anything is: it is not valid yet, or it ends soon and was not renewed. An
    /// expired one is among the warnings.
    pub fn trouble_at(&self, now: SystemTime) -> Option<String> {
        let (file, life) = (self.files.certificate.display(), lock::read(&self.loaded).life?);
        let [begins, ends] = [life.not_before, life.not_after].map(|at| at.to_system_time());
        if begins > now {
            let at = life.not_before;
            return Some(format!(
                "the certificate in `{file}` is valid from {at} on: check the clock"
            ));
        }
        let left = ends.duration_since(now).ok()?;
        let lifetime = ends.duration_since(begins).ok()?;
        let is_soon = left < RENEWED_BEFORE && left < lifetime / RENEWED_PART;
        is_soon.then(|| {
            let (at, days) = (life.not_after, left.as_secs() / (24 * 60 * 60));
            format!("the certificate in `{file}` ends at {at}, in {days} days: renew it")
        })
    }

    /// The certificate's file, and when the certificate expires.
    pub fn described(&self) -> String {
        described(&self.files, &lock::read(&self.loaded))
    }

    fn acceptor(&self) -> TlsAcceptor {
        lock::read(&self.loaded).acceptor.clone()
    }

    /// Makes the TLS handshake. None if the client disconnected without sending anything, as port checks do. A client
    /// that does not use TLS gets an answer that says so.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<Option<TlsStream<TcpStream>>> {
        let mut first = [0];
        match (stream.peek(&mut first).await?, first) {
            (0, _) => Ok(None),
            (_, [HANDSHAKE]) => self.acceptor().accept(stream).await.map(Some),
            (_, _) => Err(tell_of_tls(stream).await),
        }
    }
}

async fn tell_of_tls(mut stream: TcpStream) -> io::Error {
    let told = async {
        stream.write_all(wire::speaks_tls().as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with unread data would reset the connection, and the answer could be lost.
        tokio::io::copy(&mut stream.take(PLAIN_BYTES_MAX), &mut tokio::io::sink()).await
    };
    told.await.err().unwrap_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Polls the files. A pair that cannot be used leaves the previous one in force, and the operator is told once.
pub(super) async fn keep_renewing(tls: Arc<Tls>) {
    let mut renewal = Renewal::of(&tls);
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        let tls = Arc::clone(&tls);
        // In a blocking task: the file system may be slow or unreachable.
        let looked = tokio::task::spawn_blocking(move || {
            renewal.look_again(&tls).iter().for_each(|line| warn!("{line}"));
            renewal
        });
        renewal = match looked.await {
            Ok(renewal) => renewal,
            Err(error) => return error!("certificates are not renewed: {error}"),
        };
    }
}

struct Renewal {
    /// The state of the files in force.
    taken: Look,
    /// The state at the last poll.
    last: Look,
    /// The last error that was reported to the operator.
    told: Option<String>,
}

impl Renewal {
    fn of(tls: &Tls) -> Self {
        Self { taken: tls.look.clone(), last: tls.look.clone(), told: None }
    }

    /// Loads a pair that has changed. Returns the lines to log.
    fn look_again(&mut self, tls: &Tls) -> Vec<String> {
        let look = Look::at(&tls.files);
        let is_settled = look == self.last;
        self.last = look.clone();
        if look == self.taken {
            self.told = None;
            return Vec::new();
        }
        if !is_settled {
            return Vec::new();
        }
        match load(&tls.files) {
            Ok(loaded) => {
                let renewed = described(&tls.files, &loaded);
                let renewed = format!("certificate renewed: {renewed}, for new connections");
                let told = [renewed].into_iter().chain(loaded.warnings.clone()).collect();
                *lock::write(&tls.loaded) = loaded;
                (self.taken, self.told) = (look, None);
                told
            }
            // The next poll retries: perhaps the process only had too many files open.
            Err(error) => self.told_once(format!("{error:#}")),
        }
    }

    fn told_once(&mut self, error: String) -> Vec<String> {
        if self.told.as_ref() == Some(&error) {
            return Vec::new();
        }
        let kept = format!("certificate not renewed, the one before stays in force: {error}");
        self.told = Some(error);
        vec![kept]
    }
}

/// Metadata of the two files, to detect that one was written or replaced.
#[derive(Clone, PartialEq)]
struct Look([Option<Seen>; 2]);

#[derive(Clone, PartialEq)]
struct Seen {
    file: (u64, u64),
    length: u64,
    written_at: (i64, i64),
    changed_at: (i64, i64),
}

impl Look {
    fn at(files: &PairFiles) -> Self {
        Self([&files.certificate, &files.key].map(|file| {
            let metadata = file.metadata().ok()?;
            Some(Seen {
                file: (metadata.dev(), metadata.ino()),
                length: metadata.len(),
                written_at: (metadata.mtime(), metadata.mtime_nsec()),
                changed_at: (metadata.ctime(), metadata.ctime_nsec()),
            })
        }))
    }
}

fn described(files: &PairFiles, loaded: &Loaded) -> String {
    let file = files.certificate.display();
    match loaded.life {
        Some(life) => format!("`{file}`, which ends at {}", life.not_after),
        None => format!("`{file}`"),
    }
}

fn load(files: &PairFiles) -> anyhow::Result<Loaded> {
    let PairFiles { certificate: chain_file, key: key_file } = files;
    let chain = chain(chain_file)?;
    let (key, exposed) = key(key_file)?;
    let life = chain.first().and_then(life);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let usable = provider.key_provider.load_private_key(key.clone_key());
    usable.map_err(|error| anyhow!("`{}` is not a usable key: {error}", key_file.display()))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.map_err(|error| {
        let (chain, key) = (chain_file.display(), key_file.display());
        match error == rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
            true => anyhow!(
                "`{key}` is not the key of the certificate in `{chain}`: name the two files of one pair"
            ),
            false => anyhow!("`{chain}` cannot be used: {error}"),
        }
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let ended = life
        .map(|life| life.not_after)
        .filter(|ends_at| ends_at.to_system_time() < SystemTime::now());
    let ended = ended.map(|ended| {
        format!("the certificate in `{}` ended at {ended}: renew it", chain_file.display())
    });
    let warnings = exposed.into_iter().chain(ended).collect();
    Ok(Loaded { acceptor: TlsAcceptor::from(Arc::new(config)), life, warnings })
}

fn chain(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let (text, _) = read(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| anyhow!("`{}` is not PEM: {error}", file.display()))?;
    ensure!(!chain.is_empty(), "`{}` has no certificate in PEM", file.display());
    Ok(chain)
}

/// The key, and a warning if other users can read it.
fn key(file: &Path) -> anyhow::Result<(PrivateKeyDer<'static>, Option<String>)> {
    let (text, metadata) = read(file)?;
    let shown = file.display();
    let key = match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => key,
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            bail!(
                "`{shown}` has no private key in PEM: one with a password must be decrypted first"
            )
        }
        Err(error) => bail!("`{shown}` is not PEM: {error}"),
    };
    // If another user owns the key, group access may be how we were allowed to read it.
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let (mode, others) = (metadata.mode() & 0o777, if is_ours { 0o077 } else { 0o007 });
    let exposed = (mode & others != 0).then(|| {
        format!("the key in `{shown}` is open to others (mode {mode:o}): `chmod 600 {shown}`")
    });
    Ok((key, exposed))
}

fn read(file: &Path) -> anyhow::Result<(Vec<u8>, Metadata)> {
    let cannot = || format!("cannot read `{}`", file.display());
    // Checked before opening: opening a pipe would block until a writer opens it.
    ensure!(file.metadata().with_context(cannot)?.is_file(), "`{}` is not a file", file.display());
    let opened = File::open(file).with_context(cannot)?;
    let metadata = opened.metadata().with_context(cannot)?;
    let mut text = Vec::new();
    opened.take(PEM_BYTES_MAX + 1).read_to_end(&mut text).with_context(cannot)?;
    let is_small = text.len() as u64 <= PEM_BYTES_MAX;
    ensure!(is_small, "`{}` has more than {PEM_BYTES_MAX} bytes", file.display());
    Ok((text, metadata))
}

/// From when until when it is valid; none if it cannot be read. Clients, not we, decide whether a certificate is valid.
fn life(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate.validity)
}

#[cfg(test)]
mod tests;
