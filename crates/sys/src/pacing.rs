//! The maximum pacing rate of a connection (`SO_MAX_PACING_RATE` of socket(7)), and its send counters (`TCP_INFO` of
//! tcp(7)).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use libc::c_int;

use crate::option::{get, set};
use crate::tcp_info::read;

/// The pacing rate without a bound, the initial value of a socket.
pub const UNLIMITED: u64 = u64::MAX;

/// Length of the header of IPv4, IPv6 and TCP, and of timestamps (RFC 7323), in bytes.
const IPV4: u64 = 20;
const IPV6: u64 = 40;
const TCP: u64 = 20;
const TIMESTAMPS: u64 = 12;

/// `TCPI_OPT_TIMESTAMPS` of linux/tcp.h, and the offset of its field.
const OPTIONS: usize = 5;
const HAS_TIMESTAMPS: u8 = 1;

/// The send counters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendCounters {
    /// Bytes of payload, including retransmissions; 0 before Linux 4.19.
    pub bytes: u64,
    /// Payload of a full packet, in bytes.
    pub mss: u64,
    /// Bytes of IP and TCP headers per packet.
    pub headers: u64,
    /// Bytes that were written and not yet sent.
    pub unsent: u64,
    /// Time for which only the receiver's window limited the sender.
    pub rwnd_limited: Duration,
}

/// Returns the maximum pacing rate of a connection, in bytes of payload per second.
///
/// # Errors
/// The kernel's error.
pub fn max_pacing_rate(socket: BorrowedFd<'_>) -> io::Result<u64> {
    get(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)
}

/// Sets [`max_pacing_rate`]. From then on the kernel paces the connection, even after the bound is removed.
///
/// # Errors
/// The kernel's error.
pub fn set_max_pacing_rate(socket: BorrowedFd<'_>, rate: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate)
}

/// Returns the current rate of a paced connection, in bytes of payload per second. The kernel or the congestion control
/// computes the rate, bounded by [`max_pacing_rate`].
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn pacing_rate(socket: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(read(socket)?.u64(104))
}

/// Returns whether the socket is Multipath TCP, whose packets may leave by several interfaces and are not paced by this
/// socket.
#[must_use]
pub fn is_multipath(socket: BorrowedFd<'_>) -> bool {
    get::<c_int>(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL).is_ok_and(|protocol| protocol == libc::IPPROTO_MPTCP)
}

/// Reads the send counters of a connection.
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn send_counters(socket: BorrowedFd<'_>) -> io::Result<SendCounters> {
    let info = read(socket)?;
    let family: c_int = get(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let options = info.field::<1>(OPTIONS).map_or(0, |[options]| options);
    let timestamps = if options & HAS_TIMESTAMPS == 0 { 0 } else { TIMESTAMPS };
    // An IPv6 socket may carry IPv4; then this is a little too much.
    let ip = if family == libc::AF_INET { IPV4 } else { IPV6 };
    Ok(SendCounters {
        bytes: info.u64(200),
        mss: u64::from(info.u32(16)).max(1),
        headers: ip + TCP + timestamps,
        unsent: u64::from(info.u32(144)),
        rwnd_limited: info.micros(176),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;
    use ekiden_testing::{eventually, tcp_pair};

    #[test]
    fn pacing_rate_obeys_the_maximum() {
        let (near, _far) = tcp_pair();
        assert!(pacing_rate(near.as_fd()).unwrap() > 100_000, "ten packets in a round trip of loopback");
        set_max_pacing_rate(near.as_fd(), 100_000).unwrap();
        assert_eq!(pacing_rate(near.as_fd()).unwrap(), 100_000);
    }

    #[test]
    fn send_counters_report_bytes_mss_and_headers() {
        let (mut near, mut far) = tcp_pair();
        assert_eq!(send_counters(near.as_fd()).unwrap().bytes, 0);
        near.write_all(&[1; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let SendCounters { bytes, mss: segment, headers, unsent, rwnd_limited: receiver_held } =
            send_counters(near.as_fd()).unwrap();
        assert_eq!((bytes, unsent, receiver_held), (1000, 0, Duration::ZERO));
        assert!((500..=65_536).contains(&segment), "{segment}");
        assert!([40, 52].contains(&headers), "{headers}");
        assert_eq!(send_counters(far.as_fd()).unwrap().bytes, 0);
    }

    #[test]
    fn time_limited_by_the_receiver_is_counted() {
        let (mut near, _reads_nothing) = tcp_pair();
        near.set_nonblocking(true).unwrap();
        while near.write(&[1; 65_536]).is_ok() {}
        let held = eventually("time limited by the receiver", || {
            Some(send_counters(near.as_fd()).unwrap()).filter(|held| held.rwnd_limited > Duration::ZERO)
        });
        assert!(held.unsent > 0, "{held:?}");
    }

    #[test]
    fn max_pacing_rate_is_set_and_lifted() {
        let (near, _far) = tcp_pair();
        assert_eq!(max_pacing_rate(near.as_fd()).unwrap(), UNLIMITED);
        // More than 32 bits: 400 Gbit/s.
        for rate in [1000, 50_000_000_000, UNLIMITED] {
            set_max_pacing_rate(near.as_fd(), rate).unwrap();
            assert_eq!(max_pacing_rate(near.as_fd()).unwrap(), rate);
        }
        assert!(!is_multipath(near.as_fd()));
    }
}
