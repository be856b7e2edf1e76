//! Message bodies. A body of known length is transferred by the pump like any other bytes. In a chunked body the
//! framing is parsed, and the data that is not yet buffered is transferred by the pump as well.

use std::future::poll_fn;
use std::io;
use std::mem::take;

use ekiden_proto::direction::Direction;
use ekiden_proto::wire::http::BodyFraming;
use ekiden_proto::wire::http::forward::{ChunkForwarder, ChunkFraming};

pub use ekiden_proto::wire::http::forward::BodyCoding;

use crate::ingress::{HandshakeReader, ReadError};
use crate::pump::{Endpoint, Flow, FlowError, FlowStats, FlowTurn, PipePool};
use crate::session::Session;

/// The endpoints and the direction of a body.
pub struct BodyFlow<'a> {
    /// The connection from which the body is read.
    from: Endpoint<'a>,
    /// The connection to which the body is written.
    to: Endpoint<'a>,
    /// The direction of the body in the session.
    direction: Direction,
    stats: &'a FlowStats,
    pipes: &'a PipePool,
}

impl<'a> BodyFlow<'a> {
    /// Creates the flow of a body of `session`, with the counters of the session and the pipes of its thread.
    pub fn new(session: &'a Session, from: Endpoint<'a>, to: Endpoint<'a>, direction: Direction) -> Self {
        Self { from, to, direction, stats: &session.stats, pipes: session.context.pipes() }
    }

    /// Writes bytes that did not come through the pump. Waits for their turn under the limits of the session.
    ///
    /// # Errors
    /// [`FlowError::Writing`]; [`FlowError::Reading`] with `QuotaExceeded` if the quota is used up.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), FlowError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut turn = FlowTurn::new();
        let turn = poll_fn(|cx| turn.poll_write(cx, None, self.stats, self.direction));
        turn.await.map_err(FlowError::Reading)?;
        self.to.write_all(bytes).await.map_err(FlowError::Writing)?;
        self.stats.record_copied(self.direction, bytes.len());
        Ok(())
    }

    /// Sends `head` and a complete body. The beginning of the body may be in `reader`, and is sent together with the
    /// head. If only the end of the connection marks the end of the body at the receiver, the caller calls
    /// [`pump::abort`](crate::pump::abort) before, and [`pump::cancel_abort`](crate::pump::cancel_abort) once the body
    /// is known to be complete.
    ///
    /// # Errors
    /// [`FlowError`] of the failed side; a body that ends too early is [`FlowError::Reading`].
    pub async fn relay(
        &self,
        mut head: Vec<u8>,
        reader: &mut HandshakeReader<'_>,
        body: BodyFraming,
        coding: BodyCoding,
    ) -> Result<(), FlowError> {
        match body {
            BodyFraming::Empty => self.write(&head).await,
            BodyFraming::Length(length) => {
                let early = reader.take(length);
                let rest = length - early.len() as u64;
                head.extend_from_slice(&early);
                send_exactly(&mut self.flow(), head, rest).await
            }
            BodyFraming::Chunked => self.relay_chunks(head, reader, coding).await,
            BodyFraming::UntilClose => {
                head.append(&mut reader.take_all());
                self.flow().run(head, u64::MAX).await.map(drop)
            }
        }
    }

    fn flow(&self) -> Flow<'a> {
        Flow::new(self.from, self.to, self.direction, self.stats, self.pipes)
    }

    async fn relay_chunks(
        &self,
        head: Vec<u8>,
        reader: &mut HandshakeReader<'_>,
        coding: BodyCoding,
    ) -> Result<(), FlowError> {
        // One flow for all chunks: each of them may be too short for an assessment of the receiver.
        let mut flow = self.flow();
        let mut chunks = ChunkForwarder::new(coding);
        chunks.output = head;
        while !chunks.is_complete() {
            let piece = next_framing(&mut flow, reader, &mut chunks).await?;
            let size = chunks.on_framing(&piece);
            if size == 0 {
                continue;
            }
            let buffered = reader.take(size);
            let rest = size - buffered.len() as u64;
            chunks.output.extend_from_slice(&buffered);
            if rest > 0 {
                send_exactly(&mut flow, take(&mut chunks.output), rest).await?;
            }
        }
        send_exactly(&mut flow, chunks.output, 0).await
    }
}

/// Sends `early`, and then `rest` bytes from the source of the flow.
async fn send_exactly(flow: &mut Flow<'_>, early: Vec<u8>, rest: u64) -> Result<(), FlowError> {
    if flow.run(early, rest).await? < rest {
        return Err(FlowError::Reading(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// Reads the next piece of chunk framing. Sends buffered output before it waits for the sender or fails.
async fn next_framing(
    flow: &mut Flow<'_>,
    reader: &mut HandshakeReader<'_>,
    chunks: &mut ChunkForwarder,
) -> Result<ChunkFraming, FlowError> {
    if !reader.has_message(|bytes| chunks.parse(bytes)) && !chunks.output.is_empty() {
        send_exactly(flow, take(&mut chunks.output), 0).await?;
    }
    reader.next(|bytes| chunks.parse(bytes)).await.map_err(|read_error| match read_error {
        ReadError::Gone(kind) => FlowError::Reading(kind.into()),
        ReadError::Late => FlowError::Reading(io::ErrorKind::TimedOut.into()),
        ReadError::Wire(error) => FlowError::Reading(io::Error::new(io::ErrorKind::InvalidData, error)),
    })
}
