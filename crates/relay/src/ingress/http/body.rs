//! Bodies. One of known length goes through the same splice pump as everything else; chunks are read one by one, and
//! the data of each goes through the pump as well.

use std::io;

use ekiden_proto::direction::Direction;
use ekiden_proto::wire::http::BodyFraming;
use ekiden_proto::wire::http::forward::{ChunkForwarder, ChunkFraming};
use tokio::net::TcpStream;

pub use ekiden_proto::wire::http::forward::BodyCoding;

use crate::ingress::inbox::{Inbox, Trouble};
use crate::ingress::manner::write_all;
use crate::pump::{Broken, Flow, Meter, PipePool, Side};

/// One way through which bodies go.
pub struct Lane<'a> {
    /// Where the bytes come from.
    pub from: &'a TcpStream,
    /// Where they go.
    pub to: &'a TcpStream,
    /// Which way that is.
    pub direction: Direction,
    /// The session's counters.
    pub meter: &'a Meter,
    /// The thread's pipes.
    pub pipes: &'a PipePool,
}

impl Lane<'_> {
    /// Writes bytes of our own making.
    ///
    /// # Errors
    /// [`Broken::Writing`].
    pub async fn write(&self, bytes: &[u8]) -> Result<(), Broken> {
        write_all(self.to, bytes).await.map_err(Broken::Writing)?;
        self.meter.copied(self.direction, bytes.len());
        Ok(())
    }

    /// Carries a whole body, whose beginning may be in `inbox`. Where only the end of the connection ends the body at the
    /// receiver, the caller calls [`pump::abort`](crate::pump::abort) before, and [`pump::settle`](crate::pump::settle)
    /// once it knows that the body is whole.
    ///
    /// # Errors
    /// [`Broken`] by the side; a body that ends too early is [`Broken::Reading`].
    pub async fn carry(&self, inbox: &mut Inbox<'_>, body: BodyFraming, coding: BodyCoding) -> Result<(), Broken> {
        match body {
            BodyFraming::Empty => Ok(()),
            BodyFraming::Length(length) => {
                let early = inbox.take(length);
                let rest = length - early.len() as u64;
                self.carry_exactly(early, rest).await
            }
            BodyFraming::Chunked => self.carry_chunks(inbox, coding).await,
            BodyFraming::UntilClose => self.flow(inbox.take_all(), u64::MAX).await.map(drop),
        }
    }

    async fn flow(&self, early: Vec<u8>, most: u64) -> Result<u64, Broken> {
        let flow = Flow::new(Side::plain(self.from), Side::plain(self.to), self.direction, self.meter, self.pipes);
        flow.beginning_with(early).limited_to(most).run().await
    }

    /// Carries `early`, and then `rest` bytes more.
    async fn carry_exactly(&self, early: Vec<u8>, rest: u64) -> Result<(), Broken> {
        if self.flow(early, rest).await? < rest {
            return Err(too_short());
        }
        Ok(())
    }

    async fn carry_chunks(&self, inbox: &mut Inbox<'_>, coding: BodyCoding) -> Result<(), Broken> {
        let mut chunks = ChunkForwarder::new(coding);
        while !chunks.is_complete() {
            let piece = self.next(inbox, &mut chunks).await?;
            let size = chunks.on_framing(&piece);
            if size == 0 {
                continue;
            }
            let here = inbox.take(size);
            let rest = size - here.len() as u64;
            chunks.output.extend_from_slice(&here);
            if rest > 0 {
                self.carry_exactly(std::mem::take(&mut chunks.output), rest).await?;
            }
        }
        self.write(&chunks.output).await
    }

    /// Reads the next piece of framing; before it waits for the sender, it sends what it has.
    async fn next(&self, inbox: &mut Inbox<'_>, chunks: &mut ChunkForwarder) -> Result<ChunkFraming, Broken> {
        if !inbox.holds(|bytes| chunks.parse(bytes)) && !chunks.output.is_empty() {
            self.write(&chunks.output).await?;
            chunks.output.clear();
        }
        inbox.next(|bytes| chunks.parse(bytes)).await.map_err(|trouble| match trouble {
            Trouble::Gone(kind) => Broken::Reading(kind.into()),
            Trouble::Late => Broken::Reading(io::ErrorKind::TimedOut.into()),
            Trouble::Wire(error) => Broken::Reading(io::Error::new(io::ErrorKind::InvalidData, error)),
        })
    }
}

fn too_short() -> Broken {
    Broken::Reading(io::ErrorKind::UnexpectedEof.into())
}
