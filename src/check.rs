//! `ekiden check`: validates a configuration, and prints hints about this host.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use ekiden_relay::config::Config;
use ekiden_relay::config::needs::systemd_drop_in;
use ekiden_relay::config::read::{self, ConfigError, ConfigErrors, Flags, NameUse};
use ekiden_sys::route::has_interface;

use crate::cc;

/// Validate a configuration and report all errors
#[derive(Args)]
pub struct Check {
    /// Print a drop-in for the systemd unit with exactly the capabilities that this configuration needs
    #[arg(long)]
    unit: bool,
    /// The configuration: files, or directories with *.toml files, which are merged
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Check {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let name: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        let name = name.join(" ");
        match read::load(self.paths.iter().map(PathBuf::as_path), &Flags::default()) {
            Ok(config) => {
                let unknown = unknown_controls(&config);
                if !unknown.0.is_empty() {
                    eprintln!("{unknown}");
                    return Ok(ExitCode::from(2));
                }
                if self.unit {
                    print!("{}", systemd_drop_in(&config.requirements(&unprivileged_controls(), cc::is_carried)));
                    return Ok(ExitCode::SUCCESS);
                }
                config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
                let (listeners, relays) = (config.listeners.len(), config.relays.len());
                let paths = config.paths().len();
                for control in config.requested_controls() {
                    if let Some(hint) = cc::load_hint(control) {
                        eprintln!("{name}: hint: congestion = {control:?}: {hint}");
                    }
                }
                // Only a hint: the interface may appear later, and the relay warns when it starts to share.
                for interface in config.interfaces.iter().filter(|interface| !has_interface(&interface.name)) {
                    eprintln!("{name}: hint: [[interface]] {}: this host has no such interface", interface.name);
                }
                if let Some(hint) = fleet_hint(&config) {
                    eprintln!("{name}: hint: {hint}");
                }
                for hint in config.unused_relay_warnings().chain(config.unbound_network_warnings()) {
                    eprintln!("{name}: hint: {hint}");
                }
                println!("{name}: ok, {listeners} listener(s), {relays} relay(s), {paths} path(s)");
                Ok(ExitCode::SUCCESS)
            }
            Err(mistakes) => {
                eprintln!("{mistakes}");
                Ok(ExitCode::from(2))
            }
        }
    }
}

/// Returns an error for each configured congestion control that neither Linux nor ekiden has.
fn unknown_controls(config: &Config) -> ConfigErrors {
    let to_error = |named: &NameUse| {
        let expected = cc::unknown_control(&named.name)?;
        Some(ConfigError { expected, ..named.location.clone() })
    };
    ConfigErrors(config.congestion_names.iter().filter_map(to_error).collect())
}

/// Returns a hint if the fleet certificate is missing, or is not valid at this time.
fn fleet_hint(config: &Config) -> Option<String> {
    let fleet = config.fleet.as_ref()?;
    let Some(issued) = &fleet.certificate else {
        return Some(
            "[fleet] has no certificate: other members do not list this relay; `ekiden fleet sign` makes a certificate"
                .to_owned(),
        );
    };
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    issued.certificate.check_validity(unix).err().map(|why| format!("fleet.certificate: {why}"))
}

/// Returns the congestion controls that unprivileged processes may choose on this host (tcp(7)).
fn unprivileged_controls() -> Vec<String> {
    const LIST: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    std::fs::read_to_string(LIST).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}
