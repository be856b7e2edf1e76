//! What stands in the place of `ekiden cc` and `ekiden aqm` in a binary that was built without what ekiden puts into the kernel.

use std::process::ExitCode;

use clap::Args;
use ekiden_proto::event::Congestion;
use ekiden_proto::profile::Algorithm;
use ekiden_relay::config::read::one_of;
use ekiden_relay::congestion::Provided;
use ekiden_relay::doctor::Finding;

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
const LACKING: &str = "this ekiden was built with --no-default-features, without its congestion controls and queue \
    management: build it with `cargo build --release`, which takes clang (scripts/setup build)";

/// For the relay: what the kernel does not have by itself is not there.
pub fn provide(name: &str) -> Result<Provided, String> {
    if ekiden_sys::congestion::choose(name).is_ok() {
        return Ok(Provided { from: Congestion::KERNEL.to_owned(), control: None });
    }
    Err(LACKING.to_owned())
}

/// For `ekiden check --unit`.
pub const fn is_carried(_name: &str) -> bool {
    false
}

/// For `ekiden check`: the expectation for a name that neither this kernel nor another Linux has.
pub fn unknown(name: &str) -> Option<String> {
    let names = Algorithm::OF_LINUX.iter().copied().chain(["ctcp"]);
    let is_there = names.clone().any(|known| known == name) || ekiden_sys::congestion::choose(name).is_ok();
    (!is_there).then(|| one_of("a congestion control of Linux or of ekiden", name, names))
}

/// For `ekiden check`.
pub fn hint(name: &str) -> Option<String> {
    ekiden_sys::congestion::choose(name).is_err().then(|| LACKING.to_owned())
}

/// For `ekiden doctor`.
pub fn findings() -> Vec<Finding> {
    let finding = Finding::new("bpf_types", "BPF congestion controls", "not built in");
    vec![finding.could(LACKING, "cargo build --release")]
}
