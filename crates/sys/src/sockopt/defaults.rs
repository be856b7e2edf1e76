//! The kernel's defaults for a listening socket that stays open while its profile changes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ekiden_proto::profile::Profile;
use libc::c_int;
use socket2::{SockRef, Socket, Type};

use super::{TCP_DELACK_MAX_US, TCP_RTO_MAX_MS, TCP_RTO_MIN_US, TCP_TX_DELAY};
use crate::option::{Plain, get, set};
use crate::queued::{RCVBUF_LOCK, SNDBUF_LOCK, SO_BUF_LOCK, set_window_clamp, window_clamp};

const TCP: c_int = libc::IPPROTO_TCP;
const SOCKET: c_int = libc::SOL_SOCKET;

/// The largest window with window scaling, in bytes (RFC 7323, 2.2). The kernel uses this value if there is no clamp.
const MAX_WINDOW: u32 = 65_535 << 14;

/// Settings whose default is the value of a new socket, with level and name of their options.
const OPTIONS: [(&str, c_int, c_int); 15] = [
    ("dscp", libc::IPPROTO_IP, libc::IP_TOS),
    ("dscp", libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    ("notsent_lowat", TCP, libc::TCP_NOTSENT_LOWAT),
    ("nodelay", TCP, libc::TCP_NODELAY),
    ("quickack", TCP, libc::TCP_QUICKACK),
    ("keepalive", SOCKET, libc::SO_KEEPALIVE),
    ("keepalive", TCP, libc::TCP_KEEPIDLE),
    ("keepalive_interval", TCP, libc::TCP_KEEPINTVL),
    ("keepalive_count", TCP, libc::TCP_KEEPCNT),
    ("user_timeout", TCP, libc::TCP_USER_TIMEOUT),
    ("rto_min", TCP, TCP_RTO_MIN_US),
    ("rto_max", TCP, TCP_RTO_MAX_MS),
    ("delack_max", TCP, TCP_DELACK_MAX_US),
    ("thin_linear_timeouts", TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    ("tx_delay", TCP, TCP_TX_DELAY),
];

/// `TFO_SERVER_WO_SOCKOPT1`: every listener has Fast Open (ip-sysctl.rst of the kernel, `tcp_fastopen`).
const FAST_OPEN_EVERYWHERE: u32 = 0x400;

/// Restores the kernel's defaults of a listening socket for the settings that `profile` lacks, because an earlier
/// profile may have set them. The protocol, the mark and the congestion control are left to the caller. After
/// `pacing_rate` the kernel still paces, at the rate of the congestion control. Options that this kernel lacks are
/// ignored.
///
/// # Errors
/// The error of socket(2).
pub fn restore_defaults(socket: BorrowedFd<'_>, profile: &Profile) -> io::Result<()> {
    let fresh = Socket::new(SockRef::from(&socket).domain()?, Type::STREAM, None)?;
    let fresh = fresh.as_fd();
    let present: Vec<_> = profile.initial_settings().map(|setting| setting.key()).collect();
    let is_missing = |key: &str| !present.contains(&key);
    for (key, level, name) in OPTIONS {
        if is_missing(key) {
            copy_option::<c_int>(socket, fresh, level, name);
        }
    }
    if is_missing("pacing_rate") {
        copy_option::<u64>(socket, fresh, SOCKET, libc::SO_MAX_PACING_RATE);
    }
    for (key, name, lock) in [("rcvbuf", libc::SO_RCVBUF, RCVBUF_LOCK), ("sndbuf", libc::SO_SNDBUF, SNDBUF_LOCK)] {
        if is_missing(key) {
            let _ = restore_buffer(socket, fresh, name, lock);
        }
    }
    if is_missing("window_clamp") && window_clamp(socket).is_ok_and(|clamp| clamp != 0) {
        // The kernel refuses 0 on a listening socket.
        let _ = set_window_clamp(socket, MAX_WINDOW);
    }
    if is_missing("mss") {
        // 0 is the default, for which getsockopt(2) returns another value.
        let _ = set(socket, TCP, libc::TCP_MAXSEG, &0_i32);
    }
    if is_missing("fast_open") && !has_fast_open_everywhere() {
        copy_option::<c_int>(socket, fresh, TCP, libc::TCP_FASTOPEN);
    }
    Ok(())
}

/// Copies an option of `fresh` to `socket` if the values differ.
fn copy_option<T: Plain + PartialEq>(socket: BorrowedFd<'_>, fresh: BorrowedFd<'_>, level: c_int, name: c_int) {
    if let (Ok(default), Ok(current)) = (get::<T>(fresh, level, name), get::<T>(socket, level, name))
        && current != default
    {
        let _ = set(socket, level, name, &default);
    }
}

/// Gives a buffer of fixed size the size of a new socket, and lets the kernel adapt the size again.
fn restore_buffer(socket: BorrowedFd<'_>, fresh: BorrowedFd<'_>, name: c_int, lock: c_int) -> io::Result<()> {
    let locks: c_int = get(socket, SOCKET, SO_BUF_LOCK)?;
    if locks & lock == 0 {
        return Ok(());
    }
    // setsockopt(2) takes half of the size that getsockopt(2) returns (socket(7)).
    let doubled: c_int = get(fresh, SOCKET, name)?;
    set(socket, SOCKET, name, &(doubled / 2))?;
    set(socket, SOCKET, SO_BUF_LOCK, &(locks & !lock))
}

fn has_fast_open_everywhere() -> bool {
    let flags = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap_or_default();
    flags.trim().parse::<u32>().is_ok_and(|flags| flags & FAST_OPEN_EVERYWHERE != 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ekiden_proto::profile::Setting;
    use ekiden_testing::skipped;

    use super::*;
    use crate::sockopt::{SocketRole, apply};
    use crate::tuned::tests::has_timer_options;

    /// Every option of [`Setting`] that an IPv4 socket has; the timer options are `None` on kernels that lack them.
    fn options(socket: BorrowedFd<'_>) -> Vec<(&'static str, Option<i64>)> {
        let other = [
            ("mss", TCP, libc::TCP_MAXSEG),
            ("rcvbuf", SOCKET, libc::SO_RCVBUF),
            ("sndbuf", SOCKET, libc::SO_SNDBUF),
            ("rcvbuf and sndbuf", SOCKET, SO_BUF_LOCK),
            ("fast_open", TCP, libc::TCP_FASTOPEN),
        ];
        let options = OPTIONS.into_iter().chain(other).filter(|(_, level, _)| *level != libc::IPPROTO_IPV6);
        let integer = |level, name| get::<c_int>(socket, level, name).ok().map(i64::from);
        let mut values: Vec<_> = options.map(|(key, level, name)| (key, integer(level, name))).collect();
        values.push(("pacing_rate", get::<u64>(socket, SOCKET, libc::SO_MAX_PACING_RATE).ok().map(u64::cast_signed)));
        values
    }

    #[test]
    fn settings_that_a_profile_lacks_return_to_the_defaults() {
        if has_fast_open_everywhere() {
            return skipped("net.ipv4.tcp_fastopen enables Fast Open on every listener");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = listener.as_fd();
        let defaults = options(socket);
        let mut profile = Profile::named("test");
        for (key, value) in [
            ("dscp", "46"),
            ("rcvbuf", "128KiB"),
            ("sndbuf", "128KiB"),
            ("window_clamp", "64KiB"),
            ("notsent_lowat", "256KiB"),
            ("mss", "1200"),
            ("nodelay", "true"),
            ("quickack", "false"),
            ("fast_open", "true"),
            ("keepalive", "30s"),
            ("keepalive_interval", "5s"),
            ("keepalive_count", "4"),
            ("user_timeout", "90s"),
            ("rto_min", "90ms"),
            ("rto_max", "10s"),
            ("delack_max", "20ms"),
            ("thin_linear_timeouts", "true"),
            ("pacing_rate", "200Mbit/s"),
            ("tx_delay", "10ms"),
        ] {
            profile.set(Setting::read(key, value).unwrap());
        }
        apply(socket, &profile, SocketRole::Listener);
        let changed = options(socket);
        let has_timer_options = has_timer_options();
        for ((key, changed), (_, default)) in changed.iter().zip(&defaults) {
            let is_timer = ["rto_min", "rto_max", "delack_max"].contains(key);
            assert_eq!(changed != default, !is_timer || has_timer_options, "{key}");
        }
        restore_defaults(socket, &profile).unwrap();
        assert_eq!((options(socket), window_clamp(socket).unwrap()), (changed, 64 << 10), "the profile lacks none");
        restore_defaults(socket, &Profile::named("test")).unwrap();
        assert_eq!((options(socket), window_clamp(socket).unwrap()), (defaults, MAX_WINDOW));
    }
}
