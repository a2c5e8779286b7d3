//! The tokens that the first `serve` creates: one for an operator and one for an agent, each in a file that only the
//! owner can read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use stepgate_core::ids::PrincipalId;
use stepgate_gateway::durable;
use stepgate_gateway::service::Service;
use stepgate_gateway::tokens::{Maker, NewToken, Role};

/// Creates the tokens that do not exist yet, and returns the paths of both. Never changes an existing file.
pub async fn make_tokens(service: &Service, root: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let mut files = [PathBuf::new(), PathBuf::new()];
    for (role, file) in [Role::Operator, Role::Agent].into_iter().zip(&mut files) {
        *file = root.join(format!("{}.token", role.as_str()));
        if !file.exists() {
            let new = NewToken {
                principal_id: PrincipalId::parse(role.as_str())?,
                role,
                maker: Maker::Start,
                life_s: None,
            };
            let (_, secret) = service.tokens.create(&service.gate, new).await?;
            write(file, secret.reveal())
                .with_context(|| format!("cannot write `{}`", file.display()))?;
        }
    }
    Ok(files)
}

/// Writes a file atomically, and never replaces an existing one.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let temporary = file.with_extension("token.new");
    // Left over from an interrupted start; the token in it was never used.
    let _ = fs::remove_file(&temporary);
    durable::write_new(&temporary, format!("{text}\n").as_bytes())?;
    fs::hard_link(&temporary, file)?;
    fs::remove_file(&temporary)?;
    durable::sync_names(file.parent())
}
