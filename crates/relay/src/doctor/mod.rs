//! Is this machine fit for it? Reads ceilings and limits, tries every built-in profile on a socket of its own, and says
//! what is missing and how to mend it. It changes nothing.

mod checks;
mod transparent;
mod tunnels;

use std::fmt;

use ekiden_proto::profile::{BUILT_IN, Outcome, Profile};
use ekiden_sys::sockopt::{self, Role};
use socket2::{Domain, Socket, Type};
use std::os::fd::AsFd;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Works, and could be faster or hold more.
    Could,
    /// Something will not work.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub verdict: Verdict,
    /// What was looked at.
    pub subject: String,
    /// What is there.
    pub found: String,
    /// What to do about it; empty when nothing is to be done.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.verdict {
            Verdict::Good => "ok  ",
            Verdict::Could => "hint",
            Verdict::Bad => "BAD ",
        };
        write!(f, "{mark}  {:<28} {}", self.subject, self.found)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\n      -> {}", self.remedy) }
    }
}

/// Looks at everything.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let mut findings = checks::all();
    if checks::is_net_admin() {
        findings.extend(transparent::all());
        findings.push(tunnels::fitness());
    }
    findings.extend(BUILT_IN.iter().map(|name| profile(name)));
    findings
}

/// Applies a built-in profile to a socket that is never connected.
fn profile(name: &str) -> Finding {
    let subject = format!("profile {name}");
    let socket = match Socket::new(Domain::IPV4, Type::STREAM, None) {
        Ok(socket) => socket,
        Err(error) => {
            let found = format!("no socket: {error}");
            return Finding { verdict: Verdict::Bad, subject, found, remedy: String::new() };
        }
    };
    let profile = Profile::built_in(name).expect("invariant: the name is from the list");
    let report = sockopt::apply_and_report(socket.as_fd(), &profile, Role::Dials);
    let lacking: Vec<String> =
        report.iter().filter(|applied| applied.outcome != Outcome::Applied).map(ToString::to_string).collect();
    if lacking.is_empty() {
        let found = format!("all {} settings applied", report.len());
        return Finding { verdict: Verdict::Good, subject, found, remedy: String::new() };
    }
    let remedy = "sections work without; a newer kernel or CAP_NET_ADMIN brings the rest".to_owned();
    Finding { verdict: Verdict::Could, subject, found: lacking.join(", "), remedy }
}
