//! The model of a path: the rate of a section from its round trip, loss, window and line, and the completion time of a
//! session over several sections in a row. `docs/path-model.md` has the formulas, their sources and their range.
//!
//! Pure functions without state. For every input the result is finite and not negative.

mod response;
mod slow_start;

use std::time::Duration;

use slow_start::transfer_time;

/// Bytes of IP and TCP headers in a packet, with timestamps (RFC 7323).
pub const HEADER_BYTES: u16 = 52;

/// Assumed maximum of data in flight for a sender with unknown buffers, in bytes: Linux lets a send buffer grow to 4
/// MiB (`tcp_wmem`), about half of which is overhead of the packets.
const DEFAULT_WINDOW: u64 = 2 << 20;

/// Upper bound of a predicted time, in seconds: paths with longer times are never chosen, and bounded times can be
/// added.
const MAX_SECONDS: u32 = 365 * 24 * 3600;

/// The congestion control of a sender: its response to loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CongestionControl {
    /// RFC 5681: the window grows by one packet per round trip and halves at a loss.
    Reno,
    /// RFC 9438, the default of Linux.
    #[default]
    Cubic,
    /// Compound TCP (Tan and others 2006), the default of Windows for a decade.
    Ctcp,
    /// BBR version 1 as in Linux (Cardwell and others 2016): it sends at the delivery rate, independent of losses.
    Bbr,
}

impl CongestionControl {
    /// Returns the congestion control with this name in the kernel; CUBIC for unknown names.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        match name {
            "reno" => Self::Reno,
            "ctcp" => Self::Ctcp,
            "bbr" => Self::Bbr,
            _ => Self::Cubic,
        }
    }
}

/// The state of a section's connection when a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Connection {
    /// The connection has to be established: a handshake precedes the data.
    #[default]
    New,
    /// The connection is established, and no session has used it.
    Ready,
    /// Earlier sessions have used the connection. Slow start continues from the congestion window that they have
    /// reached, in bytes.
    Used(u64),
    /// Earlier sessions have used the connection until a loss ended slow start. The transfer begins at the steady rate.
    Settled,
}

impl Connection {
    /// Returns `Ready` or `New`.
    #[must_use]
    pub const fn ready_if(is_ready: bool) -> Self {
        if is_ready { Self::Ready } else { Self::New }
    }

    /// Whether no handshake precedes the data.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        !matches!(self, Self::New)
    }
}

/// The properties of one section, in the direction of the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SectionModel {
    /// Round-trip time without the queue of the relay's own traffic.
    pub rtt: Duration,
    /// Share of packets lost, 0 to 1, independent of the sender.
    pub loss: f64,
    /// Maximum of data in flight, in bytes: the smaller of the two buffers. `None` if unknown.
    pub window: Option<u64>,
    /// The payload rate of the line, in bytes/s; [`payload_rate`] computes it from the line's own rate. `None` if
    /// unknown.
    pub line_rate: Option<f64>,
    /// The congestion control of the section's sender.
    pub congestion: CongestionControl,
    /// Payload of a full packet, in bytes.
    pub mss: u16,
    /// The connection when the session begins.
    pub connection: Connection,
}

impl SectionModel {
    /// The bulk rate of the section, in bytes/s of payload.
    #[must_use]
    pub fn rate(&self) -> f64 {
        response::section_rate(self)
    }

    /// Returns the section for the next session on the same connection, after a transfer of `size` bytes: the
    /// congestion window is kept. A new connection, as the model has toward a client or a server, is new again for each
    /// session.
    #[must_use]
    pub fn after_transfer(self, size: u64) -> Self {
        let connection = match self.connection {
            Connection::New => Connection::New,
            _ => slow_start::connection_after(&self, size),
        };
        Self { connection, ..self }
    }

    /// The round trip in seconds, at least 10 µs: no two processes exchange data faster.
    fn round_trip(&self) -> f64 {
        self.rtt.as_secs_f64().clamp(1e-5, 1e3)
    }

    /// The share of packets lost, as a valid divisor or factor: NaN and negative values count as zero.
    fn loss_share(&self) -> f64 {
        if self.loss > 0.0 { self.loss.min(0.99) } else { 0.0 }
    }

    /// The payload of a packet, in bytes.
    fn payload_bytes(&self) -> f64 {
        f64::from(self.mss.max(1))
    }

    /// The window in packets, at least 1.
    fn max_window(&self) -> f64 {
        (self.window.unwrap_or(DEFAULT_WINDOW) as f64 / self.payload_bytes()).max(1.0)
    }

    /// The variability of the section's rate: 0 if window or line limit it, 1 if only losses limit it.
    fn rate_variability(&self) -> f64 {
        match self.congestion {
            CongestionControl::Bbr => 0.0,
            _ => (1.0 - (self.rate() / self.payload_bytes() / self.max_packet_rate()).powi(2)).max(0.0),
        }
    }

    /// The upper bound by window and line, in packets/s.
    fn max_packet_rate(&self) -> f64 {
        (self.max_window() / self.round_trip()).min(self.line_packet_rate())
    }

    /// The rate of the line, in packets/s.
    fn line_packet_rate(&self) -> f64 {
        self.line_rate.filter(|line| line.is_finite()).map_or(f64::MAX, |line| line.max(1.0) / self.payload_bytes())
    }
}

/// The costs that relays add to a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelayCosts {
    /// Additional delay of the first byte per relay.
    pub hop_delay: Duration,
    /// The rate of one relay, in bytes/s.
    pub relay_rate: f64,
    /// The cost of each relay between equal sections, as a share of the rate of the undivided path.
    pub share: f64,
    /// Whether the client sends its request only after the server's handshake, as with SOCKS and `CONNECT` unless they
    /// are `early`: the answer to OPEN is then transmitted back over the whole path before the request is sent.
    pub waits_for_connect: bool,
}

impl Default for RelayCosts {
    fn default() -> Self {
        Self { hop_delay: Duration::from_micros(400), relay_rate: 1.25e9, share: 0.01, waits_for_connect: false }
    }
}

/// The payload rate of a line of `wire` bytes/s, counted in IP packets: each packet has [`HEADER_BYTES`] and `mss`
/// bytes of payload.
#[must_use]
pub fn payload_rate(wire: f64, mss: u16) -> f64 {
    let mss = f64::from(mss.max(1));
    wire * mss / (mss + f64::from(HEADER_BYTES))
}

/// The bulk rate of a path, in bytes/s: the rate of its slowest section, at most that of a relay, reduced by the cost
/// of relays. 0 without sections.
///
/// Masuya and Shimozono (2014) give it as `Tn = n T - f(n - 1)` for n equal sections.
#[must_use]
pub fn path_rate(sections: &[SectionModel], costs: &RelayCosts) -> f64 {
    combined_rate(sections, costs)
}

/// The time from `connect()` to the first byte of the answer: the handshakes of all sections without a ready
/// connection, one after the other; then the request over all sections and its answer back.
#[must_use]
pub fn time_to_first_byte(sections: &[SectionModel], costs: &RelayCosts) -> Duration {
    Duration::from_secs_f64(first_byte_seconds(sections, costs).min(f64::from(MAX_SECONDS)))
}

/// The time from `connect()` to the last byte of an answer of `size` bytes.
///
/// Sections transfer in parallel, so the time is that to the first byte plus the transfer time of the slowest section.
#[must_use]
pub fn completion(sections: &[SectionModel], size: u64, costs: &RelayCosts) -> Duration {
    Duration::from_secs_f64(completion_seconds(sections, size, costs).min(f64::from(MAX_SECONDS)))
}

/// Reduction of the rate by random variation: half of this value for two equal sections, all of it for many. It is the
/// minimum of several rates that fluctuate by a third; measured in the laboratory.
const SWING: f64 = 0.4;

/// The steady rate of the path, in bytes/s.
fn combined_rate(sections: &[SectionModel], costs: &RelayCosts) -> f64 {
    let slowest = sections.iter().map(SectionModel::rate).reduce(f64::min).unwrap_or(0.0);
    let limit = if relay_count(sections) > 0 { costs.relay_rate } else { f64::MAX };
    (slowest * slowest_share(sections, costs)).min(limit)
}

/// The predicted time to the first byte, in seconds.
fn first_byte_seconds(sections: &[SectionModel], costs: &RelayCosts) -> f64 {
    let without_connection = sections.iter().filter(|section| !section.connection.is_ready());
    let handshakes: f64 = without_connection.map(SectionModel::round_trip).sum();
    let request: f64 = sections.iter().map(SectionModel::round_trip).sum();
    let answer_to_open = match sections.split_last() {
        Some((_, before)) if costs.waits_for_connect => before.iter().map(SectionModel::round_trip).sum(),
        _ => 0.0,
    };
    handshakes + request + answer_to_open + costs.hop_delay.as_secs_f64() * relay_count(sections) as f64
}

/// The predicted time to complete `size` bytes, in seconds.
fn completion_seconds(sections: &[SectionModel], size: u64, costs: &RelayCosts) -> f64 {
    if sections.is_empty() {
        return f64::INFINITY;
    }
    let longest = sections.iter().map(|section| transfer_time(section, size)).fold(0.0, f64::max);
    let through_relays = if relay_count(sections) > 0 { size as f64 / costs.relay_rate } else { 0.0 };
    first_byte_seconds(sections, costs) + (longest / slowest_share(sections, costs)).max(through_relays)
}

/// The number of relays that connect these sections.
fn relay_count(sections: &[SectionModel]) -> usize {
    sections.len().saturating_sub(1)
}

/// The factor on the slowest section's rate in a row of sections.
///
/// Relays: each of n equal sections has n times the rate of the undivided path, and each of n - 1 relays costs `share`
/// of the latter. Random variation: where losses make rates fluctuate, a different section is the slowest at each
/// moment, and the buffer of a relay compensates for little of that. A section that is faster than the slowest one
/// counts less, the faster it is.
fn slowest_share(sections: &[SectionModel], costs: &RelayCosts) -> f64 {
    let Some(slowest) = sections.iter().min_by(|a, b| a.rate().total_cmp(&b.rate())) else { return 1.0 };
    let count: f64 = sections.iter().map(|section| (slowest.rate() / section.rate()).powi(4)).sum();
    let others = (count - 1.0).max(0.0) / count.max(1.0);
    (1.0 - costs.share.clamp(0.0, 0.9) * others) * (1.0 - SWING * slowest.rate_variability() * others)
}

#[cfg(test)]
mod tests;
