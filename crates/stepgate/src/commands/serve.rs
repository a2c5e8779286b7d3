//! `stepgate serve`: serves requests until it is stopped.

mod supervisor;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::json;
use stepgate_gateway::service::wait_until_set;
use stepgate_http::AccessLog;
use stepgate_http::server::{Endpoint, PairFiles, Tls, make_tokens};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::gateway::Gateway;
use super::{proposal, quoted};
use crate::cli::ServeArgs;
use crate::data_dir::DataDir;
use crate::show::{self, GOOD};
use supervisor::State;

pub(super) async fn serve(data: &DataDir, args: ServeArgs) -> anyhow::Result<()> {
    let log = if args.quiet { AccessLog::Silent } else { AccessLog::Lines };
    let mut data = data.clone();
    data.secrets.extend(args.tls_key.clone());
    let endpoint = endpoint(&data, args).await?;
    let gateway = Gateway::open(&data, Some(&endpoint), log).await?;
    let [operator, agent] = make_tokens(&gateway.service, data.root()).await?;
    let address = gateway.listeners.address()?.context("nothing is listened on")?;
    // Registered before the greeting: a program that reads the greeting may send a signal at once.
    let mut signals = Signals::listen()?;
    let url = format!("{}://{address}", endpoint.scheme().as_str());
    if data.global.json {
        show::json(&json!({
            "url": url,
            "data": std::path::absolute(data.root())?,
            "operator_token": operator,
            "agent_token": agent,
        }))?;
    } else {
        // A certificate is valid for a name, most likely the public one.
        let asked = match endpoint.tls {
            Some(_) => gateway.app.public_url.to_string(),
            None => url.clone(),
        };
        greet(&url, &asked, data.root(), &operator, &agent)?;
    }
    supervisor::tell(State::Ready);
    let mut broken = gateway.service.broken();
    let stop = async move {
        tokio::select! {
            () = signals.next() => {}
            () = wait_until_set(&mut broken) => {}
        }
        supervisor::tell(State::Stopping);
        tokio::spawn(async move {
            signals.next().await;
            std::process::exit(i32::from(super::FAULT));
        });
    };
    gateway.run(stop).await
}

/// Address and certificate, from the flags or else from the configuration.
async fn endpoint(data: &DataDir, args: ServeArgs) -> anyhow::Result<Endpoint> {
    let config = data.load_config()?.serve;
    let files = match (args.tls_certificate, args.tls_key) {
        (Some(certificate), Some(key)) => Some(PairFiles { certificate, key }),
        (Some(_), None) | (None, Some(_)) => bail!("--tls-certificate and --tls-key go together"),
        (None, None) => config.tls(&data.base())?,
    };
    let bind = args.bind.unwrap_or(config.bind);
    refuse_plaintext_bind(&bind, files.is_some() || args.insecure_bind).await?;
    let tls = files.map(Tls::load).transpose()?;
    tls.iter().flat_map(Tls::warnings).for_each(|line| warn!("{line}"));
    Ok(Endpoint { bind, tls: tls.map(Arc::new) })
}

/// Refuses an address that other machines can reach without TLS, unless --insecure-bind is set: tokens would be sent
/// in the clear.
async fn refuse_plaintext_bind(bind: &str, is_fine: bool) -> anyhow::Result<()> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(bind)
        .await
        .with_context(|| format!("`{bind}` is not an address: write it like `127.0.0.1:7420`"))?
        .collect();
    let is_here = addresses.iter().map(SocketAddr::ip).all(|ip| IpAddr::is_loopback(&ip));
    if !is_here && !is_fine {
        bail!(
            "`{bind}` can be reached from other machines, and nothing is encrypted: give it a \
             certificate with --tls-certificate and --tls-key, or insist with --insecure-bind"
        );
    }
    Ok(())
}

fn greet(url: &str, asked: &str, root: &Path, operator: &Path, agent: &Path) -> anyhow::Result<()> {
    let root = std::path::absolute(root)?;
    let agent = std::path::absolute(agent)?;
    let operator = std::path::absolute(operator)?;
    let proposal = proposal("LIST_FILES", json!({ "path": "/sandbox/" }), "a first look");
    show::say(format!(
        "{GOOD}stepgate{GOOD:#} listens on {url}\n\
         data     {}\n\
         tokens   {}\n         {}\n\
         console  {asked}/\n\
         try      curl -s {asked}/v1/steps -H \"Authorization: Bearer $(cat {})\" -d '{proposal}'\n\
         stop     Ctrl-C",
        root.display(),
        operator.display(),
        agent.display(),
        quoted(&agent.display().to_string()),
    ))
}

/// The two signals that ask a process to end: SIGINT and SIGTERM.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        info!("stopping: running steps finish first; once more to leave them to recovery");
    }
}
