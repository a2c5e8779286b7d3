//! `verify`, `backup` and `restore`: the store as a whole.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Verify an exported run instead of the store; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["heads", "save_heads"])]
    pub(crate) bundle: Option<PathBuf>,
    /// The directory of the archives, where it is not the configured one. Every archive must be there.
    #[arg(long, value_name = "DIR", conflicts_with = "bundle")]
    pub(crate) archives: Option<PathBuf>,
    /// Prove that these saved heads still stand.
    #[arg(long, value_name = "FILE")]
    pub(crate) heads: Option<PathBuf>,
    /// Save the heads for a later `--heads`. Only written when everything holds.
    #[arg(long, value_name = "FILE")]
    pub(crate) save_heads: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The directory that the backup becomes.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Leave the files of the sandbox to another backup, such as a snapshot of their file system.
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Do not verify the copy. Of a store that does not verify any more this keeps the evidence, as it is;
    /// `restore` refuses such a backup.
    #[arg(long)]
    pub(crate) no_verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup's directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Restore the store and nothing else, beside the sandbox, policies and configuration that are there.
    #[arg(long)]
    pub(crate) store_only: bool,
}
