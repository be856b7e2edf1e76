//! Applies a profile to a socket, setting by setting, and returns their outcomes (setsockopt(2), tcp(7), socket(7),
//! ip(7)). Accepted sockets inherit every setting from their listener, so nothing is done per accepted connection.
//!
//! Every socket with a profile also keeps urgent data in the stream (`SO_OOBINLINE`, socket(7)). Without this option a
//! read skips the urgent byte, which is lost unless the reader requests it with `MSG_OOB`.

mod defaults;
mod request;

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use ekiden_proto::profile::{Algorithm, AppliedSetting, Outcome, Profile, Setting};
use ekiden_proto::units::{Bytes, Rate, Span};
use libc::c_int;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::option::{get, set, set_bytes};
use crate::queued::{is_receive_buffer_locked, set_window_clamp, unlock_receive_buffer, window_clamp};
use request::{Request, Unit};

pub use defaults::restore_defaults;

// Newer than the headers of Debian 12; from linux/tcp.h of Linux 6.15.
const TCP_TX_DELAY: c_int = 37;
pub(crate) const TCP_RTO_MAX_MS: c_int = 44;
pub(crate) const TCP_RTO_MIN_US: c_int = 45;
pub(crate) const TCP_DELACK_MAX_US: c_int = 46;

/// Largest number of pending connections with data in their SYN on a listener (RFC 7413, `TCP_FASTOPEN`).
const FAST_OPEN_QUEUE: c_int = 1024;

/// The role of a socket; a few settings differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRole {
    /// A listening socket; accepted sockets inherit its settings.
    Listener,
    /// A socket about to connect.
    Dialer,
}

/// Applies `profile` before listen(2) or connect(2). Returns the outcome of every setting, read back from the kernel.
#[must_use]
pub fn apply_and_report(socket: BorrowedFd<'_>, profile: &Profile, role: SocketRole) -> Vec<AppliedSetting> {
    let _ = keep_urgent_data_inline(socket);
    let report = |setting| AppliedSetting { outcome: apply_setting(socket, &setting, role), setting };
    profile.initial_settings().map(report).collect()
}

/// Applies one setting, at any time of a socket's life, and returns its outcome.
#[must_use]
pub fn apply_setting(socket: BorrowedFd<'_>, setting: &Setting, role: SocketRole) -> Outcome {
    match apply_one(socket, setting, role).and_then(|request| request.read_back(socket)) {
        Ok(None) => Outcome::Applied,
        Ok(Some(granted)) => Outcome::Clamped(granted),
        Err(error) => Outcome::Unsupported(reason(&error)),
    }
}

/// Applies `profile` like [`apply_and_report`], without outcomes.
pub fn apply(socket: BorrowedFd<'_>, profile: &Profile, role: SocketRole) {
    let _ = keep_urgent_data_inline(socket);
    for setting in profile.initial_settings() {
        // The error is ignored: it was reported the first time, and a section without one of its settings still works.
        let _ = apply_one(socket, &setting, role);
    }
}

/// Keeps urgent data in the stream (`SO_OOBINLINE`).
///
/// # Errors
/// The kernel's error: EOPNOTSUPP for a Multipath TCP socket, whose urgent data is always inline. A plain TCP socket
/// that such a listener accepts does not inherit the option and needs it.
pub fn keep_urgent_data_inline(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_OOBINLINE, &1_i32)
}

/// Returns whether urgent data stays in the stream, also on sockets that `socket` accepts.
///
/// # Errors
/// The kernel's error.
pub fn keeps_urgent_data_inline(socket: BorrowedFd<'_>) -> io::Result<bool> {
    get::<c_int>(socket, libc::SOL_SOCKET, libc::SO_OOBINLINE).map(|on| on != 0)
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => "this kernel does not support it".to_owned(),
        Some(libc::ENOENT) => "not loaded in this kernel".to_owned(),
        Some(libc::EPERM) => "needs CAP_NET_ADMIN".to_owned(),
        Some(libc::EADDRNOTAVAIL) => "not an address of this host".to_owned(),
        _ => error.to_string(),
    }
}

fn apply_one(socket: BorrowedFd<'_>, setting: &Setting, role: SocketRole) -> io::Result<Request> {
    const TCP: c_int = libc::IPPROTO_TCP;
    const SOCKET: c_int = libc::SOL_SOCKET;
    let tcp = |name, requested, unit| integer(socket, TCP, name, requested, unit);
    match setting {
        Setting::Mptcp(requested) => mptcp(socket, *requested, role),
        Setting::Bind(address) => bind(socket, *address, role),
        Setting::Fwmark(mark) => integer(socket, SOCKET, libc::SO_MARK, mark.cast_signed(), Unit::Plain),
        Setting::Dscp(dscp) => self::dscp(socket, *dscp),
        Setting::Congestion(algorithm) if algorithm.0 == Algorithm::AUTO => {
            Err(io::Error::other("the relay chooses the congestion control"))
        }
        Setting::Congestion(algorithm) => congestion(socket, algorithm),
        // No socket options: the loader of the congestion control sets them.
        Setting::CtcpGamma(_) | Setting::CtcpAutoGamma(_) => Err(io::Error::other("requires ekiden's ctcp")),
        Setting::InitialRwnd(size) => initial_rwnd(socket, *size, role),
        Setting::Rcvbuf(size) => buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, *size),
        Setting::Sndbuf(size) => buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, *size),
        Setting::WindowClamp(size) => tcp(libc::TCP_WINDOW_CLAMP, saturating(size.0), Unit::Bytes),
        Setting::NotsentLowat(size) => tcp(libc::TCP_NOTSENT_LOWAT, saturating(size.0), Unit::Bytes),
        Setting::Mss(mss) => tcp(libc::TCP_MAXSEG, c_int::from(*mss), Unit::Plain),
        Setting::Nodelay(on) => tcp(libc::TCP_NODELAY, c_int::from(*on), Unit::Plain),
        Setting::Quickack(on) => tcp(libc::TCP_QUICKACK, c_int::from(*on), Unit::Plain),
        Setting::FastOpen(on) => match role {
            SocketRole::Listener => tcp(libc::TCP_FASTOPEN, if *on { FAST_OPEN_QUEUE } else { 0 }, Unit::Plain),
            SocketRole::Dialer => tcp(libc::TCP_FASTOPEN_CONNECT, c_int::from(*on), Unit::Plain),
        },
        Setting::Keepalive(idle) => keepalive(socket, *idle),
        Setting::KeepaliveInterval(span) => tcp(libc::TCP_KEEPINTVL, seconds(*span), Unit::Seconds),
        Setting::KeepaliveCount(count) => tcp(libc::TCP_KEEPCNT, c_int::from(*count), Unit::Plain),
        Setting::UserTimeout(span) => tcp(libc::TCP_USER_TIMEOUT, millis(*span), Unit::Millis),
        // Outside these ranges the kernel returns EINVAL (seen on Linux 6.18; 8 ms are two jiffies at 250 Hz). Values
        // in profiles are within these bounds; values of the automatic tuning may be outside.
        Setting::RtoMin(span) => within(micros(*span), 8_000..=200_000, |v| tcp(TCP_RTO_MIN_US, v, Unit::Micros)),
        Setting::RtoMax(span) => within(millis(*span), 1_000..=120_000, |v| tcp(TCP_RTO_MAX_MS, v, Unit::Millis)),
        Setting::DelackMax(span) => within(micros(*span), 8_000..=200_000, |v| tcp(TCP_DELACK_MAX_US, v, Unit::Micros)),
        Setting::ThinLinearTimeouts(on) => tcp(libc::TCP_THIN_LINEAR_TIMEOUTS, c_int::from(*on), Unit::Plain),
        Setting::PacingRate(rate) => pacing(socket, *rate),
        Setting::TxDelay(span) => tcp(TCP_TX_DELAY, micros(*span), Unit::Micros),
        // No socket option: the tuner of the socket reads it.
        Setting::Tune(_) => Ok(Request::Done),
    }
}

fn integer(socket: BorrowedFd<'_>, level: c_int, name: c_int, requested: c_int, unit: Unit) -> io::Result<Request> {
    set(socket, level, name, &requested)?;
    Ok(Request::Integer { level, name, requested, unit })
}

/// Sets `requested`. If the kernel returns EINVAL, sets the nearest value in `range`; the read-back, which compares
/// with `requested`, then reports the setting as clamped.
fn within(
    requested: c_int,
    range: std::ops::RangeInclusive<c_int>,
    set_option: impl Fn(c_int) -> io::Result<Request>,
) -> io::Result<Request> {
    let nearest = requested.clamp(*range.start(), *range.end());
    let request = match set_option(requested) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && nearest != requested => set_option(nearest)?,
        other => other?,
    };
    Ok(match request {
        Request::Integer { level, name, unit, .. } => Request::Integer { level, name, requested, unit },
        other => other,
    })
}

fn mptcp(socket: BorrowedFd<'_>, requested: bool, role: SocketRole) -> io::Result<Request> {
    let protocol: c_int = get(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL)?;
    if requested == (protocol == libc::IPPROTO_MPTCP) {
        return Ok(Request::Done);
    }
    if role == SocketRole::Listener && Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_ok() {
        return Err(io::Error::other("takes effect after a restart, because the listening socket stays open"));
    }
    Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT))
}

fn bind(socket: BorrowedFd<'_>, address: IpAddr, role: SocketRole) -> io::Result<Request> {
    if role == SocketRole::Listener {
        return Err(io::Error::other("a listener has an address already"));
    }
    bind_address_no_port(socket)?;
    SockRef::from(&socket).bind(&SockAddr::from(std::net::SocketAddr::new(address, 0)))?;
    Ok(Request::Done)
}

/// Delays the choice of the port after bind(2) to port 0 until connect(2), so that connections to different targets can
/// share a port (`IP_BIND_ADDRESS_NO_PORT`, ip(7)).
///
/// # Errors
/// The kernel's error.
pub fn bind_address_no_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1_i32)
}

fn dscp(socket: BorrowedFd<'_>, dscp: u8) -> io::Result<Request> {
    // Six bits of eight (RFC 2474, 3). The kernel cuts off higher bits, and the read-back shows the result.
    let class = c_int::from(dscp) << 2;
    let v6 = SockRef::from(&socket).domain()? == Domain::IPV6;
    if v6 {
        // An IPv6 socket may carry IPv4, which has a separate field.
        let _ = set(socket, libc::IPPROTO_IP, libc::IP_TOS, &class);
        return integer(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class, Unit::Plain);
    }
    integer(socket, libc::IPPROTO_IP, libc::IP_TOS, class, Unit::Plain)
}

/// Falls back to the nearest available algorithm if the kernel lacks this one; the read-back reports it.
fn congestion(socket: BorrowedFd<'_>, algorithm: &Algorithm) -> io::Result<Request> {
    if let Err(error) = set_congestion(socket, &algorithm.0)
        && !algorithm.fallbacks().iter().any(|fallback| set_congestion(socket, fallback).is_ok())
    {
        return Err(error);
    }
    Ok(Request::Text { name: libc::TCP_CONGESTION, requested: algorithm.0.clone() })
}

/// Sets the congestion control (`TCP_CONGESTION`, tcp(7)).
fn set_congestion(socket: BorrowedFd<'_>, algorithm: &str) -> io::Result<()> {
    set_bytes(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, algorithm.as_bytes())
}

fn buffer(socket: BorrowedFd<'_>, force: c_int, plain: c_int, size: Bytes) -> io::Result<Request> {
    let requested = saturating(size.0);
    // The `FORCE` option exceeds the limit net.core.[rw]mem_max but requires CAP_NET_ADMIN.
    if set(socket, libc::SOL_SOCKET, force, &requested).is_err() {
        set(socket, libc::SOL_SOCKET, plain, &requested)?;
    }
    Ok(Request::Integer { level: libc::SOL_SOCKET, name: plain, requested, unit: Unit::Bytes })
}

/// Sets the initial receive window by the receive buffer: the kernel derives the first window and the window scale from
/// the buffer, and grows the buffer unless it is locked.
fn initial_rwnd(socket: BorrowedFd<'_>, size: Bytes, role: SocketRole) -> io::Result<Request> {
    // If the kernel cannot unlock the buffer (before Linux 5.14), the window would never grow.
    if role == SocketRole::Listener || is_receive_buffer_locked(socket)? {
        return Ok(Request::Done);
    }
    let clamp = window_clamp(socket)?;
    let request = buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, size)?;
    unlock_receive_buffer(socket)?;
    // Newer kernels (7.2 does, 6.18 does not) also clamp the window to the buffer, and derive the window scale from the clamp.
    if window_clamp(socket)? != clamp {
        set_window_clamp(socket, clamp)?;
    }
    Ok(request)
}

fn keepalive(socket: BorrowedFd<'_>, idle: Span) -> io::Result<Request> {
    let on = c_int::from(!idle.0.is_zero());
    let request = integer(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, on, Unit::Plain)?;
    if on == 0 {
        return Ok(request);
    }
    integer(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds(idle), Unit::Seconds)
}

fn pacing(socket: BorrowedFd<'_>, rate: Rate) -> io::Result<Request> {
    let requested = rate.bytes_per_second();
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &requested)?;
    Ok(Request::Wide { level: libc::SOL_SOCKET, name: libc::SO_MAX_PACING_RATE, requested })
}

fn saturating(value: u64) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn seconds(span: Span) -> c_int {
    saturating(span.0.as_secs().max(1))
}

fn millis(span: Span) -> c_int {
    c_int::try_from(span.0.as_millis()).unwrap_or(c_int::MAX)
}

fn micros(span: Span) -> c_int {
    c_int::try_from(span.0.as_micros()).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    //! Assumptions about the kernel, one test each: they record observed behaviour and fail where a kernel differs.

    use super::*;
    use crate::tuned::tests::has_timer_options;
    use ekiden_testing::skipped;
    use std::os::fd::AsFd;

    fn socket() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
    }

    fn outcome(key: &str, value: &str) -> String {
        outcome_of(Setting::read(key, value).unwrap())
    }

    fn outcome_of(setting: Setting) -> String {
        let mut profile = Profile::named("test");
        profile.set(setting);
        let report = apply_and_report(socket().as_fd(), &profile, SocketRole::Dialer);
        report[0].outcome.to_string()
    }

    #[test]
    fn settings_within_the_kernels_range_are_applied() {
        for (key, value) in [
            ("congestion", "reno"),
            ("initial_rwnd", "1MiB"),
            ("rcvbuf", "128KiB"),
            ("sndbuf", "128KiB"),
            ("window_clamp", "64KiB"),
            ("notsent_lowat", "256KiB"),
            ("mss", "1200"),
            ("nodelay", "true"),
            ("keepalive", "30s"),
            ("keepalive", "0s"),
            ("keepalive_interval", "5s"),
            ("keepalive_count", "4"),
            ("user_timeout", "90s"),
            ("thin_linear_timeouts", "true"),
            ("pacing_rate", "200Mbit/s"),
            ("dscp", "46"),
            ("bind", "127.0.0.1"),
        ] {
            assert_eq!(outcome(key, value), "applied", "{key} = {value}");
        }
    }

    #[test]
    fn initial_rwnd_does_not_change_window_clamp() {
        let socket = socket();
        let before = window_clamp(socket.as_fd()).unwrap();
        let outcome = apply_setting(socket.as_fd(), &Setting::InitialRwnd(Bytes(1 << 20)), SocketRole::Dialer);
        assert_eq!(outcome.to_string(), "applied");
        assert_eq!(window_clamp(socket.as_fd()).unwrap(), before);
    }

    #[test]
    fn values_out_of_range_are_clamped_and_reported() {
        if !has_timer_options() {
            return;
        }
        let span = |text: &str| text.parse::<Span>().unwrap();
        for (setting, clamped) in [
            (Setting::RtoMax(span("500ms")), "clamped(1s)"),
            (Setting::RtoMin(span("1s")), "clamped(200ms)"),
            (Setting::DelackMax(span("1s")), "clamped(200ms)"),
        ] {
            assert_eq!(outcome_of(setting.clone()), clamped, "{setting}");
        }
    }

    /// Regression: the value was masked to 35 before setsockopt(2), and reported as applied.
    #[test]
    fn dscp_above_six_bits_is_reported_as_clamped() {
        assert_eq!(outcome_of(Setting::Dscp(99)), "clamped(140)");
    }

    /// The bounds in the table of `proto::profile` are those of this kernel.
    #[test]
    fn profile_bounds_are_those_of_the_kernel() {
        let has_timer_options = has_timer_options();
        for (key, bounds) in [
            ("dscp", ["0", "63"]),
            ("window_clamp", ["4KiB", "1GiB"]),
            ("notsent_lowat", ["0B", "1GiB"]),
            ("mss", ["88", "32767"]),
            ("keepalive", ["1s", "32767s"]),
            ("keepalive_interval", ["1s", "32767s"]),
            ("keepalive_count", ["1", "127"]),
            ("user_timeout", ["0s", "596h"]),
            ("rto_min", ["8ms", "200ms"]),
            ("rto_max", ["1s", "120s"]),
            ("delack_max", ["8ms", "200ms"]),
            ("pacing_rate", ["8kbit/s", "400Gbit/s"]),
            ("tx_delay", ["0s", "10s"]),
        ] {
            let is_missing = !has_timer_options && ["rto_min", "rto_max", "delack_max"].contains(&key);
            let expected = if is_missing { "unsupported(this kernel does not support it)" } else { "applied" };
            for value in bounds {
                assert_eq!(outcome(key, value), expected, "{key} = {value}");
            }
        }
        let refused = |name, value: c_int| set(socket().as_fd(), libc::IPPROTO_TCP, name, &value).is_err();
        assert!(refused(libc::TCP_MAXSEG, 87) && refused(libc::TCP_MAXSEG, 32768));
        assert!(refused(libc::TCP_KEEPIDLE, 0) && refused(libc::TCP_KEEPIDLE, 32768));
        assert!(refused(libc::TCP_KEEPINTVL, 0) && refused(libc::TCP_KEEPINTVL, 32768));
        assert!(refused(libc::TCP_KEEPCNT, 0) && refused(libc::TCP_KEEPCNT, 128));
    }

    #[test]
    fn missing_kernel_features_are_unsupported() {
        assert_eq!(outcome("congestion", "no-such-cc"), "unsupported(not loaded in this kernel)");
        assert_eq!(outcome("bind", "192.0.2.1"), "unsupported(not an address of this host)");
        assert_eq!(outcome("mptcp", "true"), "unsupported(this kernel does not support it)");
    }

    #[test]
    fn listener_cannot_change_to_multipath_tcp() {
        if Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_err() {
            return skipped("this kernel has no Multipath TCP");
        }
        let outcome = apply_setting(socket().as_fd(), &Setting::Mptcp(true), SocketRole::Listener).to_string();
        assert!(outcome.starts_with("unsupported(takes effect after a restart"), "{outcome}");
    }

    #[test]
    fn missing_congestion_control_is_replaced_by_the_nearest() {
        let is_available = |name: &str| set_congestion(socket().as_fd(), name).is_ok();
        for (name, replacements) in [("westwood", &["bbr", "cubic"][..]), ("scalable", &["cubic"])] {
            if is_available(name) {
                skipped(format_args!("this kernel has {name}"));
                continue;
            }
            let nearest = replacements.iter().find(|name| is_available(name)).unwrap();
            assert_eq!(outcome("congestion", name), format!("clamped({nearest})"), "{name}");
        }
    }

    #[test]
    fn ctcp_gamma_is_not_set_as_a_socket_option() {
        assert_eq!(outcome("ctcp_gamma", "12"), "unsupported(requires ekiden's ctcp)");
    }

    /// The relay relies on this: it sets no options on accepted sockets.
    #[test]
    fn accepted_sockets_inherit_from_their_listener() {
        let mut profile = Profile::named("test");
        let settings = [
            ("congestion", "reno"),
            ("notsent_lowat", "256KiB"),
            ("nodelay", "true"),
            ("keepalive", "30s"),
            ("keepalive_count", "4"),
            ("user_timeout", "90s"),
            ("thin_linear_timeouts", "true"),
            ("pacing_rate", "200Mbit/s"),
            ("dscp", "46"),
            ("window_clamp", "64KiB"),
        ];
        for (key, value) in settings {
            profile.set(Setting::read(key, value).unwrap());
        }
        let listener = socket();
        listener.bind(&SockAddr::from("127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap())).unwrap();
        apply(listener.as_fd(), &profile, SocketRole::Listener);
        listener.listen(1).unwrap();
        let client = socket();
        client.connect(&listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let fd = accepted.as_fd();
        let int = |level, name| get::<c_int>(fd, level, name).unwrap();
        assert_eq!(&get::<[u8; 16]>(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION).unwrap()[..5], b"reno\0");
        assert_eq!(int(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), 256 << 10);
        assert_eq!(int(libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
        assert_eq!(int(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        assert_eq!(int(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 30);
        assert_eq!(int(libc::IPPROTO_TCP, libc::TCP_KEEPCNT), 4);
        assert_eq!(int(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 90_000);
        assert_eq!(int(libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS), 1);
        assert_eq!(int(libc::IPPROTO_IP, libc::IP_TOS), 46 << 2);
        assert_eq!(int(libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP), 64 << 10);
        assert_eq!(get::<u64>(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE).unwrap(), 25_000_000);
    }
}
