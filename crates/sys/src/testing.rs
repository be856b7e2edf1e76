//! Helpers that the tests of several modules share.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ekiden_testing::skipped;

use crate::tuned::tcp_timers;

/// Timeout of each wait in these tests.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Repeats `look` until it returns a value.
pub(crate) fn eventually<T>(label: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timeout while waiting for {label}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Returns both ends of a connection over loopback, the connecting end first. Reads have a timeout.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    }
    (near, far)
}

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
