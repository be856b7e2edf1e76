//! What stands in the place of `ekiden cc` and `ekiden aqm` in a binary that was built without what ekiden puts into the kernel.

use std::process::ExitCode;

use clap::Args;
use ekiden_proto::event::CongestionStatus;
use ekiden_proto::profile::Algorithm;
use ekiden_relay::config::congestion::ProvidedControl;
use ekiden_relay::config::read::expected_one_of;
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
        anyhow::bail!("{NOT_BUILT_IN}")
    }
}

/// What to say.
const NOT_BUILT_IN: &str = "this ekiden was built with --no-default-features, without its congestion controls and queue \
    management: build it with `cargo build --release`, which takes clang (scripts/setup build)";

/// For the relay: what the kernel does not have by itself is not there.
pub fn acquire(name: &str) -> Result<ProvidedControl, String> {
    if ekiden_sys::congestion::check_available(name).is_ok() {
        return Ok(ProvidedControl { from: CongestionStatus::KERNEL.to_owned(), control: None });
    }
    Err(NOT_BUILT_IN.to_owned())
}

/// For `ekiden check --unit`.
pub const fn is_carried(_name: &str) -> bool {
    false
}

/// For `ekiden check`: the expectation for a name that neither this kernel nor another Linux has.
pub fn unknown_control(name: &str) -> Option<String> {
    let names = Algorithm::LINUX.iter().copied().chain(["ctcp"]);
    let is_there = names.clone().any(|known| known == name) || ekiden_sys::congestion::check_available(name).is_ok();
    (!is_there).then(|| expected_one_of("a congestion control of Linux or of ekiden", name, names))
}

/// For `ekiden check`.
pub fn load_hint(name: &str) -> Option<String> {
    ekiden_sys::congestion::check_available(name).is_err().then(|| NOT_BUILT_IN.to_owned())
}

/// For `ekiden doctor`.
pub fn findings() -> Vec<Finding> {
    let finding = Finding::new("bpf_types", "BPF congestion controls", "not built in");
    vec![finding.with_hint(NOT_BUILT_IN, "cargo build --release")]
}
