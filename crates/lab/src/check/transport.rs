//! Checks the throughput of TCP over a link against theory, by transfers between two sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_sys::queued::lock_receive_buffer;

use super::rate::format_rate;
use super::row::Finding;
use crate::topology::network::HostHandle;

/// Returns the payload of a full segment, in bytes: the packet without its IP and TCP headers and the timestamps option
/// (RFC 7323).
pub const fn max_segment_size(mtu: u32) -> u32 {
    mtu - 20 - 20 - 12
}

/// Maximum relative deviation of a measured throughput from its law.
const TOLERANCE: f64 = 0.15;

/// Number of cycles before the steady state.
const WARM_UP_CYCLES: u64 = 3;

/// Minimum number of cycles of congestion avoidance to compare.
const MIN_CYCLES: u64 = 3;

/// Receive buffer of a transfer, in bytes. The laws presume that only the congestion window limits the sender, from the
/// first round trip. CUBIC returns to its mean window within a few cycles from above, but not from below (the window
/// stays on the plateau of its cubic function). If the receiver ended slow start early, the window would stay too small
/// for many cycles.
const RECEIVE_BUFFER: u32 = 16 << 20;

/// Pairs of seconds since the start and bytes received.
pub type ByteTimeline = Vec<(f64, u64)>;

/// A congestion control whose throughput under periodic loss is known in closed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThroughputModel {
    /// Reno: Mathis, Semke, Mahdavi, Ott 1997, equation 3.
    Reno,
    /// CUBIC: RFC 9438 section 5.1, equation 6, or the window of Reno if it is larger (section 4.3).
    Cubic,
}

impl ThroughputModel {
    /// Returns the law of a congestion control, by its name in the kernel; `None` if no law is known.
    pub fn for_congestion_control(congestion: &str) -> Option<Self> {
        match congestion {
            "reno" => Some(Self::Reno),
            "cubic" => Some(Self::Cubic),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Reno => "Mathis",
            Self::Cubic => "RFC 9438 (6)",
        }
    }

    /// Returns the mean window in segments, with one loss in `period` packets and a round-trip time of `rtt` seconds.
    /// The kernel counts acknowledged segments and not acknowledgements, so that delayed acknowledgements do not slow
    /// growth (RFC 3465).
    pub fn mean_window(self, period: u64, rtt: f64) -> f64 {
        const C: f64 = 0.4;
        const BETA: f64 = 0.7;
        let period = period as f64;
        let reno = (1.5 * period).sqrt();
        match self {
            Self::Reno => reno,
            Self::Cubic => {
                let shape = (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
                reno.max(shape * (rtt * period).powf(0.75))
            }
        }
    }
}

/// A path with periodic loss.
#[derive(Debug, Clone, Copy)]
pub struct PeriodicLoss {
    /// The throughput law to compare with.
    pub model: ThroughputModel,
    /// Number of packets of which one is lost.
    pub period: u64,
    /// The round-trip time, in seconds.
    pub rtt: f64,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
}

impl PeriodicLoss {
    /// Returns the throughput by the law, in bytes per second.
    fn predicted_rate(&self) -> f64 {
        self.model.mean_window(self.period, self.rtt) / self.rtt * f64::from(max_segment_size(self.mtu))
    }

    /// Returns the predicted duration of the warm-up and `cycles` further cycles, plus one second.
    pub fn min_duration(&self, cycles: u64) -> Duration {
        Duration::from_secs_f64(
            self.cycle_bytes() as f64 * (cycles + WARM_UP_CYCLES) as f64 / self.predicted_rate() + 1.0,
        )
    }

    /// Returns the number of bytes that arrive between two losses.
    fn cycle_bytes(&self) -> u64 {
        self.period * u64::from(max_segment_size(self.mtu))
    }

    /// Compares the steady state of a transfer with theory, over whole cycles from loss to loss.
    pub fn check_steady_state(&self, timeline: &ByteTimeline) -> Finding {
        let total = timeline.last().map_or(0, |(_, bytes)| *bytes);
        let cycles = (total / self.cycle_bytes()).saturating_sub(WARM_UP_CYCLES);
        let first = time_of_byte(timeline, WARM_UP_CYCLES * self.cycle_bytes());
        let last = time_of_byte(timeline, (WARM_UP_CYCLES + cycles) * self.cycle_bytes());
        let rate = (cycles * self.cycle_bytes()) as f64 / (last - first);
        let error = rate / self.predicted_rate() - 1.0;
        let (law, rtt) = (self.model.name(), self.rtt * 1e3);
        Finding {
            wanted: format!(
                "{law} at p = 1/{}, RTT {rtt:.0} ms: {} ± {:.0} %",
                self.period,
                format_rate(self.predicted_rate() * 8.0),
                TOLERANCE * 100.0
            ),
            measured: format!("{} ({:+.1} %) over {cycles} cycles", format_rate(rate * 8.0), error * 100.0),
            pass: cycles >= MIN_CYCLES && error.abs() <= TOLERANCE,
        }
    }
}

/// Returns the time at which `bytes` had arrived, in seconds; NaN if fewer bytes arrived.
fn time_of_byte(timeline: &ByteTimeline, bytes: u64) -> f64 {
    let index = timeline.partition_point(|(_, total)| *total < bytes);
    timeline.get(index).map_or(f64::NAN, |(time, _)| *time)
}

/// Returns the mean rate of a transfer without its first quarter, in bits per second.
pub fn goodput(timeline: &ByteTimeline) -> f64 {
    let ended = timeline.last().map_or(0.0, |(time, _)| *time);
    let began = timeline.iter().find(|(time, _)| *time >= ended / 4.0);
    let (Some(began), Some(ended)) = (began, timeline.last()) else { return 0.0 };
    (ended.1 - began.1) as f64 * 8.0 / (ended.0 - began.0).max(1e-9)
}

/// The result of a transfer.
#[derive(Debug)]
pub struct TcpTransfer {
    /// Bytes received over time.
    pub timeline: ByteTimeline,
    /// The congestion control the sender used, by its name in the kernel.
    pub congestion: String,
}

/// Sends for `duration` from one host to the other over one TCP connection, without pause.
///
/// # Errors
/// The connection cannot be established, or fails.
pub fn run_transfer(from: &HostHandle, to: &HostHandle, duration: Duration) -> io::Result<TcpTransfer> {
    let listener = to.enter(|| TcpListener::bind("0.0.0.0:0"))??;
    lock_receive_buffer(listener.as_fd(), RECEIVE_BUFFER)?;
    let target = SocketAddr::new(to.address(), listener.local_addr()?.port());
    let stream = from.enter(|| TcpStream::connect_timeout(&target, Duration::from_secs(10)))??;
    let (accepted, _) = listener.accept()?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&stream, duration));
        let timeline = receive(accepted);
        sending.join().map_err(|_| io::Error::other("the sender panicked"))??;
        let congestion = ekiden_sys::congestion::of_socket(&stream)?;
        Ok(TcpTransfer { timeline: timeline?, congestion })
    })
}

fn send(mut stream: &TcpStream, duration: Duration) -> io::Result<()> {
    let block = vec![0x5a; 1 << 18];
    let end = Instant::now() + duration;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    while Instant::now() < end {
        stream.write_all(&block)?;
    }
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: TcpStream) -> io::Result<ByteTimeline> {
    let mut buffer = vec![0; 1 << 20];
    let (mut timeline, mut total) = (Vec::new(), 0);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let start = Instant::now();
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(timeline);
        }
        total += read as u64;
        timeline.push((start.elapsed().as_secs_f64(), total));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PeriodicLoss = PeriodicLoss { model: ThroughputModel::Reno, period: 600, rtt: 0.05, mtu: 1500 };

    /// Mathis et al.: a mean window of `sqrt(3/2 / p)` segments at a loss probability of p. RFC 9438 table 1, for a
    /// round trip of 0.1 s: mean windows of Reno and CUBIC are 38 and 38 segments at p = 1e-3, 120 and 187 at 1e-4, 379
    /// and 1054 at 1e-5.
    #[test]
    fn mean_windows_match_the_papers() {
        for (every, reno, cubic) in [(1000, 39.0, 39.0), (10_000, 122.0, 187.0), (100_000, 387.0, 1054.0)] {
            assert_eq!(ThroughputModel::Reno.mean_window(every, 0.1).round(), reno);
            assert_eq!(ThroughputModel::Cubic.mean_window(every, 0.1).round(), cubic);
        }
        assert_eq!(
            (ThroughputModel::for_congestion_control("cubic"), ThroughputModel::for_congestion_control("bbr")),
            (Some(ThroughputModel::Cubic), None)
        );
    }

    /// The timeline of a transfer at `rate` bytes per second after a slow start of 1 s, which must not count.
    fn timeline(rate: f64, seconds: u32) -> ByteTimeline {
        let at = |i: u32| f64::from(i) / 100.0;
        (0..seconds * 100).map(|i| (1.0 + at(i), (rate * at(i)) as u64)).collect()
    }

    #[test]
    fn steady_state_within_15_percent_of_theory_passes() {
        // With one loss in 600 packets, the window is sqrt(1.5 * 600) = 30 segments of 1448 bytes, sent every 50 ms.
        let rate = 30.0 * 1448.0 * 20.0;
        assert!((PATH.predicted_rate() - rate).abs() < 1e-6);
        for (factor, pass) in [(1.0, true), (1.14, true), (0.86, true), (1.16, false), (0.84, false)] {
            assert_eq!(PATH.check_steady_state(&timeline(rate * factor, 20)).pass, pass, "{factor}");
        }
        assert!(!PATH.check_steady_state(&timeline(rate, 4)).pass, "the transfer is too short");
        assert!(!PATH.check_steady_state(&ByteTimeline::new()).pass);
    }

    #[test]
    fn min_duration_has_the_required_loss_cycles() {
        let seconds = PATH.min_duration(5).as_secs_f64();
        assert!((seconds - 9.0).abs() < 1e-6, "8 cycles of a second after a first cycle: {seconds}");
    }

    #[test]
    fn goodput_excludes_the_beginning() {
        // Without the first quarter, 36,000 bytes arrive in 3 s: 96,000 bit/s. The whole transfer has 74,000 bit/s, its
        // second half 104,000.
        let timeline = vec![(0.0, 0), (1.0, 1000), (2.0, 11_000), (4.0, 37_000)];
        assert!((goodput(&timeline) - 96_000.0).abs() < 1e-9);
        assert!(goodput(&ByteTimeline::new()).abs() < 1e-9);
    }
}
