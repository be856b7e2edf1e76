//! What stands in the place of `ekiden cc` and `ekiden aqm` in a binary that was built without what ekiden puts into the kernel.

use std::process::ExitCode;

use clap::Args;

/// Was not built in: `cargo build --release` with its default features, which takes clang
#[derive(Args)]
pub struct Cc {
    /// Whatever it would take
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<String>,
}

/// The same.
pub type Aqm = Cc;

impl Cc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        anyhow::bail!("{LACKING}")
    }
}

/// What to say.
pub const LACKING: &str = "this ekiden was built with --no-default-features, without its congestion controls and queue \
    management: build it with `cargo build --release`, which takes clang (scripts/setup build)";
