//! `ekiden doctor`: compares this machine with a workload. Reads limits and settings, tries every profile on a socket of its own,
//! and reports problems, their cost in figures and the command that solves them. Changes nothing.
//!
//! [`SystemState`] is the state of the machine, [`Workload`] the requirement; most checks are pure functions of both. The last
//! checks create and remove rules, devices and sockets.

mod finding;
mod kernel;
mod room;
mod system;
mod transparent;
mod tunnels;
mod windows;
mod workload;

use std::os::fd::AsFd;

use ekiden_proto::profile::{BUILT_IN, Outcome, Profile};
use ekiden_sys::sockopt::{self, SocketRole};
use socket2::{Domain, Socket, Type};

pub use finding::{Finding, Verdict};
pub use system::SystemState;
pub use workload::Workload;

/// Looks at everything.
#[must_use]
pub fn examine(purpose: &Workload) -> Vec<Finding> {
    let reading = SystemState::collect();
    let mut findings = judge(&reading, purpose);
    if reading.has_net_admin() {
        findings.extend(transparent::transparent_checks(&reading, purpose));
        findings.extend(tunnels::tunnel_checks(&reading));
    }
    findings.extend(profiles(purpose).iter().map(check_profile));
    findings
}

/// What a reading says about a purpose.
#[must_use]
pub fn judge(reading: &SystemState, purpose: &Workload) -> Vec<Finding> {
    let mut findings = kernel::checks(reading, purpose);
    findings.extend(windows::checks(reading, purpose));
    findings.extend(room::checks(reading, purpose));
    findings
}

/// The built-in profiles, and those of the configuration.
fn profiles(purpose: &Workload) -> Vec<Profile> {
    let mut profiles: Vec<Profile> = BUILT_IN.iter().filter_map(|name| Profile::built_in(name)).collect();
    profiles.extend(purpose.profiles().into_iter().filter(|profile| !BUILT_IN.contains(&profile.name.as_str())));
    profiles
}

/// Applies a profile to a socket that is never connected.
fn check_profile(profile: &Profile) -> Finding {
    let subject = format!("profile {}", profile.name);
    let socket = match Socket::new(Domain::IPV4, Type::STREAM, None) {
        Ok(socket) => socket,
        Err(error) => {
            return Finding::new("profile", subject, format!("no socket: {error}"))
                .with_error("nothing will work here", "");
        }
    };
    let report = sockopt::apply_and_report(socket.as_fd(), profile, SocketRole::Dialer);
    let lacking: Vec<String> =
        report.iter().filter(|applied| applied.outcome != Outcome::Applied).map(ToString::to_string).collect();
    if lacking.is_empty() {
        return Finding::new("profile", subject, format!("all {} settings applied", report.len()));
    }
    let effect = format!(
        "{} of {} settings are not in force; sections work without, a newer kernel or CAP_NET_ADMIN brings the rest",
        lacking.len(),
        report.len()
    );
    Finding::new("profile", subject, lacking.join(", ")).with_hint(effect, "")
}

#[cfg(test)]
mod tests;
