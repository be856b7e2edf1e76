//! The kernel's data about a TCP connection (tcp(7), `TCP_INFO`; struct tcp_info in linux/tcp.h).
//!
//! Kernels have only ever appended to the structure, so fields are read by offset within the returned length, and those
//! past it are zero.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use ekiden_proto::event::SectionInfo;
use ekiden_proto::path::reading::TcpCounters;
use ekiden_proto::resume::SectionStart;

const LONGEST: usize = 256;

/// The structure as returned by the kernel.
pub(crate) struct RawTcpInfo {
    bytes: [u8; LONGEST],
    length: usize,
}

impl RawTcpInfo {
    /// Returns `N` bytes at `offset`; `None` if this kernel has no such field.
    pub(crate) fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes[..self.length].get(offset..offset + N)?.try_into().ok()
    }

    pub(crate) fn u32(&self, offset: usize) -> u32 {
        self.field(offset).map_or(0, u32::from_ne_bytes)
    }

    pub(crate) fn u64(&self, offset: usize) -> u64 {
        self.field(offset).map_or(0, u64::from_ne_bytes)
    }

    pub(crate) fn micros(&self, offset: usize) -> Duration {
        Duration::from_micros(self.u64(offset))
    }
}

/// Returns the kernel's data about the section of `socket`.
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<SectionInfo> {
    Ok(section_info(&read(socket)?))
}

fn section_info(raw: &RawTcpInfo) -> SectionInfo {
    let rtt = |offset| Duration::from_micros(u64::from(raw.u32(offset)));
    SectionInfo {
        rtt: rtt(68),
        // The kernel returns ~0 if there is no sample yet.
        min_rtt: if raw.u32(148) == u32::MAX { Duration::ZERO } else { rtt(148) },
        retransmitted: raw.u32(100),
        segments_out: raw.u32(156),
        delivery_rate: raw.u64(160),
        cwnd: raw.u32(80),
        busy: raw.micros(168),
        rwnd_limited: raw.micros(176),
        sndbuf_limited: raw.micros(184),
        start: SectionStart::default(),
    }
}

/// Returns the kernel's counters of `socket`, the input of the estimates of its section.
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn tcp_counters(socket: BorrowedFd<'_>) -> io::Result<TcpCounters> {
    Ok(counters(&read(socket)?))
}

/// Returns [`tcp_info`] and [`tcp_counters`] of the same time, with one system call.
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn tcp_readings(socket: BorrowedFd<'_>) -> io::Result<(SectionInfo, TcpCounters)> {
    let raw = read(socket)?;
    Ok((section_info(&raw), counters(&raw)))
}

/// Returns the counters in the structure.
pub(crate) fn counters(raw: &RawTcpInfo) -> TcpCounters {
    let SectionInfo { rtt, min_rtt, retransmitted, segments_out, busy, rwnd_limited, sndbuf_limited, .. } =
        section_info(raw);
    TcpCounters {
        rtt,
        min_rtt,
        mss: raw.u32(16),
        segments_sent: segments_out,
        retransmitted,
        spurious: raw.u32(216),
        segments_received: raw.u32(152),
        out_of_order: raw.u32(224),
        bytes_sent: raw.u64(120),
        bytes_received: raw.u64(128),
        busy,
        rwnd_limited,
        sndbuf_limited,
        peer_window: raw.u32(228),
        own_window: raw.u32(64),
        rcv_rtt: Duration::from_micros(u64::from(raw.u32(92))),
        rcv_mss: raw.u32(20),
        // ~0 means no bound.
        max_pacing_rate: Some(raw.u64(112)).filter(|&rate| !matches!(rate, 0 | u64::MAX)),
        // TCP_INFINITE_SSTHRESH of net/tcp.h: the sender has not reduced its window after a loss yet.
        has_backed_off: raw.u32(76) < 0x7fff_ffff,
        since_last_receive: Duration::from_millis(u64::from(raw.u32(52))),
    }
}

/// Returns the bytes that the peer may still send within the advertised window; `None` before Linux 6.2
/// (`tcpi_rcv_wnd`).
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn advertised_window(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    Ok(read(socket)?.field(232).map(u32::from_ne_bytes))
}

/// Returns the largest segment that the peer may send, in bytes of payload (`tcpi_advmss`).
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn advertised_mss(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(read(socket)?.u32(84))
}

/// Returns whether the connection is in the state `TCP_CLOSE` (tcp_states.h). After an end of stream this means a reset
/// whose error another call has consumed, unless this side had closed its direction before. (After an orderly close by
/// the peer the state is `TCP_CLOSE_WAIT`.)
#[must_use]
pub fn is_closed(socket: BorrowedFd<'_>) -> bool {
    const TCP_CLOSE: u8 = 7;
    read(socket).is_ok_and(|raw| raw.field::<1>(0) == Some([TCP_CLOSE]))
}

pub(crate) fn read(socket: BorrowedFd<'_>) -> io::Result<RawTcpInfo> {
    let mut bytes = [0_u8; LONGEST];
    let mut length = LONGEST as libc::socklen_t;
    // SAFETY: `bytes` has room for `length` bytes, and the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(RawTcpInfo { bytes, length: (length as usize).min(LONGEST) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_testing::tcp_pair;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    /// Checks the offsets of the fields in `tcp_info` with a connection whose values are known.
    #[test]
    fn loopback_connection_has_the_expected_values() {
        let (mut near, mut far) = tcp_pair();
        for _ in 0..3 {
            near.write_all(b"ping").unwrap();
            far.read_exact(&mut [0; 4]).unwrap();
            far.write_all(b"pong").unwrap();
            near.read_exact(&mut [0; 4]).unwrap();
        }
        let info = tcp_info(near.as_fd()).unwrap();
        assert_eq!((info.segments_out, info.retransmitted), (3, 0), "{info:?}");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(1), "{info:?}");
        assert!(info.min_rtt > Duration::ZERO && info.min_rtt <= info.rtt * 4, "{info:?}");
        assert!(info.cwnd >= 2 && info.cwnd < 1000, "{info:?}");
        assert!(info.delivery_rate > 0, "{info:?}");
        let counters = tcp_counters(near.as_fd()).unwrap();
        assert_eq!(
            (counters.segments_sent, counters.segments_received, counters.out_of_order),
            (3, 3, 0),
            "{counters:?}"
        );
        // The acknowledgement of SYN counts as a byte (tcp_ack()).
        assert!(matches!(counters.bytes_sent, 12 | 13), "{counters:?}");
        assert_eq!(counters.bytes_received, 12, "{counters:?}");
        assert!(counters.mss >= 512 && counters.peer_window >= 16_384, "{counters:?}");
        assert!(counters.since_last_receive < Duration::from_secs(10), "{counters:?}");
    }

    #[test]
    fn reset_is_distinguished_from_end_of_stream() {
        let (mut near, far) = tcp_pair();
        assert!(!is_closed(near.as_fd()));
        drop(far);
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        assert!(!is_closed(near.as_fd()));

        let (mut near, far) = tcp_pair();
        socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
        drop(far);
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "the error is reported once");
        assert!(is_closed(near.as_fd()));
    }

    #[test]
    fn short_answers_of_old_kernels_leave_zeros() {
        let raw = RawTcpInfo { bytes: [7; LONGEST], length: 104 };
        assert_ne!(raw.u32(68), 0);
        assert_eq!((raw.u32(148), raw.u64(160)), (0, 0));
    }
}
