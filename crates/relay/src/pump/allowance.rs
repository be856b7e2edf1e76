//! The turn of a flow: the number of bytes that the flow may read, and when, under limits that its session shares with
//! other sessions.
//!
//! A flow takes a turn before each read. While the flow waits for the turn it does not read, so TCP flow control slows
//! down the sender; the flow detects only a reset of the sending side. The bytes that a server sent before its reset
//! still have their turns. For bytes that were already read by a parser, the flow takes the turn before the write.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use tokio::io::Interest;
use tokio::time::sleep_until;

use super::flow::has_unread;
use super::framing::Endpoint;
use super::observer::Allowance;
use super::stats::FlowStats;

/// The turn of one flow.
pub struct FlowTurn<'a> {
    /// Number of bytes that may be read now; 0 if a quota is used up.
    most: usize,
    /// Completes when the turn begins, or with the error of the socket.
    wait: Option<TurnWait<'a>>,
}

/// Waits for a turn, and returns the duration of the wait.
type TurnWait<'a> = Pin<Box<dyn Future<Output = (Duration, io::Result<()>)> + 'a>>;

impl<'a> FlowTurn<'a> {
    /// Creates the state of a flow that has no turn yet.
    pub fn new() -> Self {
        Self { most: 0, wait: None }
    }

    /// Ready when the flow may read from `from`. This also applies if the quota is used up, because the end of the
    /// stream needs no quota: payload then fails in [`Self::check_payload`].
    ///
    /// # Errors
    /// A reset of `from` during the wait, unless `from` is a server whose bytes are not yet read.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        from: Endpoint<'a>,
        stats: &FlowStats,
        direction: Direction,
    ) -> Poll<io::Result<()>> {
        self.most = ready!(self.poll(cx, Some(from), stats, direction))?.unwrap_or(0);
        Poll::Ready(Ok(()))
    }

    /// Checks whether `bytes` of payload that were read may be passed on.
    ///
    /// # Errors
    /// `QuotaExceeded` if the quota is used up.
    pub fn check_payload(&self, bytes: usize) -> io::Result<()> {
        if bytes > 0 && self.most == 0 { Err(io::ErrorKind::QuotaExceeded.into()) } else { Ok(()) }
    }

    /// Ready when the flow may write bytes that were read without a turn. `from` is the sending side, which is watched
    /// for a reset.
    ///
    /// # Errors
    /// `QuotaExceeded` if no quota is left, and a reset of `from` during the wait.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: Option<Endpoint<'a>>,
        stats: &FlowStats,
        direction: Direction,
    ) -> Poll<io::Result<()>> {
        let most = ready!(self.poll(cx, from, stats, direction))?;
        Poll::Ready(most.map(drop).ok_or_else(|| io::ErrorKind::QuotaExceeded.into()))
    }

    /// Ready when the turn begins, with the number of bytes of the turn; `None` if a quota is used up.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: Option<Endpoint<'a>>,
        stats: &FlowStats,
        direction: Direction,
    ) -> Poll<io::Result<Option<usize>>> {
        loop {
            if let Some(wait) = &mut self.wait {
                let (took, turn) = ready!(wait.as_mut().poll(cx));
                stats.record_throttled(direction, took);
                self.wait = None;
                turn?;
            }
            // Reserved again after the wait: the turn remains valid, but other sessions may have used up the quota.
            return Poll::Ready(Ok(match stats.reserve(direction) {
                Allowance::Unlimited => Some(usize::MAX),
                Allowance::Bytes { at, .. } if at > Instant::now() => {
                    self.wait = Some(Box::pin(wait_turn(from, at, direction)));
                    continue;
                }
                Allowance::Bytes { most, .. } => Some(most),
                Allowance::Exhausted => None,
            }));
        }
    }

    /// Maximum size of the next read in bytes, never 0: only a read shows whether the stream has ended.
    pub fn most(&self) -> usize {
        self.most.max(1)
    }
}

async fn wait_turn(from: Option<Endpoint<'_>>, at: Instant, direction: Direction) -> (Duration, io::Result<()>) {
    let since = Instant::now();
    let reset = async {
        let Some(from) = from else { return pending().await };
        // An error means that the runtime shuts down.
        let _ = from.stream.ready(Interest::ERROR).await;
        let has_bytes = !from.is_read_from_socket() || has_unread(from.stream);
        if direction == Direction::Down && has_bytes {
            pending().await
        }
    };
    let turn = tokio::select! {
        biased;
        () = sleep_until(at.into()) => Ok(()),
        () = reset => Err(io::ErrorKind::ConnectionReset.into()),
    };
    (since.elapsed(), turn)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use ekiden_sys::tcp_info::is_closed;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    use super::*;
    use crate::pump::abort;
    use crate::testing::{tcp_pair, wait_until};

    /// Waits for a turn that begins in a minute.
    async fn wait_minute(from: &TcpStream, direction: Direction) -> Result<(), io::ErrorKind> {
        let at = tokio::time::Instant::now() + Duration::from_secs(60);
        let (_, turn) = wait_turn(Some(Endpoint::plain(from)), at.into_std(), direction).await;
        turn.map_err(|error| error.kind())
    }

    /// Regression: a reset of the server during the wait discarded the bytes that the server had sent before.
    #[tokio::test(start_paused = true)]
    async fn reset_server_keeps_its_turn_until_its_bytes_are_read() {
        let (near, mut far) = tcp_pair().await;
        far.write_all(b"413").await.unwrap();
        // A reset discards unsent bytes.
        near.readable().await.unwrap();
        abort(&far);
        drop(far);
        wait_until("the reset", || is_closed(near.as_fd()));
        let reset = Err(io::ErrorKind::ConnectionReset);
        assert_eq!(wait_minute(&near, Direction::Up).await, reset, "bytes of a client");
        assert_eq!(wait_minute(&near, Direction::Down).await, Ok(()));
        assert_eq!(near.try_read(&mut [0; 4]).unwrap(), 3);
        assert_eq!(wait_minute(&near, Direction::Down).await, reset);
    }
}
