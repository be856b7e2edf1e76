//! The turn of a flow to read, under the limits that its session shares with others.
//!
//! A flow that waits does not read, so the kernel's flow control holds back the sender. While it waits it looks only for a
//! reset of the side that it reads from.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep_until;

use super::flow::has_unread;
use super::framing::Endpoint;
use super::observer::Allowance;
use super::stats::FlowStats;

/// The turn of one flow.
pub struct ReadTurn<'a> {
    /// The bytes that may be read now.
    most: usize,
    /// Completes when the turn begins, or with the error of the socket.
    wait: Option<TurnWait<'a>>,
}

/// Waits for a turn, and returns how long that took.
type TurnWait<'a> = Pin<Box<dyn Future<Output = (Duration, io::Result<()>)> + 'a>>;

impl<'a> ReadTurn<'a> {
    /// A flow without a turn.
    pub fn new() -> Self {
        Self { most: 0, wait: None }
    }

    /// Ready when the flow may read from `from`.
    ///
    /// # Errors
    /// `QuotaExceeded` if bytes have arrived that no quota is left for, and a reset of `from` during the wait.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: Endpoint<'a>,
        stats: &FlowStats,
        direction: Direction,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(wait) = &mut self.wait {
                let (took, turn) = ready!(wait.as_mut().poll(cx));
                stats.record_throttled(direction, took);
                self.wait = None;
                turn?;
            }
            // Asked before each read: a turn stays, but others may have used up the quota.
            self.most = match stats.reserve(direction) {
                Allowance::Unlimited => usize::MAX,
                Allowance::Bytes { most, at } => {
                    if at > Instant::now() {
                        self.wait = Some(Box::pin(wait_turn(from.stream, at)));
                        continue;
                    }
                    most
                }
                // The end of a stream needs no quota: its bytes have all been passed on.
                Allowance::Exhausted if from.is_read_from_socket() && !has_unread(from.stream) => 1,
                Allowance::Exhausted => return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into())),
            };
            return Poll::Ready(Ok(()));
        }
    }

    /// The most bytes of the next read.
    pub fn most(&self) -> usize {
        self.most
    }
}

async fn wait_turn(from: &TcpStream, at: Instant) -> (Duration, io::Result<()>) {
    let since = Instant::now();
    let turn = tokio::select! {
        biased;
        () = sleep_until(at.into()) => Ok(()),
        _ = from.ready(Interest::ERROR) => Err(io::ErrorKind::ConnectionReset.into()),
    };
    (since.elapsed(), turn)
}
