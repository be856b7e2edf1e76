//! `ekiden doctor`: what is missing on this machine, and the fix.

#[cfg(feature = "bpf")]
mod bpf;

use std::process::ExitCode;

use clap::Args;
use ekiden_relay::doctor::{Verdict, examine};

#[cfg(not(feature = "bpf"))]
use crate::lacking as bpf;

/// Looks at the machine; changes nothing.
#[derive(Args)]
pub struct Doctor {}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut findings = examine();
        findings.extend(bpf::findings());
        for finding in &findings {
            println!("{finding}");
        }
        let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
