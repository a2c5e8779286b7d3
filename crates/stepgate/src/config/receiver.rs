//! What `[[notify]]` and `[[audit]]` have in common: names, addresses and limits.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use axum::http::Uri;
use stepgate_exec::servers::Secret;

use super::secret::{Beside, SecretConfig};

/// Longest time for one try: five minutes.
pub(super) const TIMEOUT_CEILING_MS: u64 = 5 * 60 * 1000;
/// Time for one try where the configuration names none.
pub(super) const TIMEOUT_MS: u64 = 10_000;
/// Most of a kind: each has a task of its own.
const COUNT_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 64;

/// Refuses names that cannot be, or that are there twice.
pub(super) fn check_names<'a>(
    table: &str,
    names: impl Iterator<Item = &'a str>,
) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        ensure!(
            is_name(name),
            "`{name}` is no name of a {table}: use lower-case letters, digits, `-` and `_`, at most {NAME_BYTES_MAX}"
        );
        ensure!(seen.insert(name), "two {table} have the name `{name}`");
    }
    ensure!(seen.len() <= COUNT_MAX, "there are more than {COUNT_MAX} {table}");
    Ok(())
}

fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_fine)
}

/// The address: one that everybody may read, or one that is a secret.
pub(super) fn address(
    url: Option<&str>,
    secret_url: Option<&SecretConfig>,
    beside: Beside<'_>,
) -> anyhow::Result<Secret> {
    match (url, secret_url) {
        (Some(url), None) => {
            let uri: Uri = url.parse().context("`url` is no address")?;
            let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
            ensure!(is_http, "`url` must begin with https:// or http://");
            Ok(Secret::new(url))
        }
        (None, Some(source)) => secret("secret_url", source, beside),
        (Some(_), Some(_)) => bail!("it has a `url` and a `secret_url`: name one"),
        (None, None) => bail!("name its `url`, or a `secret_url` with its `env` or `file`"),
    }
}

pub(super) fn secret(
    key: &str,
    source: &SecretConfig,
    beside: Beside<'_>,
) -> anyhow::Result<Secret> {
    source.read(beside).with_context(|| format!("`{key}`"))
}
