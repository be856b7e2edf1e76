//! Watches a side that has closed its direction: the flow no longer reads from it, but a reset may still arrive.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::time::Duration;

use ekiden_proto::event::EndReason;
use ekiden_sys::outq::unacknowledged;
use ekiden_sys::tcp_info::is_closed;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Endpoint, Flow, Framing, RecordCipher};

/// Interval of checks for an empty send queue; the kernel has no event for that.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Completes with the end of the session: when the side that ended first is reset, or when the client has the last
/// bytes of a server that failed.
pub type ResetWatch<'a> = Pin<Box<dyn Future<Output = EndReason> + 'a>>;

/// How the peer has ended a stream, as found when the end of the stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// FIN; a reset may follow.
    Orderly,
    /// FIN, and then a reset whose error has been consumed.
    ResetBehindEnd,
    /// A reset without FIN.
    Reset,
}

/// Returns how the peer has ended `stream`, which the relay has not closed.
///
/// The kernel reports a reset once. A write may already have received the report, and splice(2) suppresses it after it
/// has moved some bytes; the next read then returns a plain end of stream, which must not be forwarded as an orderly
/// end. A reset after a real end is different: all bytes have arrived, and the kernel still holds its error, EPIPE
/// (tcp_reset() in CLOSE_WAIT).
pub fn stream_end(stream: &TcpStream) -> StreamEnd {
    if !is_closed(stream.as_fd()) {
        return StreamEnd::Orderly;
    }
    match stream.take_error() {
        Ok(Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => StreamEnd::ResetBehindEnd,
        _ => StreamEnd::Reset,
    }
}

/// Forwards the end of the flow that has ended first, and then watches its sending side for a reset.
pub fn half_close<'a>(ended_flow: &Flow<'a>, end: StreamEnd, by_client: bool) -> ResetWatch<'a> {
    ended_flow.forward_end();
    let ((from, to), direction) = (ended_flow.sides(), ended_flow.direction());
    let reset = if by_client { EndReason::ResetByClient } else { EndReason::ResetByServer };
    Box::pin(async move {
        let mut is_over = end != StreamEnd::Orderly;
        // Bytes after the alert that ends a TLS stream are ignored (RFC 8446, 6.1).
        if !from.framing.is_raw() && !from.framing.is_tls() {
            if wait_byte_behind_end(from).await {
                return EndReason::Altered(direction);
            }
            // That wait has consumed the error of a reset that arrived directly after the end.
            is_over = is_closed(from.stream.as_fd());
        }
        wait_late_reset(from.stream, to.stream, is_over).await;
        reset
    })
}

/// Returns whether a byte follows the record that ends the stream of `side`, where only FIN may follow. Always false on
/// a reusable section, where the next session may follow as soon as both directions have ended.
pub fn has_byte_behind_end(side: Endpoint<'_>) -> bool {
    matches!(side.framing, Framing::Records(_))
        && matches!(SockRef::from(side.stream).peek(&mut [MaybeUninit::uninit()]), Ok(1..))
}

/// Waits for the event after the end of a framed stream while the other direction is open. Returns true for a byte, and
/// false for FIN or a reset. The peer starts the next session only after both directions have ended.
async fn wait_byte_behind_end(from: Endpoint<'_>) -> bool {
    let has_buffered = from.framing.records().is_some_and(RecordCipher::has_buffered);
    has_buffered || matches!(from.stream.peek(&mut [0]).await, Ok(1..))
}

/// Completes when `from`, which has closed its direction, is reset. Bytes of `from` may still be in flight to `to`, and
/// a forwarded reset would discard them, so the future completes only after `to` has acknowledged the last byte.
///
/// `is_over` means that the reset has arrived and its error has been consumed: epoll does not report a consumed error.
async fn wait_late_reset(from: &TcpStream, to: &TcpStream, is_over: bool) {
    if !is_over {
        // An error means that the runtime shuts down, which also ends the session.
        let _ = from.ready(Interest::ERROR).await;
    }
    wait_acknowledged(to).await;
}

/// Completes when `to` has acknowledged the last byte, or is closed.
pub async fn wait_acknowledged(to: &TcpStream) {
    while !is_closed(to.as_fd()) && unacknowledged(to.as_fd()).is_ok_and(|bytes| bytes > 0) {
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::rc::Rc;

    use ekiden_proto::direction::Direction;
    use ekiden_sys::outq::unread;
    use ekiden_testing::TEST_TIMEOUT;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;
    use crate::pump::{FlowStats, IdleTimeouts, PendingAnswer, PipePool, PumpParams, abort, run, section_ciphers};
    use crate::testing::{tcp_pair, wait_until};

    /// Runs a session between a client with records and a server without framing.
    async fn run_section(client: &TcpStream, cipher: &RecordCipher, server: &TcpStream) -> Result<EndReason, ()> {
        let time_limit = Duration::from_secs(60);
        let params = PumpParams {
            client: Endpoint { stream: client, framing: Framing::Records(cipher) },
            server: Endpoint::plain(server),
            early: Vec::new(),
            stats: &FlowStats::new(Rc::new(())),
            pipes: &PipePool::new(0),
            idle_timeouts: IdleTimeouts { idle: time_limit, half_closed: time_limit },
        };
        run(params, None::<PendingAnswer<'_, ()>>).await
    }

    /// Regression: bytes behind the record that ends a stream were ignored.
    #[tokio::test]
    async fn bytes_behind_the_end_record_are_reported_as_altered() {
        let (ours, theirs) = section_ciphers();
        ours.allow_read_ahead();
        let (near, mut peer) = tcp_pair().await;
        let (beyond, mut server) = tcp_pair().await;
        let peers = async {
            peer.write_all(&theirs.end_record()).await.unwrap();
            assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "the end is forwarded");
            peer.write_all(&[0]).await.unwrap();
        };
        let session = async { tokio::join!(run_section(&near, &ours, &beyond), peers).0 };
        let end = timeout(TEST_TIMEOUT, session).await.expect("the byte is detected");
        assert_eq!(end, Ok(EndReason::Altered(Direction::Up)));
    }

    /// A write to the server consumes the error of its reset, so that reads return a plain end of stream.
    #[tokio::test]
    async fn last_bytes_of_a_reset_server_are_delivered_without_an_end_record() {
        let (ours, theirs) = section_ciphers();
        ours.allow_read_ahead();
        let (near, mut peer) = tcp_pair().await;
        let (beyond, mut server) = tcp_pair().await;
        peer.write_all(&theirs.seal_all(b"upload")).await.unwrap();
        server.write_all(b"413").await.unwrap();
        // A reset discards unsent bytes.
        beyond.readable().await.unwrap();
        abort(&server);
        drop(server);
        wait_until("the reset", || is_closed(beyond.as_fd()));
        // The pump reads from the client first, and then writes to the server.
        near.readable().await.unwrap();
        let session = run_section(&near, &ours, &beyond);
        let end = timeout(TEST_TIMEOUT, session).await.expect("the session ends");
        assert_eq!(end, Ok(EndReason::ResetByServer));
        let opened = timeout(TEST_TIMEOUT, theirs.next_record(&peer)).await.expect("a record arrives").unwrap();
        assert_eq!(&opened.record[opened.plaintext], b"413");
        assert_eq!(unread(peer.as_fd()).unwrap(), 0, "no record follows");
    }

    /// The reset arrives after the readiness event of the FIN, and before the check that distinguishes FIN and reset.
    #[tokio::test]
    async fn reset_is_detected_after_its_error_was_consumed() {
        let (near, far) = tcp_pair().await;
        let (_behind, next) = tcp_pair().await;
        SockRef::from(&far).shutdown(Shutdown::Write).unwrap();
        near.readable().await.unwrap();
        abort(&far);
        drop(far);
        // Without an await from here on, tokio queries epoll only after the error was consumed.
        wait_until("the reset", || is_closed(near.as_fd()));
        assert_eq!(stream_end(&near), StreamEnd::ResetBehindEnd);
        timeout(Duration::from_secs(30), wait_late_reset(&near, &next, true)).await.expect("the reset is detected");
    }
}
