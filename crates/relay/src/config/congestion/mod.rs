//! Congestion controls, by name: which ones profiles ask for, who brings those that the kernel lacks, and what is in use
//! where nobody does. Where they come from is not known in here.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::event::{CongestionStatus, Event};
use ekiden_proto::profile::{Algorithm, AppliedSetting, CompoundTcp, Outcome, Profile, Setting};
use ekiden_sys::congestion;
use ekiden_sys::sockopt::{self, SocketRole};
use serde::Serialize;
use socket2::{Domain, Socket, Type};
use tokio::time::{Instant, sleep};

use super::Config;

/// How long the kernel may take until a congestion control is gone whose owner has ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How often that is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sees to it that the kernel has the congestion control of a name, or says why it cannot.
pub type ControlProvider<'a> = &'a dyn Fn(&str) -> Result<ProvidedControl, String>;

/// A congestion control that the kernel has.
#[derive(Debug)]
pub struct ProvidedControl {
    /// Who has put it there, in words.
    pub from: String,
    /// It is there for as long as this is; nothing where that is not in our hands.
    pub control: Option<Box<dyn CongestionHandle>>,
}

/// A congestion control that can be talked with.
pub trait CongestionHandle: Debug + Send + Sync {
    /// What it says of one connection, where it says anything.
    fn telemetry(&self, socket: BorrowedFd<'_>) -> Option<Telemetry>;

    /// Asks it for something, for one connection or for all that a listener accepts.
    ///
    /// # Errors
    /// Why it cannot be asked, in words.
    fn set_options(&self, socket: BorrowedFd<'_>, request: CompoundTcp) -> Result<(), String>;
}

/// What a congestion control says of a connection, once a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Telemetry {
    /// Congestion window, packets.
    pub window: u32,
    /// The part of it that losses govern, packets.
    pub loss_window: u32,
    /// The part of it that delay governs, packets.
    pub delay_window: u32,
    /// The round trip without queues.
    #[serde(skip)]
    pub base_rtt: Duration,
    /// Packets of the connection in the path's queues.
    pub queued: u32,
    /// As many of them are congestion; packets.
    pub gamma: u32,
    /// Round trips so far.
    pub rounds: u32,
    /// Reductions for loss or a mark.
    pub losses: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
}

/// Those that one configuration asks for; they stay in the kernel while sessions of it are open.
#[derive(Debug, Clone, Default)]
pub struct CongestionControls {
    by_name: BTreeMap<String, Arc<RequestedControl>>,
}

/// One that a profile asks for.
#[derive(Debug)]
struct RequestedControl {
    congestion: CongestionStatus,
    control: Option<Box<dyn CongestionHandle>>,
}

impl CongestionControls {
    /// Has the kernel have what `config` asks for, and says what became of it. What `before` has stays as it is.
    pub fn obtain(config: &Config, before: &Self, provide: ControlProvider<'_>, tell: impl Fn(&Event)) -> Self {
        let mut by_name = BTreeMap::new();
        for Algorithm(name) in config.profiles().filter_map(|profile| profile.congestion()) {
            if by_name.contains_key(name) {
                continue;
            }
            let asked = RequestedControl::obtain(name, before.by_name.get(name), provide);
            if asked.congestion.is_worth_logging() {
                tell(&Event::Congestion(asked.congestion.clone()));
            }
            by_name.insert(name.clone(), asked);
        }
        Self { by_name }
    }

    /// [`sockopt::apply`], and what is no socket option.
    pub fn apply(&self, socket: BorrowedFd<'_>, profile: &Profile, role: SocketRole) {
        sockopt::apply(socket, profile, role);
        // Already reported the first time.
        let _ = self.set_control_options(socket, profile);
    }

    /// [`sockopt::apply_and_report`], and what is no socket option.
    #[must_use]
    pub fn apply_and_report(&self, socket: BorrowedFd<'_>, profile: &Profile, role: SocketRole) -> Vec<AppliedSetting> {
        let mut report = sockopt::apply_and_report(socket, profile, role);
        if let Some(result) = self.set_control_options(socket, profile) {
            let outcome = result.map_or_else(Outcome::Unsupported, |()| Outcome::Applied);
            let asked = |applied: &&mut AppliedSetting| {
                matches!(applied.setting, Setting::CtcpGamma(_) | Setting::CtcpAutoGamma(_))
            };
            report.iter_mut().filter(asked).for_each(|applied| applied.outcome = outcome.clone());
        }
        report
    }

    /// What a profile asks of the congestion control itself; none when it asks nothing.
    fn set_control_options(&self, socket: BorrowedFd<'_>, profile: &Profile) -> Option<Result<(), String>> {
        let request = profile.compound_tcp()?;
        let asked = self.by_name.get(&profile.congestion()?.0)?;
        Some(match &asked.control {
            Some(control) => control.set_options(socket, request),
            None => Err("it takes the ctcp of ekiden, loaded by this relay or by `ekiden cc load ctcp`".to_owned()),
        })
    }

    /// What the congestion control of a connection says of it.
    #[must_use]
    pub fn telemetry(&self, name: &str, socket: BorrowedFd<'_>) -> Option<Telemetry> {
        self.by_name.get(name)?.control.as_ref()?.telemetry(socket)
    }

    /// Waits whether one goes out of the kernel that was there, because whoever had loaded it has ended. That takes the
    /// kernel some time.
    pub async fn wait_removed(&self) -> bool {
        let foreign = |asked: &&Arc<RequestedControl>| asked.congestion.is_worth_logging() && asked.is_in_use();
        let names: Vec<_> = self.by_name.values().filter(foreign).map(|asked| &asked.congestion.name).collect();
        let until = Instant::now() + REMOVAL_TIMEOUT;
        while !names.is_empty() && Instant::now() < until {
            if names.iter().any(|name| congestion::check_available(name).is_err()) {
                return true;
            }
            sleep(POLL_INTERVAL).await;
        }
        false
    }

    /// What became of each.
    #[must_use]
    pub fn describe(&self) -> Vec<CongestionStatus> {
        self.by_name.values().map(|asked| asked.congestion.clone()).collect()
    }
}

impl RequestedControl {
    /// Whether sections have what was asked for.
    fn is_in_use(&self) -> bool {
        self.congestion.in_use == self.congestion.name
    }

    fn obtain(name: &str, before: Option<&Arc<Self>>, provide: ControlProvider<'_>) -> Arc<Self> {
        let choice = congestion::check_available(name);
        if let (Ok(()), Some(before)) = (&choice, before.filter(|before| before.is_in_use())) {
            return Arc::clone(before);
        }
        let provided = match choice {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(RESTRICTED.to_owned()),
            _ => provide(name),
        };
        let (from, control, why) = match provided {
            Ok(ProvidedControl { from, control }) => (Some(from), control, None),
            Err(why) => (None, None, Some(why)),
        };
        let congestion = CongestionStatus { name: name.to_owned(), in_use: in_use(name), from, why };
        Arc::new(Self { congestion, control })
    }
}

const RESTRICTED: &str =
    "choosing it takes CAP_NET_ADMIN, or its name in sysctl net.ipv4.tcp_allowed_congestion_control";

/// What a socket has after it was asked to have `name`.
fn in_use(name: &str) -> String {
    let mut profile = Profile::default();
    profile.set(Setting::Congestion(Algorithm(name.to_owned())));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    let chosen = socket.and_then(|socket| {
        sockopt::apply(socket.as_fd(), &profile, SocketRole::Dialer);
        congestion::of_socket(&socket)
    });
    chosen.unwrap_or_else(|error| format!("unknown: {error}"))
}

#[cfg(test)]
mod tests;
