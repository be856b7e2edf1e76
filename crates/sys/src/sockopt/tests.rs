//! Beliefs about the kernel, one test each: they record what was seen and fail where a kernel differs.

use super::*;
use socket2::{Domain, Socket, Type};
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
fn values_out_of_range_are_clamped_and_reported() {
    // Linux 6.15 and later; older kernels do not have the option, and say so.
    let span = |text: &str| text.parse::<Span>().unwrap();
    for (setting, clamped) in [
        (Setting::RtoMax(span("500ms")), "clamped(1s)"),
        (Setting::RtoMin(span("1s")), "clamped(200ms)"),
        (Setting::DelackMax(span("1s")), "clamped(200ms)"),
    ] {
        let got = outcome_of(setting.clone());
        assert!(got == clamped || got == "unsupported(this kernel does not have it)", "{setting}: {got}");
    }
}

/// It was masked to 35 before the kernel saw it, and called applied.
#[test]
fn a_code_point_of_more_than_six_bits_is_not_called_applied() {
    assert_eq!(outcome_of(Setting::Dscp(99)), "clamped(140)");
}

/// The bounds in the table of `proto::profile` are those of this kernel.
#[test]
fn the_kernel_has_the_bounds_of_profiles() {
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
        for value in bounds {
            let got = outcome(key, value);
            assert!(
                ["applied", "unsupported(this kernel does not have it)"].contains(&got.as_str()),
                "{key} = {value}: {got}"
            );
        }
    }
    let refused = |name, value: c_int| set(socket().as_fd(), libc::IPPROTO_TCP, name, &value).is_err();
    assert!(refused(libc::TCP_MAXSEG, 87) && refused(libc::TCP_MAXSEG, 32768));
    assert!(refused(libc::TCP_KEEPIDLE, 0) && refused(libc::TCP_KEEPIDLE, 32768));
    assert!(refused(libc::TCP_KEEPINTVL, 0) && refused(libc::TCP_KEEPINTVL, 32768));
    assert!(refused(libc::TCP_KEEPCNT, 0) && refused(libc::TCP_KEEPCNT, 128));
}

#[test]
fn what_the_kernel_lacks_is_unsupported() {
    assert_eq!(outcome("congestion", "no-such-cc"), "unsupported(this kernel does not have it loaded)");
    assert_eq!(outcome("bind", "192.0.2.1"), "unsupported(not an address of this host)");
    assert_eq!(outcome("mptcp", "true"), "unsupported(this kernel does not have it)");
}

/// Some other program may have brought it, and that is as good.
#[test]
fn the_nearest_congestion_control_is_in_the_place_of_one_that_is_not_there() {
    for name in ["westwood", "scalable"] {
        let got = outcome("congestion", name);
        assert!(["clamped(bbr)", "clamped(cubic)", "applied"].contains(&got.as_str()), "{name}: {got}");
    }
}

#[test]
fn what_is_no_socket_option_is_not_taken_for_one() {
    assert_eq!(outcome("ctcp_gamma", "12"), "unsupported(it takes the ctcp of ekiden)");
}

/// The relay sets nothing on accepted sockets because of this.
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
