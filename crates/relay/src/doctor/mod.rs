//! `ekiden doctor`: compares this machine with a workload. Reads limits and settings, applies every profile to a
//! temporary socket, and reports problems as [`Finding`]s, with their effect in figures and a command as the remedy.
//! Changes nothing.
//!
//! [`SystemState`] is the state of the machine, [`Workload`] the requirement. Most checks are pure functions of both.
//! The last checks create and remove rules, devices and sockets.

mod capacity;
mod kernel;
mod system;
mod transparent;
mod windows;
mod workload;

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::SystemTime;

use ekiden_proto::profile::{Algorithm, BUILT_IN, Outcome, Profile, Setting};
use ekiden_sys::ktls::{self, Cipher, Version};
use ekiden_sys::sockopt::SocketRole;
use serde::Serialize;
use socket2::{Domain, Socket, Type};

use crate::config::CertificateExpiry;
use crate::config::congestion::CongestionControls;

pub use system::SystemState;
pub use workload::Workload;

/// Runs all checks for a workload.
#[must_use]
pub fn examine(purpose: &Workload) -> Vec<Finding> {
    let reading = SystemState::collect();
    let mut findings = judge(&reading, purpose);
    if reading.has_net_admin() {
        findings.extend(transparent::transparent_checks(&reading, purpose));
        findings.extend(transparent::tunnel_checks(&reading));
    }
    findings.extend(certificates(purpose));
    findings.extend(kernel_tls(purpose));
    findings.extend(profiles(purpose).iter().map(|profile| check_profile(profile, purpose)));
    findings
}

/// Returns the findings of the checks that depend only on the system state and the workload.
#[must_use]
pub fn judge(reading: &SystemState, purpose: &Workload) -> Vec<Finding> {
    let mut findings = kernel::checks(reading, purpose);
    findings.extend(windows::checks(reading, purpose));
    findings.extend(capacity::checks(reading, purpose));
    findings
}

/// Returns the built-in profiles and those of the configuration.
fn profiles(purpose: &Workload) -> Vec<Profile> {
    let mut profiles: Vec<Profile> = BUILT_IN.iter().filter_map(|name| Profile::built_in(name)).collect();
    profiles.extend(purpose.profiles().into_iter().filter(|profile| !BUILT_IN.contains(&profile.name.as_str())));
    profiles
}

/// Checks the expiry of the certificates of TLS listeners.
fn certificates(purpose: &Workload) -> Vec<Finding> {
    let now = SystemTime::now();
    let listeners = purpose.config.iter().flat_map(|config| &config.listeners);
    let expiries = listeners.filter_map(|listener| Some((&listener.name, listener.tls.as_ref()?.expiry()?)));
    let check = |(name, expiry): (&String, CertificateExpiry)| {
        let finding = Finding::new("certificate", format!("certificate of {name}"), expiry.describe(now));
        if expiry.is_over(now) {
            return finding.with_error("clients reject this listener: replace the certificate in the file", "");
        }
        finding.with_hint_if(
            expiry.is_soon(now),
            "clients reject this listener after that date: renew the certificate",
            "",
        )
    };
    expiries.map(check).collect()
}

/// Checks whether kernel TLS is available for TLS listeners; `None` without a TLS listener.
fn kernel_tls(purpose: &Workload) -> Option<Finding> {
    let (check, subject) = ("kernel_tls", "kernel TLS");
    purpose.config.as_ref()?.listeners.iter().find(|listener| listener.tls.is_some())?;
    let Err(error) = ktls::check_available(Version::Tls13, Cipher::Aes128Gcm) else {
        return Some(Finding::new(check, subject, "available"));
    };
    let finding = Finding::new(check, subject, format!("not available: {error}"));
    let fix = if error.kind() == io::ErrorKind::NotFound { "modprobe tls" } else { "" };
    Some(finding.with_hint("the bytes of TLS listeners are copied instead of spliced", fix))
}

/// Applies a profile to a temporary socket that is never connected.
fn check_profile(profile: &Profile, purpose: &Workload) -> Finding {
    let subject = format!("profile {}", profile.name);
    let socket = match Socket::new(Domain::IPV4, Type::STREAM, None) {
        Ok(socket) => socket,
        Err(error) => {
            return Finding::new("profile", subject, format!("no socket: {error}"))
                .with_error("ekiden cannot run without TCP sockets", "");
        }
    };
    let report = CongestionControls::default().apply_and_report(socket.as_fd(), profile, SocketRole::Dialer);
    // The relay loads such a congestion control, which the kernel may not have now, before it applies the profile.
    let is_loaded = profile.congestion().is_some_and(|Algorithm(name)| (purpose.can_load)(name));
    let is_provided = |setting: &Setting| match setting {
        Setting::Congestion(_) => is_loaded,
        Setting::CtcpGamma(_) | Setting::CtcpAutoGamma(_) => is_loaded && profile.compound_tcp().is_some(),
        _ => false,
    };
    let unsupported: Vec<String> = report
        .iter()
        .filter(|applied| applied.outcome != Outcome::Applied && !is_provided(&applied.setting))
        .map(ToString::to_string)
        .collect();
    if unsupported.is_empty() {
        return Finding::new("profile", subject, format!("all {} settings supported", report.len()));
    }
    let effect = format!(
        "{} of {} settings have no effect; sections work without them, and a newer kernel or CAP_NET_ADMIN enables them",
        unsupported.len(),
        report.len()
    );
    Finding::new("profile", subject, unsupported.join(", ")).with_hint(effect, "")
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The item needs no change.
    Good,
    /// The value is not readable on this machine.
    Unknown,
    /// The item works, but limits speed or capacity.
    Could,
    /// A feature does not work, or a stale item remains.
    Bad,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The identifier of the check; stable across versions, unlike the texts below.
    pub check: &'static str,
    /// The severity of the finding.
    pub verdict: Verdict,
    /// The setting or resource that was checked.
    pub subject: String,
    /// The value that was found.
    pub found: String,
    /// The effect, with figures; empty without a problem.
    pub effect: String,
    /// A shell command as the remedy; empty if there is none.
    pub fix: String,
}

impl Finding {
    /// Returns a finding without a problem.
    #[must_use]
    pub fn new(check: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.into(), found.into());
        Self { check, verdict: Verdict::Good, subject, found, effect: String::new(), fix: String::new() }
    }

    /// Returns the finding for a kernel setting that is not readable here; `setting` is its name in sysctl(8).
    #[must_use]
    pub fn unknown(check: &'static str, subject: &str, setting: &str) -> Self {
        let finding = Self::new(check, subject, format!("{setting} is not readable"));
        let effect = "not checked: containers and other network namespaces hide it; run `ekiden doctor` on the host";
        Self { verdict: Verdict::Unknown, effect: effect.to_owned(), ..finding }
    }

    /// Marks the finding as working but improvable.
    #[must_use]
    pub fn with_hint(self, effect: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Could, effect: effect.into(), fix: fix.into(), ..self }
    }

    /// Like `with_hint`, if `condition` is true.
    #[must_use]
    pub fn with_hint_if(self, condition: bool, effect: impl Into<String>, fix: impl Into<String>) -> Self {
        if condition { self.with_hint(effect, fix) } else { self }
    }

    /// Marks the finding as an error.
    #[must_use]
    pub fn with_error(self, effect: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, ..self.with_hint(effect, fix) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.verdict {
            Verdict::Good => "ok  ",
            Verdict::Unknown => "?   ",
            Verdict::Could => "hint",
            Verdict::Bad => "BAD ",
        };
        write!(f, "{mark}  {:<28} {}", self.subject, self.found)?;
        if !self.effect.is_empty() {
            write!(f, "\n      {}", self.effect)?;
        }
        if self.fix.is_empty() { Ok(()) } else { write!(f, "\n      -> {}", self.fix) }
    }
}

#[cfg(test)]
mod tests;
