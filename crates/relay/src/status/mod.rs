//! The status of a running relay: the types of `/api/sessions`, which `ekiden status` reads, and of `/api/upgrade`.

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

/// An open session in the admin interface.
#[derive(Debug, Clone, Serialize)]
pub struct SessionView {
    /// Number of the session, unique in one run of the relay.
    pub session: u64,
    /// Name of the listener that accepted the session.
    pub listener: String,
    /// The address of the client.
    pub client: ClientAddr,
    /// TLS of the section to the client, if the listener speaks TLS.
    pub tls: Option<TlsView>,
    /// 2 if the session is a stream of an HTTP/2 connection.
    pub http: Option<u8>,
    /// The user name, if the listener requires authentication.
    pub user: Option<String>,
    /// Name or key of the relay that opened the session; `None` for a client.
    pub peer: Option<String>,
    /// The trace id, which all relays on the path share.
    pub trace: Option<TraceId>,
    /// The host and port that the client requested.
    pub target: Option<Target>,
    /// The server name in the first bytes of an intercepted client.
    pub server_name: Option<String>,
    /// The dialled address and port: the target, or the first hop.
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
    /// The section toward the client.
    pub down: Option<SectionView>,
    /// The section toward the server or the next relay.
    pub up: Option<SectionView>,
    /// Limiting factor of each direction over the last seconds.
    pub limits: Diagnoses,
}

/// TLS of the section to a client.
#[derive(Debug, Clone, Serialize)]
pub struct TlsView {
    /// The version of the TLS protocol.
    pub version: &'static str,
    /// The negotiated cipher suite.
    pub cipher: &'static str,
    /// How data crosses the relay: `spliced` if the kernel encrypts, `copied` if this process does.
    pub transfer: &'static str,
}

impl TlsView {
    /// Creates the view of a connection.
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
    /// Minimum round-trip time, without queueing, in seconds.
    pub base_rtt_seconds: f64,
    /// Estimate of the connection's packets in queues on the path.
    pub queued: u32,
    /// Telemetry of the congestion control, if it is one of ekiden's.
    pub told: Option<Telemetry>,
    /// The settings chosen by tuning, if the section is tuned.
    pub tuning: Option<TuningView>,
}

impl SectionView {
    /// Creates the view of `socket`; `None` if the kernel reports no `TCP_INFO` or congestion control.
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

/// Estimates the number of packets of a connection in queues: the part of a fully used window beyond one round trip
/// without queueing (Brakmo, Peterson: TCP Vegas, 1995).
fn queued_packets(info: &SectionInfo) -> u32 {
    let (rtt, base) = (info.rtt.as_micros(), info.min_rtt.as_micros());
    if base == 0 {
        return 0;
    }
    let queued = u128::from(info.cwnd) * rtt.saturating_sub(base) / rtt.max(1);
    u32::try_from(queued).unwrap_or(u32::MAX)
}

/// The connection pool of one next relay.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PoolView {
    /// The name of the relay.
    pub relay: String,
    /// Whether the last attempt to reach the relay succeeded.
    pub up: bool,
    /// Whether the relay is slower than the other members of its group, and gets no new sessions.
    pub slow: bool,
    /// Number of open sessions through the relay.
    pub sessions: usize,
    /// Average time in seconds from OPEN to the answer, without the time that the relay needed for the target; `None`
    /// before the first answer.
    pub latency_seconds: Option<f64>,
    /// Number of ready connections that no session has used.
    pub ready: usize,
    /// Number of idle connections that sessions have used.
    pub used: usize,
    /// Target number of ready connections.
    pub wanted: usize,
    /// Number of sessions that got a connection which earlier sessions had used.
    pub reused: u64,
    /// Number of sessions that got an unused ready connection.
    pub hits: u64,
    /// Number of sessions that had to dial.
    pub misses: u64,
    /// Number of ready connections that turned out to be closed when a session needed them.
    pub stale: u64,
}

/// One end of a lane, which carries the non-TCP packets of a tunnel.
#[derive(Debug, Clone, Serialize)]
pub struct LaneView {
    /// The listener that owns the lane.
    pub listener: String,
    /// The path that the lane was dialled by, or the relay that dialled it.
    pub by: String,
    /// Whether this relay dialled the lane.
    pub dialled: bool,
    /// Whether both sides have agreed on the lane.
    pub stands: bool,
    /// Age of the lane, in seconds.
    pub seconds: f64,
    /// Number of packets queued for sending.
    pub waiting: usize,
    /// Number of packets sent to the other side.
    pub packets_sent: u64,
    /// Number of packets received from the other side.
    pub packets_received: u64,
    /// Sum of the sizes of sent packets.
    pub bytes_sent: u64,
    /// Sum of the sizes of received packets.
    pub bytes_received: u64,
    /// Number of packets dropped, in both directions.
    pub packets_dropped: u64,
    /// Number of dropped packets by reason; only reasons that occurred.
    pub dropped_for: BTreeMap<&'static str, u64>,
}

/// An interface with a shared rate.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceView {
    /// The name of the interface.
    pub interface: String,
    /// The shared rate in bits per second, including the headers of all packets.
    pub rate_bits_per_second: u64,
    /// Number of sections that send at present.
    pub sending: usize,
    /// The rate available per unit of weight, in bits per second; `None` while the sections need less than the shared
    /// rate.
    pub level_bits_per_second: Option<u64>,
    /// Rate sent in the last second, in bits per second.
    pub sent_bits_per_second: u64,
    /// Jain's fairness index of the weighted rates of limited sections over the last second (1 is equal); `None` with
    /// fewer than two such sections.
    pub fairness: Option<f64>,
}

/// The limits and the usage of a user or a listener.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccountView {
    /// The owner of the account: `user` or `listener`.
    pub scope: &'static str,
    /// The name of the user or of the listener.
    pub name: String,
    /// Number of open sessions.
    pub sessions: usize,
    /// Maximum number of open sessions; `None` for no limit.
    pub max_sessions: Option<usize>,
    /// The rate in each direction, in bits per second of payload; `None` for no limit.
    pub rate_bits_per_second: Option<u64>,
    /// The quota in bytes; `None` for no quota.
    pub quota_bytes: Option<u64>,
    /// The period of the quota: `day` or `month`.
    pub quota_period: Option<&'static str>,
    /// Bytes used in the current day or month; `None` without a quota.
    pub used_bytes: Option<u64>,
    /// Bytes left of the quota; `None` without a quota.
    pub left_bytes: Option<u64>,
    /// Start of the next quota period, in UTC (RFC 3339); `None` without a quota.
    pub quota_ends: Option<String>,
    /// Bytes sent toward servers since the start of the process; 0 for listeners.
    pub bytes_up: u64,
    /// Bytes sent toward the client since the start of the process; 0 for listeners.
    pub bytes_down: u64,
    /// Number of sessions and requests refused because the maximum number of sessions was reached.
    pub refused_for_sessions: u64,
    /// Number of sessions and requests refused because the quota was used up.
    pub refused_for_quota: u64,
}

impl AccountView {
    /// Creates an account with zero counts, for the sum of several accounts.
    #[must_use]
    pub fn empty(scope: &'static str, name: &str) -> Self {
        Self { scope, name: name.to_owned(), ..Self::default() }
    }

    /// Adds the counts of another account. Limits are not added: each applies to one account only.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.refused_for_sessions += other.refused_for_sessions;
        self.refused_for_quota += other.refused_for_quota;
    }
}

/// Number and last reason of failed upgrades of this process, and the timeout of the next upgrade.
#[derive(Debug, Default)]
pub struct UpgradeAttempts(Mutex<LastFailure>);

#[derive(Debug, Default)]
struct LastFailure {
    count: u64,
    why: Option<String>,
    time_limit: Duration,
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
    /// Number of failed upgrades.
    pub failed: u64,
    /// Reason of the last failed upgrade.
    pub why: Option<String>,
    /// Time in which a new process must start to serve, in seconds.
    pub patience_seconds: f64,
}

impl UpgradeAttempts {
    /// Sets the time in which the new process of the next upgrade must start to serve.
    pub fn set_timeout(&self, time_limit: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).time_limit = time_limit;
    }

    /// Records a failed upgrade.
    pub fn record_failure(&self, why: String) {
        let mut last_failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last_failure.count += 1;
        last_failure.why = Some(why);
    }

    /// Creates the view for the admin interface.
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
            patience_seconds: last_failure.time_limit.as_secs_f64(),
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
