//! `stepgate canon` and `stepgate digest`: RFC 8785 for people and scripts.

use std::io::{self, Read};

use anyhow::{Context, anyhow, bail};
use stepgate_core::digest::Digest;
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::json::{Value, canonical};

use crate::cli::CanonArgs;
use crate::show;

pub(super) fn canon(args: &CanonArgs) -> anyhow::Result<()> {
    show::plain(canonical_input(args)?)
}

pub(super) fn digest(args: &CanonArgs) -> anyhow::Result<()> {
    show::plain(Digest::of_bytes(canonical_input(args)?.as_bytes()))
}

fn canonical_input(args: &CanonArgs) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    let mut value = strict::parse(&bytes, strict::DEPTH_MAX, Integers::Any)
        .map_err(|refusal| anyhow!("not strict JSON: {refusal}"))?;
    for key in &args.without {
        let Value::Object(members) = &mut value else {
            bail!("only an object has members to leave out");
        };
        if members.remove(key).is_none() {
            bail!("there is no member `{key}` to leave out");
        }
    }
    Ok(canonical::to_text(&value)?)
}
