//! The timers of a connection, and the counters for tuning them (tcp(7), `TCP_INFO`).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ekiden_proto::path::reading::TcpCounters;
use ekiden_proto::tuning::TuningSample;
use libc::c_int;

use crate::option::get;
use crate::sockopt::{TCP_DELACK_MAX_US, TCP_RTO_MAX_MS, TCP_RTO_MIN_US};
use crate::tcp_info::{RawTcpInfo, counters, read};

/// Timer options in force; `None` for options that this kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpTimers {
    /// The value of `TCP_RTO_MIN_US`.
    pub rto_min: Option<Duration>,
    /// The value of `TCP_RTO_MAX_MS`.
    pub rto_max: Option<Duration>,
    /// The value of `TCP_DELACK_MAX_US`.
    pub delack_max: Option<Duration>,
    /// `TCP_NOTSENT_LOWAT`, bytes; 0 for the host's default.
    pub notsent_lowat: Option<u32>,
    /// The value of `TCP_THIN_LINEAR_TIMEOUTS`.
    pub thin_linear_timeouts: Option<bool>,
    /// `TCP_USER_TIMEOUT`; zero for the host's default.
    pub user_timeout: Option<Duration>,
    /// The resulting retransmission timeout, `tcpi_rto`.
    pub rto: Option<Duration>,
}

/// Returns the timer options of a connection.
#[must_use]
pub fn tcp_timers(socket: BorrowedFd<'_>) -> TcpTimers {
    let option = |name| get::<c_int>(socket, libc::IPPROTO_TCP, name).ok().map(c_int::cast_unsigned);
    let micros = |value: u32| Duration::from_micros(u64::from(value));
    let millis = |value: u32| Duration::from_millis(u64::from(value));
    TcpTimers {
        rto_min: option(TCP_RTO_MIN_US).map(micros),
        rto_max: option(TCP_RTO_MAX_MS).map(millis),
        user_timeout: option(libc::TCP_USER_TIMEOUT).map(millis),
        delack_max: option(TCP_DELACK_MAX_US).map(micros),
        notsent_lowat: option(libc::TCP_NOTSENT_LOWAT),
        thin_linear_timeouts: option(libc::TCP_THIN_LINEAR_TIMEOUTS).map(|value| value != 0),
        rto: read(socket).ok().map(|raw| micros_at(&raw, 8)),
    }
}

/// Returns the counters of a connection; `at` is the time of the sample.
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn tuning_sample(socket: BorrowedFd<'_>, at: Duration) -> io::Result<TuningSample> {
    let raw = read(socket)?;
    let TcpCounters { rtt, min_rtt, segments_sent, retransmitted, spurious, segments_received, out_of_order, .. } =
        counters(&raw);
    Ok(TuningSample {
        taken_at: at,
        rtt,
        min_rtt,
        rttvar: micros_at(&raw, 72),
        segments_sent,
        retransmitted,
        spurious,
        segments_received,
        out_of_order,
    })
}

fn micros_at(raw: &RawTcpInfo, offset: usize) -> Duration {
    Duration::from_micros(u64::from(raw.u32(offset)))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use ekiden_proto::profile::{Outcome, Setting};

    use super::*;
    use crate::namespace::run_in_namespace;
    use crate::sockopt::{SocketRole, apply_setting};
    use ekiden_testing::{skipped, tcp_pair};

    /// Whether the kernel has the timer options. If not, the function prints the reason, and the test must return or
    /// leave these options out.
    pub(crate) fn has_timer_options() -> bool {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let has = tcp_timers(socket.as_fd()).rto_min.is_some();
        if !has {
            skipped("this kernel has no TCP_RTO_MIN_US (Linux 6.15)");
        }
        has
    }

    #[test]
    fn timer_settings_take_effect_and_segments_are_counted() {
        if !has_timer_options() {
            return;
        }
        let (mut near, mut far) = tcp_pair();
        for (key, value) in [("rto_min", "40ms"), ("rto_max", "2s"), ("delack_max", "20ms"), ("notsent_lowat", "64KiB")]
        {
            let outcome = apply_setting(near.as_fd(), &Setting::read(key, value).unwrap(), SocketRole::Dialer);
            assert_eq!(outcome, Outcome::Applied, "{key}");
        }
        let now = tcp_timers(near.as_fd());
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!((now.rto_min, now.rto_max, now.delack_max), (millis(40), millis(2000), millis(20)));
        assert_eq!((now.notsent_lowat, now.thin_linear_timeouts), (Some(64 * 1024), Some(false)));

        for _ in 0..3 {
            near.write_all(b"ping").unwrap();
            far.read_exact(&mut [0; 4]).unwrap();
            far.write_all(b"pong").unwrap();
            near.read_exact(&mut [0; 4]).unwrap();
        }
        let at = Duration::from_secs(9);
        let seen = tuning_sample(near.as_fd(), at).unwrap();
        assert_eq!((seen.taken_at, seen.segments_sent, seen.segments_received), (at, 3, 3), "{seen:?}");
        assert_eq!((seen.retransmitted, seen.spurious, seen.out_of_order), (0, 0, 0), "{seen:?}");
        assert!(seen.rtt > Duration::ZERO && seen.rttvar < Duration::from_secs(1));
        let timeout = tcp_timers(near.as_fd()).rto.unwrap();
        assert!(timeout >= seen.rtt + Duration::from_millis(40) - Duration::from_millis(8), "{timeout:?}");
    }

    /// Bug: the kernel's value for a minimum that is not measured yet, `u32::MAX`, was taken for 71 minutes.
    #[test]
    fn round_trip_times_are_zero_before_the_first_measurement() {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let seen = tuning_sample(socket.as_fd(), Duration::ZERO).unwrap();
        assert_eq!((seen.rtt, seen.min_rtt), (Duration::ZERO, Duration::ZERO));
    }

    /// Assumption about the kernel: a route's `rto_min` overrides the socket's, but not the socket's upper bound.
    #[test]
    fn rto_max_overrides_rto_min_of_the_route() {
        if !has_timer_options() {
            return;
        }
        let network = ["ip link set lo up", "ip route add local 127.7.0.0/16 dev lo rto_min 9s table local"];
        run_in_namespace(&network, || {
            let listener = TcpListener::bind("127.7.0.1:0").unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            let mut timeout_with = |key, value| {
                let outcome = apply_setting(near.as_fd(), &Setting::read(key, value).unwrap(), SocketRole::Dialer);
                assert_eq!(outcome, Outcome::Applied, "{key}");
                near.write_all(b"ping").unwrap();
                far.read_exact(&mut [0; 4]).unwrap();
                far.write_all(b"pong").unwrap();
                near.read_exact(&mut [0; 4]).unwrap();
                tcp_timers(near.as_fd()).rto.unwrap()
            };
            assert!(timeout_with("rto_min", "40ms") >= Duration::from_secs(9));
            assert_eq!(timeout_with("rto_max", "1s"), Duration::from_secs(1));
        });
    }

    /// The relay sets no initial options on accepted sockets, so they must inherit those of their listener.
    #[test]
    fn accepted_sockets_have_the_timers_of_their_listener() {
        if !has_timer_options() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for (key, value) in
            [("rto_min", "48ms"), ("rto_max", "3s"), ("delack_max", "16ms"), ("thin_linear_timeouts", "true")]
        {
            let outcome = apply_setting(listener.as_fd(), &Setting::read(key, value).unwrap(), SocketRole::Listener);
            assert_eq!(outcome, Outcome::Applied, "{key}");
        }
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let now = tcp_timers(listener.accept().unwrap().0.as_fd());
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!((now.rto_min, now.rto_max, now.delack_max), (millis(48), millis(3000), millis(16)));
        assert_eq!(now.thin_linear_timeouts, Some(true));
    }
}
