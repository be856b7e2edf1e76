//! The pump carries bytes between two sections until both directions have ended. This module imports nothing else of
//! the relay; it reports to the rest of the relay only through [`FlowObserver`].
//!
//! Each direction is a [`Flow`]. A flow starts with reads and writes through a buffer, and changes to splice(2) through
//! a pooled pipe after a fixed number of bytes. The rest of the relay relies on these rules:
//!
//! - a byte is in the kernel, in one pipe, or in one buffer, and order survives the change from copy to splice;
//! - end of stream closes that direction only, and a reset is forwarded as a reset, after the bytes that arrived from
//!   the server before;
//! - a flow reads only after all earlier bytes have been written, so a slow receiver slows down the sender and does not
//!   use memory of the relay.

mod allowance;
mod backlog;
mod cipher;
mod flow;
mod framing;
mod kernel_tls;
mod loopback;
mod observer;
pub mod pause;
mod pipes;
pub mod read_shaper;
mod response_timer;
mod stats;
pub mod tls;
pub mod tls_stream;
mod watch;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

pub use allowance::FlowTurn;
pub use cipher::RecordCipher;
#[cfg(test)]
pub(crate) use cipher::tests::section_ciphers;
pub use flow::{Flow, FlowError};
pub use framing::{Endpoint, FramedSection, Framing, write_all};
pub use loopback::loopback_pair;
pub use observer::{Allowance, FlowObserver, TransferMethod};
pub use pipes::{PipeCounts, PipePool};
pub use response_timer::Response;
pub use stats::FlowStats;
use watch::{ResetWatch, half_close, has_byte_behind_end, wait_acknowledged};
pub use watch::{StreamEnd, stream_end};

/// Maximum times without progress of a session.
#[derive(Debug, Clone, Copy)]
pub struct IdleTimeouts {
    /// Timeout while both directions are open.
    pub idle: Duration,
    /// Timeout after one side has closed its direction.
    pub half_closed: Duration,
}

/// Reads the answer to OPEN from the server's section, before the session's own bytes.
pub type PendingAnswer<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + 'a>>;

/// Two sections, and the resources to carry bytes between them.
pub struct PumpParams<'a> {
    /// The connection to the client.
    pub client: Endpoint<'a>,
    /// The connection to the server or the next relay.
    pub server: Endpoint<'a>,
    /// Bytes that the client sent after its handshake.
    pub early: Vec<u8>,
    /// The counters of the session.
    pub stats: &'a FlowStats,
    /// The pipes of the thread.
    pub pipes: &'a PipePool,
    /// The idle timeouts of the session.
    pub idle_timeouts: IdleTimeouts,
}

/// Carries bytes in both directions. Bytes toward the client wait for `opening`; bytes toward the server do not. Both
/// sockets stay open; after a failure, closing them sends a reset.
///
/// # Errors
/// The error of `opening`. The client has then received no byte and no answer.
pub fn run<'a, E>(
    params: PumpParams<'a>,
    opening: Option<PendingAnswer<'a, E>>,
) -> impl Future<Output = Result<EndReason, E>> {
    // Not an async function, which would hold its arguments beside the pump for the whole session.
    let PumpParams { client, server, early, stats, pipes, idle_timeouts } = params;
    let mut pump = Pump {
        up: Flow::new(client, server, Direction::Up, stats, pipes).with_early_bytes(early),
        down: Flow::new(server, client, Direction::Down, stats, pipes),
        opening,
        stuck: None,
        watch: None,
    };
    // A killed process closes its sockets: with zero linger (`SO_LINGER`) the close is a reset, so that a truncated
    // stream does not look complete.
    abort(client.stream);
    abort(server.stream);
    let mut idle_timer = IdleTimer {
        timeout: idle_timeouts.idle,
        half_closed_timeout: Some(idle_timeouts.half_closed),
        last_move: Instant::now(),
    };
    async move {
        let mut timer = pin!(sleep_until(idle_timer.deadline()));
        let end = std::future::poll_fn(|cx| {
            let before = stats.moved();
            if let Poll::Ready(end) = pump.poll(cx) {
                return Poll::Ready(end);
            }
            let half_closed = pump.watch.is_some();
            idle_timer.poll(timer.as_mut(), cx, stats.moved() != before, half_closed).map(Ok)
        })
        .await;
        match end {
            Ok(EndReason::Finished) => {
                cancel_abort(pump.client());
                cancel_abort(pump.server());
            }
            Ok(_) => {}
            Err(_) => cancel_abort(pump.client()),
        }
        end
    }
}

/// Configures the socket so that closing it sends a reset.
pub fn abort(stream: &TcpStream) {
    // Fails only on a dead socket, which needs no reset.
    let _ = stream.set_zero_linger();
}

/// Undoes [`abort`]: closing the socket sends FIN.
pub fn cancel_abort(stream: &TcpStream) {
    // Fails only when the socket is already dead.
    let _ = SockRef::from(stream).set_linger(None);
}

/// Makes this session the last one of a section: the kernel holds the end of the stream back until FIN follows
/// (`TCP_CORK`), so that both are in one segment. If the relay could read the end before FIN, it could send another
/// OPEN, which would be lost.
fn hold_end(section: &TcpStream) {
    // Without the option, as with Multipath TCP in old kernels, the section carries another session.
    let _ = SockRef::from(section).set_tcp_cork(true);
}

/// Returns whether the end of the stream is held back until FIN follows, so that the section carries no other session.
#[must_use]
pub fn has_held_end(section: &TcpStream) -> bool {
    SockRef::from(section).tcp_cork().unwrap_or(false)
}

struct Pump<'a, E> {
    up: Flow<'a>,
    down: Flow<'a>,
    opening: Option<PendingAnswer<'a, E>>,
    /// The failure of the upward flow. The answer to OPEN may be outstanding, and may state a more precise cause.
    stuck: Option<Box<EndReason>>,
    /// Waits for a reset from the side that has closed its direction: the flow no longer reads from that side. After a
    /// failure of the server, waits for the acknowledgement of the client.
    watch: Option<ResetWatch<'a>>,
}

impl<'a, E> Pump<'a, E> {
    fn client(&self) -> &'a TcpStream {
        self.up.sides().0.stream
    }

    fn server(&self) -> &'a TcpStream {
        self.up.sides().1.stream
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<EndReason, E>> {
        if self.opening.is_some() {
            ready!(self.poll_opening(cx))?;
        }
        self.poll_flows(cx).map(Ok)
    }

    /// Ready when the server's side has begun to carry the session's bytes.
    fn poll_opening(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        let Some(opening) = &mut self.opening else { return Poll::Ready(Ok(())) };
        let opened = opening.as_mut().poll(cx);
        if opened.is_ready() {
            self.opening = None;
            return opened;
        }
        if self.stuck.is_some() {
            return Poll::Pending;
        }
        let Poll::Ready(Err(broken)) = self.up.poll(cx) else { return Poll::Pending };
        self.stuck = Some(Box::new(end_reason(&broken, Direction::Up)));
        if matches!(broken, FlowError::Writing(_)) {
            return Poll::Pending;
        }
        // The client has disconnected, so the answer has no receiver.
        self.opening = None;
        Poll::Ready(Ok(()))
    }

    fn poll_flows(&mut self, cx: &mut Context<'_>) -> Poll<EndReason> {
        if let Some(end) = self.stuck.as_deref().copied() {
            return self.poll_last_bytes(cx, end);
        }
        let up = self.up.poll(cx);
        if let Poll::Ready(Err(broken)) = &up {
            let end = end_reason(broken, Direction::Up);
            self.stuck = Some(Box::new(end));
            self.watch = None;
            return self.poll_last_bytes(cx, end);
        }
        let down = self.down.poll(cx);
        if let Poll::Ready(Err(broken)) = &down {
            return Poll::Ready(end_reason(broken, Direction::Down));
        }
        let (up, down) = (up.is_ready(), down.is_ready());
        if !up && !down {
            return Poll::Pending;
        }
        if self.watch.is_none() {
            match self.first_end(up, down) {
                Err(reset) => return Poll::Ready(reset),
                Ok(end) if up != down => {
                    self.watch = Some(half_close(if up { &self.up } else { &self.down }, end, up));
                }
                Ok(_) => {}
            }
        }
        if up && down {
            for flow in [&self.up, &self.down] {
                if has_byte_behind_end(flow.sides().0) {
                    return Poll::Ready(EndReason::Altered(flow.direction()));
                }
            }
            // Both sockets are about to be closed, which forwards an end that is still outstanding.
            return Poll::Ready(EndReason::Finished);
        }
        self.watch.as_mut().map_or(Poll::Pending, |watch| watch.as_mut().poll(cx))
    }

    /// Ready with `end`, the failure of the upward flow. If the server has failed, the bytes that it sent before are
    /// delivered first: the kernel keeps received bytes after a reset, but a reset of the client's connection discards
    /// the bytes that the client has not acknowledged.
    fn poll_last_bytes(&mut self, cx: &mut Context<'_>, end: EndReason) -> Poll<EndReason> {
        if !matches!(end, EndReason::ResetByServer | EndReason::ServerLost) {
            return Poll::Ready(end);
        }
        if self.watch.is_none() {
            // A failure of this flow comes after `end`, and means that no further byte can be delivered.
            let _ = ready!(self.down.poll_truncated(cx));
            let client = self.client();
            self.watch = Some(Box::pin(async move {
                wait_acknowledged(client).await;
                end
            }));
        }
        self.watch.as_mut().map_or(Poll::Pending, |watch| watch.as_mut().poll(cx))
    }

    /// Returns how the first ended direction has ended, or as an error the side that has sent a reset.
    fn first_end(&self, up_ended: bool, down_ended: bool) -> Result<StreamEnd, EndReason> {
        let mut end = StreamEnd::Orderly;
        for (has_ended, side, reset) in
            [(up_ended, self.client(), EndReason::ResetByClient), (down_ended, self.server(), EndReason::ResetByServer)]
        {
            if has_ended {
                end = stream_end(side);
            }
            if end == StreamEnd::Reset {
                return Err(reset);
            }
        }
        Ok(end)
    }
}

/// Returns the end reason of a session in which `direction` failed.
pub fn end_reason(broken: &FlowError, direction: Direction) -> EndReason {
    let (error, client_side) = match (broken, direction) {
        (FlowError::Reading(e), Direction::Up) | (FlowError::Writing(e), Direction::Down) => (e, true),
        (FlowError::Reading(e), Direction::Down) | (FlowError::Writing(e), Direction::Up) => (e, false),
    };
    let reset = matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
    match error.kind() {
        io::ErrorKind::InvalidData => return EndReason::Altered(direction),
        io::ErrorKind::QuotaExceeded => return EndReason::OverQuota,
        _ => {}
    }
    match (client_side, reset) {
        (true, true) => EndReason::ResetByClient,
        (true, false) => EndReason::ClientLost,
        (false, true) => EndReason::ResetByServer,
        (false, false) => EndReason::ServerLost,
    }
}

/// Detects sessions without progress. The timer is not armed again at each progress: when the timer expires before the
/// deadline that follows from the last progress, it is armed for that deadline.
struct IdleTimer {
    timeout: Duration,
    /// The timeout after one side has closed its direction; `None` once it applies.
    half_closed_timeout: Option<Duration>,
    last_move: Instant,
}

impl IdleTimer {
    fn deadline(&self) -> Instant {
        self.last_move + self.timeout
    }

    fn poll(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
        moved: bool,
        half_closed: bool,
    ) -> Poll<EndReason> {
        if moved {
            self.last_move = Instant::now();
        }
        if half_closed && let Some(timeout) = self.half_closed_timeout.take() {
            (self.timeout, self.last_move) = (timeout, Instant::now());
            timer.as_mut().reset(self.deadline());
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.deadline() {
                return Poll::Ready(if half_closed { EndReason::HalfCloseIdle } else { EndReason::Idle });
            }
            timer.as_mut().reset(self.deadline());
        }
        Poll::Pending
    }
}

/// Completes when no byte has moved for at least `idle`.
pub fn wait_idle(stats: &FlowStats, idle: Duration) -> impl Future<Output = ()> {
    // Not an async function, which would hold its arguments twice.
    let mut before = stats.moved();
    async move {
        loop {
            sleep(idle).await;
            if stats.moved() == std::mem::replace(&mut before, stats.moved()) {
                return;
            }
        }
    }
}
