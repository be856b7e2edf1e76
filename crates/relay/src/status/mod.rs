//! The views of a running relay: `/api/sessions`, which `ekiden status` reads, and `/api/upgrade`.

pub mod fleet;
mod table;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::event::{ChoiceRecord, SectionInfo};
use ekiden_proto::limiting::Diagnoses;
use ekiden_proto::wire::section::TraceId;
use ekiden_sys::tcp_info::tcp_info;
use ekiden_sys::{congestion, process};
use serde::{Deserialize, Serialize};

use super::config::congestion::{CongestionControls, Telemetry};
use super::pump::tls::TlsCipher;
use super::shaping::autotune::{Tuner, TuningView};

pub use table::table;

/// An open session as the admin interface shows it.
#[derive(Debug, Clone, Serialize)]
pub struct SessionView {
    /// Number of the session.
    pub session: u64,
    /// The listener that accepted it.
    pub listener: String,
    /// The address of the client.
    pub client: ClientAddr,
    /// TLS of the section to the client, if the listener speaks TLS.
    pub tls: Option<TlsView>,
    /// 2 if the session is a stream of an HTTP/2 connection.
    pub http: Option<u8>,
    /// The user name, if the listener asks for one.
    pub user: Option<String>,
    /// The relay that opened it, by name or key.
    pub peer: Option<String>,
    /// The trace id, which all relays on the path share.
    pub trace: Option<TraceId>,
    /// Where the client wants to go.
    pub target: Option<Target>,
    /// The name of the server in the first bytes of an intercepted client.
    pub server_name: Option<String>,
    /// The address that was dialled.
    pub server: Option<ServerAddr>,
    /// Names of the hops, or `direct`.
    pub path: String,
    /// The reason for the path, if the selector has chosen it.
    pub chosen: Option<ChoiceRecord>,
    /// The age of the session, in seconds.
    pub seconds: f64,
    /// Bytes toward the server so far.
    pub bytes_up: u64,
    /// Bytes toward the client so far.
    pub bytes_down: u64,
    /// The section to the client.
    pub down: Option<SectionView>,
    /// The section to the server.
    pub up: Option<SectionView>,
    /// Limits of the last seconds.
    pub limits: Diagnoses,
}

/// TLS of the section to a client.
#[derive(Debug, Clone, Serialize)]
pub struct TlsView {
    /// The version of the protocol.
    pub version: &'static str,
    /// The cipher suite.
    pub cipher: &'static str,
    /// How the bytes cross the relay: `spliced` if the kernel encrypts them, `copied` if this process does.
    pub transfer: &'static str,
}

impl TlsView {
    /// The view of a connection.
    #[must_use]
    pub fn new(tls: &TlsCipher) -> Self {
        let transfer = if tls.is_in_kernel() { "spliced" } else { "copied" };
        Self { version: tls.version(), cipher: tls.cipher_suite(), transfer }
    }
}

/// A section of an open session.
#[derive(Debug, Clone, Serialize)]
pub struct SectionView {
    /// `TCP_INFO` of the section.
    #[serde(flatten)]
    pub info: SectionInfo,
    /// The congestion control in force.
    pub congestion: String,
    /// Congestion window, in packets.
    pub window: u32,
    /// The round trip without queues.
    pub base_rtt_seconds: f64,
    /// Estimate of its packets in queues on the path.
    pub queued: u32,
    /// Telemetry of the congestion control, if it is one of ekiden's.
    pub told: Option<Telemetry>,
    /// The settings chosen by tuning, if the section is tuned.
    pub tuning: Option<TuningView>,
}

impl SectionView {
    /// The view of `socket`; `None` if the kernel has no `TCP_INFO`.
    pub fn from_socket(
        socket: impl AsFd + Copy,
        controls: &CongestionControls,
        tuner: Option<Rc<Tuner>>,
    ) -> Option<Self> {
        let info = tcp_info(socket.as_fd()).ok()?;
        let congestion = congestion::of_socket(socket).ok()?;
        let telemetry = controls.telemetry(&congestion, socket.as_fd()).filter(|telemetry| telemetry.rounds > 0);
        let (window, base_rtt, queued) = match telemetry {
            Some(telemetry) => (telemetry.window, telemetry.base_rtt, telemetry.queued),
            None => (info.cwnd, info.min_rtt, queued_packets(&info)),
        };
        let tuning = tuner.and_then(|tuner| tuner.view());
        Some(Self {
            info,
            congestion,
            window,
            base_rtt_seconds: base_rtt.as_secs_f64(),
            queued,
            told: telemetry,
            tuning,
        })
    }
}

/// Packets of a connection in queues: the part of a fully used window beyond one round trip without queues (Brakmo,
/// Peterson: TCP Vegas, 1995).
fn queued_packets(info: &SectionInfo) -> u32 {
    let (rtt, base) = (info.rtt.as_micros(), info.min_rtt.as_micros());
    if base == 0 {
        return 0;
    }
    let queued = u128::from(info.cwnd) * rtt.saturating_sub(base) / rtt.max(1);
    u32::try_from(queued).unwrap_or(u32::MAX)
}

/// The pool of one next relay.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PoolView {
    /// The name of the relay.
    pub relay: String,
    /// Whether the last attempt to reach the relay succeeded.
    pub up: bool,
    /// Whether the relay is slower than the other members of its group, and gets no new sessions.
    pub slow: bool,
    /// Open sessions by the relay.
    pub sessions: usize,
    /// Average time from OPEN to the answer, without the time that the relay needed for the target; `None` before the first.
    pub latency_seconds: Option<f64>,
    /// Connections that are ready and that no session has used.
    pub ready: usize,
    /// Idle connections that sessions have used.
    pub used: usize,
    /// How many there should be.
    pub wanted: usize,
    /// Sessions that got a connection that sessions have used.
    pub reused: u64,
    /// Sessions that got an unused ready connection.
    pub hits: u64,
    /// Sessions that had to dial.
    pub misses: u64,
    /// Connections that had died when a session came.
    pub stale: u64,
}

/// One end of a lane, which carries the packets of a tunnel that are not TCP.
#[derive(Debug, Clone, Serialize)]
pub struct LaneView {
    /// The listener that owns the lane.
    pub listener: String,
    /// The path by which the lane was dialled, or the relay that dialled it.
    pub by: String,
    /// Whether this relay dialled the lane.
    pub dialled: bool,
    /// Whether both sides have agreed on the lane.
    pub stands: bool,
    /// The age, in seconds.
    pub seconds: f64,
    /// Packets that wait to be sent.
    pub waiting: usize,
    /// Packets to the other side so far.
    pub packets_sent: u64,
    /// Packets from the other side so far.
    pub packets_received: u64,
    /// Bytes of sent packets.
    pub bytes_sent: u64,
    /// Bytes of received packets.
    pub bytes_received: u64,
    /// Packets that went nowhere, in either direction.
    pub packets_dropped: u64,
    /// The dropped packets by reason; only reasons that occurred.
    pub dropped_for: BTreeMap<&'static str, u64>,
}

/// An interface with a shared rate.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceView {
    /// The name of the interface.
    pub interface: String,
    /// The shared rate in bits per second, headers of all packets included.
    pub rate_bits_per_second: u64,
    /// Sections that send now.
    pub sending: usize,
    /// The rate available per unit of weight, in bits per second; `None` while no section wants that much.
    pub level_bits_per_second: Option<u64>,
    /// Rate sent in the last second, in bits per second, in bits a second.
    pub sent_bits_per_second: u64,
    /// Jain's index of the weighted rates of limited sections over the last second (1 is equal); `None` with fewer than
    /// two.
    pub fairness: Option<f64>,
}

/// The limits and the usage of a user or a listener.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccountView {
    /// The owner of the account: `user` or `listener`.
    pub scope: &'static str,
    /// The name of the user or of the listener.
    pub name: String,
    /// Sessions that are open.
    pub sessions: usize,
    /// Most sessions at once; `None` for no limit.
    pub max_sessions: Option<usize>,
    /// The rate in each direction, in bits per second of payload; `None` for no limit.
    pub rate_bits_per_second: Option<u64>,
    /// The quota in bytes; `None` for no quota.
    pub quota_bytes: Option<u64>,
    /// The time that the quota is for: `day` or `month`.
    pub quota_period: Option<&'static str>,
    /// Bytes of the running day or month.
    pub used_bytes: Option<u64>,
    /// Bytes that are left of the quota.
    pub left_bytes: Option<u64>,
    /// When the quota begins anew, in UTC (RFC 3339).
    pub quota_ends: Option<String>,
    /// Bytes toward servers since the start of the process; of users only.
    pub bytes_up: u64,
    /// Bytes toward the client since the start of the process; of users only.
    pub bytes_down: u64,
    /// Sessions and requests that were refused because all places were taken.
    pub refused_for_sessions: u64,
    /// Sessions and requests that were refused because the quota was used up.
    pub refused_for_quota: u64,
}

impl AccountView {
    /// A view of several accounts together, before the first of them.
    #[must_use]
    pub fn empty(scope: &'static str, name: &str) -> Self {
        Self { scope, name: name.to_owned(), ..Self::default() }
    }

    /// Adds the counts of another account. Limits are of one account only.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.refused_for_sessions += other.refused_for_sessions;
        self.refused_for_quota += other.refused_for_quota;
    }
}

/// Upgrades of this process that came to nothing.
#[derive(Debug, Default)]
pub struct UpgradeAttempts(Mutex<LastFailure>);

#[derive(Debug, Default)]
struct LastFailure {
    count: u64,
    why: Option<String>,
    patience: Duration,
}

/// The identity of a relay, and the outcome of its upgrades.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpgradeView {
    /// The pid of the relay.
    pub pid: u32,
    /// Start time in clock ticks after boot: together with the pid it identifies one process.
    pub started: Option<u64>,
    /// The version of the program.
    pub version: String,
    /// How many upgrades have failed.
    pub failed: u64,
    /// Why, the last time.
    pub why: Option<String>,
    /// How long a new process may take.
    pub patience_seconds: f64,
}

impl UpgradeAttempts {
    /// Sets the timeout of the next upgrade.
    pub fn set_timeout(&self, patience: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).patience = patience;
    }

    /// Records a failed upgrade.
    pub fn record_failure(&self, why: String) {
        let mut last_failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last_failure.count += 1;
        last_failure.why = Some(why);
    }

    /// The upgrade as the admin interface shows it.
    #[must_use]
    pub fn view(&self) -> UpgradeView {
        let last_failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        UpgradeView {
            pid,
            started: process::start_time(pid),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            failed: last_failure.count,
            why: last_failure.why.clone(),
            patience_seconds: last_failure.patience.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn queued_packets_are_the_window_beyond_the_minimum_rtt() {
        let info = |cwnd, rtt, min_rtt| {
            let (rtt, min_rtt) = (Duration::from_millis(rtt), Duration::from_millis(min_rtt));
            queued_packets(&SectionInfo { cwnd, rtt, min_rtt, ..SectionInfo::default() })
        };
        assert_eq!([info(100, 40, 30), info(100, 30, 30), info(100, 30, 40), info(9, 0, 0)], [25, 0, 0, 0]);
    }
}
