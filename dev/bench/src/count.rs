//! `cargo xtask bench`: one part of a step, a number of times. Callgrind counts the instructions outside.

use std::hint::black_box;

use anyhow::{Context, bail};
use stepgate_core::assumed::Assumed;
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::canonical;
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Submission};

use crate::parts::AGENT;
use crate::rules::Rules;
use crate::{Bench, proposal};

/// Does a part so many times.
pub(crate) async fn repeat(part: &str, times: usize) -> anyhow::Result<()> {
    match part {
        "decision" => decisions(times).await,
        "step" => {
            let bench = Bench::new(Rules::One)?;
            let session_id = bench.session().await?;
            for number in 0..times {
                bench.step(session_id, number, || {}).await?;
            }
            Ok(())
        }
        "canonical" => {
            let proposal = proposal(1);
            for _ in 0..times {
                black_box(canonical::text_of(black_box(&proposal)));
            }
            Ok(())
        }
        "digest" => {
            let proposal = proposal(1);
            for _ in 0..times {
                black_box(Digest::of(black_box(&proposal)));
            }
            Ok(())
        }
        other => bail!("there is no part `{other}`"),
    }
}

/// PARSE to AUTHORIZE, without a run.
async fn decisions(times: usize) -> anyhow::Result<()> {
    let bench = Bench::new(Rules::One)?;
    let session_id = bench.session().await?;
    let principal_id = PrincipalId::parse(AGENT)?;
    let payload = Payload::whole(proposal(1).to_string().into_bytes());
    let submission = Submission { session_id, principal_id, payload };
    for _ in 0..times {
        let weighed = step::weigh(&bench.gate, &submission, &Assumed::default());
        black_box(weighed.ok().context("the proposal is not valid")?);
    }
    Ok(())
}
