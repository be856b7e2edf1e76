//! `ekiden doctor`: checks this host for a workload, and reports missing features with effect and fix.

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

/// Check this host for a relay's workload; changes nothing
#[derive(Args)]
#[command(
    after_help = "exit status: 0 no errors, 1 errors or stale rules and congestion controls, 2 invalid arguments or \
    configuration"
)]
pub struct Doctor {
    /// Configuration file to check against this host: profiles, listeners and limits
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "EKIDEN_CONFIG")]
    config: Option<PathBuf>,
    /// Target rate of a single connection
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s")]
    rate: Rate,
    /// Round-trip time at which a connection must reach that rate
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    rtt: Span,
    /// Number of concurrent sessions; default: the limit in the configuration, else 10000
    #[arg(long, value_name = "N")]
    sessions: Option<u64>,
    /// Print the complete report as JSON
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
    println!("(change this with --rate, --rtt, --sessions and -c FILE)\n");
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
