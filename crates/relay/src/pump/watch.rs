//! What is watched once a side has said its end: nobody reads from it any more, and it may still be reset.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::time::Duration;

use ekiden_proto::event::End;
use ekiden_sys::outq::unacknowledged;
use ekiden_sys::tcp_info::is_closed;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::Flow;

/// How often a send queue is looked at that has to run empty; the kernel has no event for it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Completes when the side that ended first is reset.
pub type Watch<'a> = Pin<Box<dyn Future<Output = End> + 'a>>;

/// Whether the end of stream just read from `stream`, which we have not closed ourselves, hides a reset.
///
/// The kernel tells of a reset once. A write may have heard of it, and splice(2) keeps it to itself when it had moved some
/// bytes before; then the reader sees a plain end of stream, which must not be passed on as one. A reset that came behind a
/// real end is another matter: all is here, and the kernel still holds its error, EPIPE (tcp_reset() in CLOSE_WAIT).
pub fn is_cut_off(stream: &TcpStream) -> bool {
    let behind_the_end = || matches!(stream.take_error(), Ok(Some(error)) if error.kind() == io::ErrorKind::BrokenPipe);
    is_closed(stream.as_fd()) && !behind_the_end()
}

/// Passes on the first end of a session, and from then on watches the side it came from.
pub fn half_close<'a>(ended: &Flow<'a>, by_client: bool) -> Watch<'a> {
    ended.pass_end();
    let (from, to) = ended.sides();
    Box::pin(late_reset(from, to, if by_client { End::ResetByClient } else { End::ResetByServer }))
}

/// Completes when `from`, which has already closed its direction, is reset. All it sent before is on its way to `to`, and
/// a reset would overtake and destroy it: so that one waits until the last byte is acknowledged.
async fn late_reset(from: &TcpStream, to: &TcpStream, end: End) -> End {
    // [`is_cut_off`] takes the error of a reset that came right behind the end, and epoll tells of no error that is taken.
    if !is_closed(from.as_fd()) {
        // An error of the wait itself means that the runtime is going away, and the session with it.
        let _ = from.ready(Interest::ERROR).await;
    }
    while unacknowledged(to.as_fd()).is_ok_and(|bytes| bytes > 0) {
        sleep(LOOK_AGAIN).await;
    }
    end
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use socket2::SockRef;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::pump::abort;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// The reset comes between the event that tells of the end and the look that tells the two apart.
    #[tokio::test]
    async fn a_reset_whose_error_is_taken_is_seen() {
        let (near, far) = pair().await;
        let (_behind, next) = pair().await;
        SockRef::from(&far).shutdown(Shutdown::Write).unwrap();
        near.readable().await.unwrap();
        abort(&far);
        drop(far);
        // No await from here: epoll is asked only after the error is taken.
        while !is_closed(near.as_fd()) {
            std::thread::yield_now();
        }
        assert!(!is_cut_off(&near), "the end was real");
        let seen = timeout(Duration::from_secs(30), late_reset(&near, &next, End::ResetByClient)).await;
        assert_eq!(seen.expect("the reset is seen"), End::ResetByClient);
    }
}
