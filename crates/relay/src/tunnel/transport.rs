//! Carries packets between a lane and its connection, one packet in each record.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::pin;
use std::time::Duration;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};
use ekiden_sys::poll::is_writable;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::lane::Lane;
use crate::dial::{DialError, Dialled, FailingRelay, MAX_UNSENT_LANE};
use crate::pump::write_all;
use crate::pump::{self, FlowStats, RecordCipher};

/// Records that are received before other sessions of the thread run.
const RECORDS_PER_TURN: usize = 64;

/// Timeout for sending the last records.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a lane ended unexpectedly.
#[derive(Debug)]
pub enum LaneError {
    /// The peer has refused the lane, or the path to the peer has failed.
    Refused(DialError),
    /// The connection that carried received packets in this direction is broken.
    Connection(io::Error, Direction),
}

impl LaneError {
    /// Returns whether the next relay disconnected before the lane was established.
    fn is_break(&self) -> bool {
        matches!(self, Self::Refused(error) if error.is_disconnect())
    }
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(DialError {
                cause: Cause::Unreachable,
                hop: None,
                reported_by: Some(FailingRelay { name, .. }),
                ..
            }) => {
                write!(
                    f,
                    "{name} has no tunnel: add a listener with kind = \"tun\" there, or route these networks by \
                     another path"
                )
            }
            Self::Refused(error) => match error.detail() {
                Some(detail) => write!(f, "{} ({detail})", error.cause.as_str()),
                None => f.write_str(error.cause.as_str()),
            },
            Self::Connection(error, _) if error.kind() == io::ErrorKind::InvalidData => write!(f, "{error}"),
            Self::Connection(error, _) => write!(f, "the connection failed: {error}"),
        }
    }
}

impl From<DialError> for LaneError {
    fn from(error: DialError) -> Self {
        Self::Refused(error)
    }
}

/// Dials a lane and runs it until its end. If a ready connection was stale, for example because the relay has restarted,
/// the lane is dialled once more: it was not established.
///
/// # Errors
/// The lane cannot be dialled, or has failed.
pub async fn dial_and_run(
    dial: impl AsyncFn() -> Result<Dialled, DialError>,
    mut run: impl AsyncFnMut(Dialled) -> Result<(), LaneError>,
) -> Result<(), LaneError> {
    let dialled = dial().await?;
    let was_ready = dialled.can_redial();
    match run(dialled).await {
        Err(error) if was_ready && error.is_break() => run(dial().await?).await,
        ended => ended,
    }
}

/// The connection of a lane.
pub struct LaneTransport<'a> {
    /// The queue of packets to send.
    pub lane: &'a Lane,
    /// The section of the lane.
    pub stream: &'a TcpStream,
    /// The cipher of the section.
    pub cipher: &'a RecordCipher,
    /// The counters of the section.
    pub stats: &'a FlowStats,
}

impl LaneTransport<'_> {
    /// Sends packets until `receiving` or `done` completes, or the lane is retired; then closes the lane in order.
    /// `receiving` completes when the peer has closed the lane.
    ///
    /// # Errors
    /// The lane has failed. The socket remains set to close with a reset.
    pub async fn run(
        &self,
        receiving: impl Future<Output = Result<(), LaneError>>,
        done: impl Future<Output = ()>,
    ) -> Result<(), LaneError> {
        // The kernel closes the sockets of a killed relay; with a reset, the peer can tell that from an orderly close.
        pump::abort(self.stream);
        let (mut sending, mut receiving) = (pin!(self.send()), pin!(receiving));
        tokio::select! {
            biased;
            received = &mut receiving => {
                received?;
                self.lane.retire();
                // A peer that has closed the lane may be gone; it needs no answer.
                let _ = timeout(CLOSE_TIMEOUT, sending).await;
            }
            () = done => {
                self.lane.retire();
                let closing = async { self.on_send_end(sending.await, receiving).await };
                let closed = timeout(CLOSE_TIMEOUT, closing).await;
                closed.unwrap_or_else(|_| Err(self.connection_error(io::ErrorKind::TimedOut.into())))?;
            }
            sent = &mut sending => self.on_send_end(sent, receiving).await?,
        }
        pump::cancel_abort(self.stream);
        Ok(())
    }

    /// Handles the end of sending. After an error, earlier messages of the peer can still be read: the close of the
    /// lane, or a refusal.
    async fn on_send_end(
        &self,
        sent: io::Result<()>,
        receiving: impl Future<Output = Result<(), LaneError>>,
    ) -> Result<(), LaneError> {
        let Err(error) = sent else { return Ok(()) };
        match timeout(CLOSE_TIMEOUT, receiving).await {
            Ok(Ok(())) => {
                self.lane.retire();
                Ok(())
            }
            Ok(Err(refused @ LaneError::Refused(_))) => Err(refused),
            _ => Err(self.connection_error(error)),
        }
    }

    fn connection_error(&self, error: io::Error) -> LaneError {
        LaneError::Connection(error, self.lane.receive_direction())
    }

    /// Sends queued packets, several at once if possible, until the lane is retired.
    async fn send(&self) -> io::Result<()> {
        loop {
            self.lane.wait_ready().await;
            wait_writable(self.stream).await?;
            let records = self.take_records();
            if !records.is_empty() {
                write_all(self.stream, &records).await?;
            } else if self.lane.is_retired() {
                write_all(self.stream, &self.cipher.end_record()).await?;
                // The error is ignored: a peer that is gone needs no FIN.
                let _ = SockRef::from(self.stream).shutdown(Shutdown::Write);
                return Ok(());
            }
        }
    }

    /// Takes the queued packets that are not late, as records.
    fn take_records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let mut room = usize::MAX;
        while let Some(packet) = self.lane.pop(room) {
            let start = records.len();
            records.extend_from_slice(&[0; HEADER_LENGTH]);
            records.extend_from_slice(&packet);
            records.extend_from_slice(&[0; TAG_LENGTH]);
            self.cipher.seal(&mut records[start..]);
            self.lane.record_sent(packet.len());
            self.stats.record_copied(self.lane.send_direction(), packet.len());
            room = (MAX_UNSENT_LANE as usize).saturating_sub(records.len() + HEADER_LENGTH + TAG_LENGTH);
        }
        records
    }

    /// Receives packets and passes each to `take`, until the peer closes the lane.
    ///
    /// # Errors
    /// The error of the socket; `InvalidData` for a record that was changed, dropped, replayed or reordered.
    pub async fn receive(&self, mut take: impl FnMut(&[u8])) -> Result<(), LaneError> {
        loop {
            for _ in 0..RECORDS_PER_TURN {
                let opened =
                    self.cipher.next_record(self.stream).await.map_err(|error| self.connection_error(error))?;
                let packet = &opened.record[opened.plaintext];
                if packet.is_empty() {
                    return Ok(());
                }
                self.lane.record_received(packet.len());
                self.stats.record_copied(self.lane.receive_direction(), packet.len());
                take(packet);
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Runs both connections of a forwarded lane until `done` completes or one of them ends, and then closes the other in
/// order. `upward` takes the packets of the previous relay, `downward` those of the next relay.
///
/// # Errors
/// One of the connections has failed, or its relay does not take the last records in time.
pub async fn run_forwarded(
    downstream: &LaneTransport<'_>,
    upward: impl FnMut(&[u8]),
    upstream: &LaneTransport<'_>,
    downward: impl FnMut(&[u8]),
    done: impl Future<Output = ()>,
) -> Result<(), LaneError> {
    let (downstream_end, upstream_end) = (Notify::new(), Notify::new());
    let done = async {
        tokio::select! {
            () = done => {}
            () = upstream_end.notified() => {}
        }
    };
    let mut downstream = pin!(downstream.run(downstream.receive(upward), done));
    let mut upstream = pin!(upstream.run(upstream.receive(downward), downstream_end.notified()));
    tokio::select! {
        ended = &mut downstream => {
            ended?;
            downstream_end.notify_one();
            upstream.await
        }
        ended = &mut upstream => {
            ended?;
            upstream_end.notify_one();
            downstream.await
        }
    }
}

/// Waits until fewer than half of [`MAX_UNSENT_LANE`] bytes are unsent in the kernel (tcp(7), `TCP_NOTSENT_LOWAT`). The
/// option does not limit a write without this wait: the kernel compares it only for a new buffer, and fills the last
/// buffer up to 64 KiB.
async fn wait_writable(stream: &TcpStream) -> io::Result<()> {
    // tokio does not report a connection as writable directly after its registration on this thread.
    if is_writable(stream.as_fd())? {
        return Ok(());
    }
    let check = || if is_writable(stream.as_fd())? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) };
    stream.async_io(Interest::WRITABLE, check).await
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::Write;

    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::events::metrics::Metrics;
    use crate::pump::section_ciphers;
    use crate::testing::tcp_pair;
    use crate::tunnel::sources::LaneRemote;

    fn new_lane(sends: Direction) -> Arc<Lane> {
        let remote = LaneRemote::Path { name: "osaka".into(), key: None };
        Lane::new(&Metrics::new().packet_counters("tunnel"), remote, sends)
    }

    /// Returns the result of a lane whose peer sends `last` and resets the connection while a packet of the lane is
    /// still to be sent. With `reads_late`, the first read is delayed by one turn of the runtime.
    async fn run_lane(last: impl FnOnce(&RecordCipher) -> Vec<u8>, reads_late: bool) -> Result<(), LaneError> {
        let (ours, theirs) = section_ciphers();
        ours.allow_read_ahead();
        let (stream, other) = tcp_pair().await;
        let mut other = other.into_std().unwrap();
        other.write_all(&last(&theirs)).unwrap();
        SockRef::from(&other).set_linger(Some(Duration::ZERO)).unwrap();
        drop(other);
        let lane = new_lane(Direction::Up);
        lane.mark_established();
        lane.push(&[0x45; 100]);
        let carrier =
            LaneTransport { lane: &lane, stream: &stream, cipher: &ours, stats: &FlowStats::new(Rc::new(())) };
        let receiving = async {
            if reads_late {
                tokio::task::yield_now().await;
            }
            carrier.receive(|_| {}).await
        };
        let ended = carrier.run(receiving, pending()).await;
        assert!(ended.is_err() || lane.is_retired());
        ended
    }

    #[tokio::test]
    async fn end_record_before_a_reset_ends_the_lane_without_an_error() {
        for reads_late in [false, true] {
            assert!(run_lane(RecordCipher::end_record, reads_late).await.is_ok(), "late: {reads_late}");
        }
    }

    #[tokio::test]
    async fn reset_without_an_end_record_is_a_connection_error() {
        for reads_late in [false, true] {
            let ended = run_lane(|cipher| cipher.seal_all(b"a packet"), reads_late).await;
            assert!(matches!(ended, Err(LaneError::Connection(..))), "late: {reads_late}");
        }
    }

    /// Sends to `to`, which does not read, until the kernel takes no more bytes. The buffers have fixed sizes, so that
    /// the kernel takes none later.
    fn fill(from: &TcpStream, to: &TcpStream) {
        let from = SockRef::from(from);
        from.set_send_buffer_size(1 << 20).unwrap();
        SockRef::from(to).set_recv_buffer_size(4096).unwrap();
        while from.send(&[0; 65_536]).is_ok() {}
    }

    /// A relay that is suspended reads nothing. The end of the lane to the other relay waited for it without a limit.
    #[tokio::test(start_paused = true)]
    async fn forwarded_lane_ends_although_one_relay_does_not_read() {
        for blocked in [Direction::Up, Direction::Down] {
            let ((client, previous), (server, next)) = (tcp_pair().await, tcp_pair().await);
            let ((down_cipher, previous_cipher), (up_cipher, next_cipher)) = (section_ciphers(), section_ciphers());
            let (down, up) = (new_lane(Direction::Down), new_lane(Direction::Up));
            let stats = FlowStats::new(Rc::new(()));
            let downstream = LaneTransport { lane: &down, stream: &client, cipher: &down_cipher, stats: &stats };
            let upstream = LaneTransport { lane: &up, stream: &server, cipher: &up_cipher, stats: &stats };
            match blocked {
                Direction::Up => fill(&server, &next),
                Direction::Down => fill(&client, &previous),
            }
            let (ending, near, end) = match blocked {
                Direction::Up => (&previous, &client, previous_cipher.end_record()),
                Direction::Down => (&next, &server, next_cipher.end_record()),
            };
            write_all(ending, &end).await.unwrap();
            // Before a timer exists: the paused clock advances whenever the runtime is idle.
            near.readable().await.unwrap();
            let running = run_forwarded(&downstream, |_| {}, &upstream, |_| {}, pending());
            let ended = timeout(2 * CLOSE_TIMEOUT, running).await.expect("the lane ends");
            let Err(LaneError::Connection(error, direction)) = ended else { panic!("{blocked:?}: {ended:?}") };
            assert_eq!((error.kind(), direction), (io::ErrorKind::TimedOut, blocked.opposite()));
        }
    }
}
