//! Helpers that the tests of several modules share.

use std::net::TcpListener;
use std::os::fd::AsFd;

use ekiden_testing::skipped;

use crate::tuned::tcp_timers;

/// Whether the kernel has the timer options. If not, the function prints the reason, and the test must return or leave
/// these options out.
pub(crate) fn has_timer_options() -> bool {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let has = tcp_timers(socket.as_fd()).rto_min.is_some();
    if !has {
        skipped("this kernel has no TCP_RTO_MIN_US (Linux 6.15)");
    }
    has
}
