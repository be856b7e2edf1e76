//! Replaces `ekiden cc` and `ekiden aqm` in a binary built without the `bpf` feature: both commands print an error.

use std::process::ExitCode;

use clap::Args;
use ekiden_proto::event::CongestionStatus;
use ekiden_proto::profile::Algorithm;
use ekiden_relay::config::congestion::ProvidedControl;
use ekiden_relay::config::read::expected_one_of;
use ekiden_relay::doctor::Finding;

/// Not built in: build with the default features (`cargo build --release`), which needs clang
#[derive(Args)]
pub struct Cc {
    /// Accepts and ignores all arguments, so that the error is about the build
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<String>,
}

/// `ekiden aqm` fails in the same way as `ekiden cc`.
pub type Aqm = Cc;

impl Cc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        anyhow::bail!("{NOT_BUILT_IN}")
    }
}

/// The error of both commands, and the hint of `ekiden check` and `ekiden doctor`.
const NOT_BUILT_IN: &str = "this ekiden was built with --no-default-features, without congestion controls and queue \
    management: build it with `cargo build --release`, which needs clang (scripts/setup build)";

/// Provides a congestion control to the relay. Only congestion controls of the running kernel are available.
pub fn acquire(name: &str) -> Result<ProvidedControl, String> {
    if ekiden_sys::congestion::check_available(name).is_ok() {
        return Ok(ProvidedControl { from: CongestionStatus::KERNEL.to_owned(), control: None });
    }
    Err(NOT_BUILT_IN.to_owned())
}

/// Returns false, because this build contains no congestion controls.
pub const fn is_carried(_name: &str) -> bool {
    false
}

/// Returns false, because this build contains no congestion controls.
pub const fn can_load(_name: &str) -> bool {
    false
}

/// Returns the error of `ekiden check` for a name that is a congestion control neither of this kernel nor of any Linux.
pub fn unknown_control(name: &str) -> Option<String> {
    let names = Algorithm::LINUX.iter().copied().chain(["ctcp"]);
    let is_known = names.clone().any(|known| known == name) || ekiden_sys::congestion::check_available(name).is_ok();
    (!is_known).then(|| expected_one_of("a congestion control of Linux or of ekiden", name, names))
}

/// Returns a hint for `ekiden check` if the running kernel does not have this congestion control.
pub fn load_hint(name: &str) -> Option<String> {
    ekiden_sys::congestion::check_available(name).is_err().then(|| NOT_BUILT_IN.to_owned())
}

/// Reports to `ekiden doctor` that BPF support is not built in.
pub fn findings() -> Vec<Finding> {
    let finding = Finding::new("bpf_types", "BPF congestion controls", "not built in");
    vec![finding.with_hint(NOT_BUILT_IN, "cargo build --release")]
}
