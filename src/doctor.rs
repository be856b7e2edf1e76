//! `ekiden doctor`: what is missing on this machine, and the fix.

use std::process::ExitCode;

use clap::Args;
use ekiden_relay::doctor::{Verdict, examine};

/// Looks at the machine; changes nothing.
#[derive(Args)]
pub struct Doctor {}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let findings = examine();
        for finding in &findings {
            println!("{finding}");
        }
        let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
