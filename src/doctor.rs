//! `ekiden doctor`: checks this host for a workload, and reports missing features with effect and fix.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ekiden_proto::units::{Rate, Span};
use ekiden_relay::config::read::{self, ConfigErrors, Flags};
use ekiden_relay::doctor::{Finding, Verdict, Workload, examine};
use ekiden_sys::signal;

use crate::cc;
#[cfg(not(feature = "bpf"))]
use crate::lacking as bpf;

/// Check this host for a relay's workload; changes nothing
#[derive(Args)]
#[command(
    after_help = "exit status: 0 no errors, 1 errors or stale rules and congestion controls, 2 invalid arguments or \
    configuration"
)]
pub struct Doctor {
    /// Configuration file or directory to check against this host: profiles, listeners and limits
    #[arg(short = 'c', long = "config", value_name = "PATH", env = "EKIDEN_CONFIG", value_delimiter = ':')]
    config: Vec<PathBuf>,
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
        signal::end_on_broken_pipe()?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&to_json(&purpose, &findings))?);
        } else {
            print_findings(&purpose, &findings);
        }
        let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn purpose(&self) -> Result<Workload, ConfigErrors> {
        let load = || read::load(self.config.iter().map(PathBuf::as_path), &Flags::default());
        let config = if self.config.is_empty() { None } else { Some(load()?) };
        let limit = config.as_ref().and_then(|config| config.limits.sessions).map(|sessions| sessions as u64);
        let sessions = self.sessions.or(limit).unwrap_or(10_000);
        Ok(Workload { rate: self.rate, rtt: self.rtt.0, sessions, config, can_load: cc::can_load })
    }
}

fn print_findings(purpose: &Workload, findings: &[Finding]) {
    let Workload { rate, rtt, sessions, .. } = purpose;
    let window = purpose.bandwidth_delay_product() / 1000;
    println!("for {rate} over an RTT of {}, {window} kB in flight, and {sessions} sessions", Span(*rtt));
    println!("(change this with --rate, --rtt, --sessions and -c PATH)\n");
    for finding in findings {
        println!("{finding}");
    }
    if findings.iter().any(|finding| finding.fix.contains("sysctl -w")) {
        println!(
            "\n`sysctl -w` lasts until the next reboot; to keep the settings, write them to \
             /etc/sysctl.d/90-ekiden.conf."
        );
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

/// Findings of `ekiden doctor` on BPF: kernel support, privileges, and ekiden's congestion controls in the kernel.
#[cfg(feature = "bpf")]
mod bpf {
    use ekiden_bpf::congestion::{self, CongestionControl, LoadedBy, RegistrationMethod};
    use ekiden_bpf::kernel::{self, KernelTypes};
    use ekiden_relay::doctor::Finding;

    use crate::cc;

    /// Returns all findings on BPF.
    pub fn findings() -> Vec<Finding> {
        let kernel = KernelTypes::running();
        let mut findings = vec![types_finding(kernel.as_ref()), privileges_finding(), file_system_finding()];
        findings.extend(congestion::list().iter().filter_map(control_finding));
        findings.extend(congestion::pinned_names().iter().filter_map(|name| partial_pin_finding(name)));
        findings
    }

    fn types_finding(kernel: Option<&KernelTypes>) -> Finding {
        let finding = |found: &str| Finding::new("bpf_types", "BPF congestion controls", found);
        let Some(kernel) = kernel else {
            let effect =
                "`ekiden cc` does not work: it needs a kernel with CONFIG_DEBUG_INFO_BTF=y, and /sys/kernel visible";
            return finding("the kernel does not show its types (BTF)").with_hint(effect, "");
        };
        if congestion::check_support(kernel).is_err() {
            let effect = "`ekiden cc` does not work: it needs Linux 5.7 (arm64: 6.0) with CONFIG_BPF_SYSCALL=y and \
                          CONFIG_BPF_JIT=y";
            return finding("not supported by the kernel").with_hint(effect, "");
        }
        match RegistrationMethod::best_for(kernel) {
            RegistrationMethod::Link => {
                finding("BTF, and links: the kernel unloads congestion controls of a killed relay")
            }
            RegistrationMethod::Map => {
                let effect =
                    "congestion controls of a killed relay stay until `ekiden cc unload`; Linux 6.4 removes them";
                finding("BTF, and no links").with_hint(effect, "")
            }
        }
    }

    fn privileges_finding() -> Finding {
        let missing: Vec<_> = kernel::missing_capabilities().iter().map(|capability| capability.name()).collect();
        let found =
            if missing.is_empty() { "CAP_BPF, CAP_PERFMON".to_owned() } else { format!("no {}", missing.join(", ")) };
        let effect = "loading congestion controls needs both, in a systemd unit: AmbientCapabilities=CAP_BPF \
            CAP_PERFMON and SystemCallFilter=bpf; selecting one that `ekiden cc load` has loaded needs neither";
        let fix = "setcap cap_bpf,cap_perfmon+ep \"$(command -v ekiden)\"";
        Finding::new("bpf_privileges", "BPF privileges", found).with_hint_if(!missing.is_empty(), effect, fix)
    }

    fn file_system_finding() -> Finding {
        let mounted = congestion::is_mounted();
        let finding = Finding::new(
            "bpf_file_system",
            "BPF file system",
            if mounted { "at /sys/fs/bpf" } else { "none at /sys/fs/bpf" },
        );
        finding.with_hint_if(!mounted, "`ekiden cc load` pins its objects there", "mount -t bpf bpf /sys/fs/bpf")
    }

    /// Reports a congestion control that ekiden has loaded. One left by a killed process is an error.
    fn control_finding(control: &CongestionControl) -> Option<Finding> {
        let found = match &control.loaded_by {
            LoadedBy::Kernel | LoadedBy::NotLoaded | LoadedBy::Hidden => return None,
            LoadedBy::Pinned => "kept by `ekiden cc load`".to_owned(),
            LoadedBy::Held(processes) => format!("held by {}", cc::holders(processes)),
            LoadedBy::Orphaned => "left by a process that was killed".to_owned(),
        };
        let finding = Finding::new("congestion_control", format!("congestion control {}", control.name), found);
        let effect = "it stays in the kernel, in every namespace of this host, and cannot be loaded again";
        let is_orphaned = control.loaded_by == LoadedBy::Orphaned;
        Some(if is_orphaned {
            finding.with_error(effect, format!("ekiden cc unload {}", control.name))
        } else {
            finding
        })
    }

    /// Reports pins of a congestion control that is no longer in the kernel: some of its pins were removed by hand.
    fn partial_pin_finding(name: &str) -> Option<Finding> {
        let is_removed = congestion::lookup(name).loaded_by == LoadedBy::NotLoaded;
        let found = format!("some of its pins are left under {}", congestion::PIN_ROOT);
        let finding = Finding::new("congestion_control", format!("congestion control {name}"), found);
        is_removed
            .then(|| finding.with_error("`ekiden cc load` fails: the pins exist", format!("ekiden cc unload {name}")))
    }
}
