//! `ekiden doctor`: what is missing on this machine, what that costs, and the fix.

#[cfg(feature = "bpf")]
mod bpf;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ekiden_proto::units::{Rate, Span};
use ekiden_relay::config::read::{self, ConfigErrors, Flags};
use ekiden_relay::doctor::{Finding, Verdict, Workload, examine};

#[cfg(not(feature = "bpf"))]
use crate::lacking as bpf;

/// Looks at the machine; changes nothing.
#[derive(Args)]
#[command(
    after_help = "exit status: 0 all is well or could be better, 1 something will not work or was left behind, 2 a \
    mistake in what was asked"
)]
pub struct Doctor {
    /// The configuration to be run here: its profiles, listeners and limits are looked at
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "EKIDEN_CONFIG")]
    config: Option<PathBuf>,
    /// The rate that a single connection is to reach
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s")]
    rate: Rate,
    /// The round trip over which it is to reach it
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    rtt: Span,
    /// How many sessions there are to be at once; by default as the configuration says, else 10000
    #[arg(long, value_name = "N")]
    sessions: Option<u64>,
    /// Everything, as JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.rtt.0.is_zero() {
            eprintln!("ekiden: --rtt 0s: expected a time above zero, like 100ms");
            return Ok(ExitCode::from(2));
        }
        let purpose = match self.purpose() {
            Ok(purpose) => purpose,
            Err(mistakes) => {
                eprintln!("{mistakes}");
                return Ok(ExitCode::from(2));
            }
        };
        let mut findings = examine(&purpose);
        findings.extend(bpf::findings());
        if self.json {
            println!("{}", serde_json::to_string_pretty(&to_json(&purpose, &findings))?);
        } else {
            print_findings(&purpose, &findings);
        }
        let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn purpose(&self) -> Result<Workload, ConfigErrors> {
        let config = self.config.as_deref().map(|file| read::load(Some(file), &Flags::default())).transpose()?;
        let limit = config.as_ref().and_then(|config| config.limits.sessions).map(|sessions| sessions as u64);
        let sessions = self.sessions.or(limit).unwrap_or(10_000);
        Ok(Workload { rate: self.rate, rtt: self.rtt.0, sessions, config })
    }
}

fn print_findings(purpose: &Workload, findings: &[Finding]) {
    let Workload { rate, rtt, sessions, .. } = purpose;
    let window = purpose.bandwidth_delay_product() / 1000;
    println!("for {rate} over {}, {window} kB under way, and {sessions} sessions", Span(*rtt));
    println!("(--rate, --rtt, --sessions and -c FILE ask for something else)\n");
    for finding in findings {
        println!("{finding}");
    }
    if findings.iter().any(|finding| finding.fix.contains("sysctl -w")) {
        println!("\n`sysctl -w` lasts until the next start; the same settings in /etc/sysctl.d/90-ekiden.conf stay.");
    }
}

fn to_json(purpose: &Workload, findings: &[Finding]) -> serde_json::Value {
    serde_json::json!({
        "wanted": {
            "rate": purpose.rate.bits_per_second(),
            "rtt_ms": purpose.rtt.as_secs_f64() * 1e3,
            "window": purpose.bandwidth_delay_product(),
            "sessions": purpose.sessions,
        },
        "findings": findings,
    })
}
