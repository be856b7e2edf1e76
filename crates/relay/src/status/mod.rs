//! The views of a running relay: the answer of `/api/sessions`, which `ekiden status` reads.

pub mod fleet;
mod table;
pub mod upgrades;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::event::{ChoiceRecord, SectionInfo};
use ekiden_proto::limiting::Diagnoses;
use ekiden_proto::wire::section::TraceId;
use ekiden_sys::congestion;
use ekiden_sys::tcp_info::tcp_info;
use serde::Serialize;

use crate::config::congestion::{CongestionControls, Telemetry};
use crate::shaping::autotune::{Tuner, TuningView};

pub use table::table;

/// One session that is open now.
#[derive(Debug, Clone, Serialize)]
pub struct SessionView {
    /// Number of the session.
    pub session: u64,
    /// The listener it came in by.
    pub listener: String,
    /// Who connected.
    pub client: ClientAddr,
    /// The user name, where the listener asks for one.
    pub user: Option<String>,
    /// The relay that has sent it, by its name or its key.
    pub peer: Option<String>,
    /// Its name on all relays it goes through.
    pub trace: Option<TraceId>,
    /// Where the client wants to go.
    pub target: Option<Target>,
    /// What was dialled for it.
    pub server: Option<ServerAddr>,
    /// Names of the hops, or `direct`.
    pub path: String,
    /// Why that path, where the relay has chosen it.
    pub chosen: Option<ChoiceRecord>,
    /// Age.
    pub seconds: f64,
    /// Bytes toward the server so far.
    pub bytes_up: u64,
    /// Bytes toward the client so far.
    pub bytes_down: u64,
    /// The client's section.
    pub down: Option<SectionView>,
    /// The server's section.
    pub up: Option<SectionView>,
    /// What has held it back in the last seconds.
    pub limits: Diagnoses,
}

/// One section that is open now.
#[derive(Debug, Clone, Serialize)]
pub struct SectionView {
    /// What the kernel knows of every connection.
    #[serde(flatten)]
    pub info: SectionInfo,
    /// Its congestion control.
    pub congestion: String,
    /// Congestion window, packets.
    pub window: u32,
    /// The round trip without queues.
    pub base_rtt_seconds: f64,
    /// Its packets in the path's queues, as estimated.
    pub queued: u32,
    /// What its congestion control says, where that is one of ours.
    pub told: Option<Telemetry>,
    /// What is chosen for it as it goes on, where it is tuned.
    pub tuning: Option<TuningView>,
}

impl SectionView {
    /// That of `socket`; none when the kernel knows nothing of it.
    pub fn from_socket(
        socket: impl AsFd + Copy,
        controls: &CongestionControls,
        tuner: Option<Rc<Tuner>>,
    ) -> Option<Self> {
        let info = tcp_info(socket.as_fd()).ok()?;
        let congestion = congestion::of_socket(socket).ok()?;
        let told = controls.telemetry(&congestion, socket.as_fd()).filter(|told| told.rounds > 0);
        let (window, base_rtt, queued) = match told {
            Some(told) => (told.window, told.base_rtt, told.queued),
            None => (info.cwnd, info.min_rtt, queued_packets(&info)),
        };
        let tuning = tuner.and_then(|tuner| tuner.view());
        Some(Self { info, congestion, window, base_rtt_seconds: base_rtt.as_secs_f64(), queued, told, tuning })
    }
}

/// Packets in queues, of a connection that uses its window: what the window has beyond one round trip without queues
/// (Brakmo, Peterson: TCP Vegas, 1995).
fn queued_packets(info: &SectionInfo) -> u32 {
    let (rtt, base) = (info.rtt.as_micros(), info.min_rtt.as_micros());
    if base == 0 {
        return 0;
    }
    let beyond = u128::from(info.cwnd) * rtt.saturating_sub(base) / rtt.max(1);
    u32::try_from(beyond).unwrap_or(u32::MAX)
}

/// The pool of one next relay.
#[derive(Debug, Clone, Serialize)]
pub struct PoolView {
    /// The relay's name.
    pub relay: String,
    /// Whether it could be reached the last time somebody tried.
    pub up: bool,
    /// Connections that are ready.
    pub ready: usize,
    /// How many there should be.
    pub wanted: usize,
    /// Sessions that got one.
    pub hits: u64,
    /// Sessions that had to dial.
    pub misses: u64,
    /// Connections that had died when a session came.
    pub stale: u64,
}

/// One end of a lane: packets that are not TCP, through a tunnel.
#[derive(Debug, Clone, Serialize)]
pub struct LaneView {
    /// The listener that it belongs to.
    pub listener: String,
    /// The path it was dialled by, or the relay that has dialled it.
    pub by: String,
    /// Whether we have dialled it.
    pub dialled: bool,
    /// Whether both sides have agreed on it.
    pub stands: bool,
    /// Age.
    pub seconds: f64,
    /// Packets that wait to be sent.
    pub waiting: usize,
    /// Packets to the other side so far.
    pub packets_sent: u64,
    /// Packets from the other side so far.
    pub packets_received: u64,
    /// Bytes of those that were sent.
    pub bytes_sent: u64,
    /// Bytes of those that were received.
    pub bytes_received: u64,
    /// Packets that went nowhere, in either direction.
    pub packets_dropped: u64,
    /// The dropped packets by reason; only reasons that occurred.
    pub dropped_for: BTreeMap<&'static str, u64>,
}

/// An interface whose rate sections share.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceView {
    /// Its name.
    pub interface: String,
    /// What is shared, in bits a second, with the headers of all packets.
    pub rate_bits_per_second: u64,
    /// Sections that send now.
    pub sending: usize,
    /// What each can have for one unit of weight, in bits a second; none while nobody wants that much.
    pub level_bits_per_second: Option<u64>,
    /// Rate sent in the last second, in bits per second, in bits a second.
    pub sent_bits_per_second: u64,
    /// How alike the rates of those were in the last second that were held back, for their weights (Jain's index: 1 is
    /// alike); none when there were fewer than two.
    pub fairness: Option<f64>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn queues_are_what_the_window_has_beyond_a_round_trip() {
        let info = |cwnd, rtt, min_rtt| {
            let (rtt, min_rtt) = (Duration::from_millis(rtt), Duration::from_millis(min_rtt));
            queued_packets(&SectionInfo { cwnd, rtt, min_rtt, ..SectionInfo::default() })
        };
        assert_eq!([info(100, 40, 30), info(100, 30, 30), info(100, 30, 40), info(9, 0, 0)], [25, 0, 0, 0]);
    }
}
